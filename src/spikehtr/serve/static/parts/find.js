// Find and replace, over all pages of the project.

import { html, useSignal, useEffect } from "../lib.js";
import * as api from "../api.js";
import { attempt, dialog, direction, go, say } from "../state.js";
import { marked } from "../text.js";
import { t } from "../i18n/index.js";
import { whole } from "../i18n/said.js";
import { Button, Dialog } from "./basics.js";

const LIMIT = 200;
let last = { q: "", replacement: "", regex: false, match: false };

export function FindDialog({ store }) {
  const query = useSignal({ ...last });
  const found = useSignal(null);
  const left = useSignal(new Set()); // hits that are not to be replaced
  const change = (part) => (query.value = last = { ...query.value, ...part });
  const name = (hit) => `${hit.page} ${hit.line}`;

  const search = async () => {
    const { q, regex, match } = query.value;
    if (!q) return void (found.value = null);
    const parameters = new URLSearchParams({ q, regex: Number(regex), case: Number(match), limit: LIMIT });
    try {
      found.value = await api.get(`/api/search?${parameters}`);
    } catch (error) {
      found.value = { hits: [], total: 0, fault: whole(error) };
    }
    left.value = new Set();
  };
  useEffect(() => {
    const timer = setTimeout(search, 250);
    return () => clearTimeout(timer);
  }, [query.value.q, query.value.regex, query.value.match]);

  const replace = async () => {
    await store?.flush();
    const { q, regex, match, replacement } = query.value;
    const lines = found.value.hits.filter((hit) => !left.value.has(name(hit))).map(({ page, line, version }) => ({ page, line, version }));
    const answer = await attempt(() => api.post("/api/replace", { q, regex, case: match, replacement, lines }));
    if (!answer) return;
    say(t("find.replaced", { count: answer.replaced }), { detail: answer.conflicts.length ? t("find.conflicts", { count: answer.conflicts.length }) : "" });
    await store?.load();
    search();
  };
  const open = (hit) => {
    dialog.value = null;
    go(`/p/page/${hit.page}/${encodeURIComponent(hit.line)}`);
  };
  const toggle = (hit) => {
    const now = new Set(left.value);
    now.has(name(hit)) ? now.delete(name(hit)) : now.add(name(hit));
    left.value = now;
  };
  const hits = found.value?.hits ?? [];
  const count = hits.length - left.value.size;
  return html`<${Dialog} title=${t("find.title")} name="find" wide>
    <form class="find" onSubmit=${(event) => (event.preventDefault(), search())}>
      <label class="labelled">${t("find.what")}<input class="field" autofocus dir=${direction.value} value=${query.value.q} onInput=${(event) => change({ q: event.target.value })} /></label>
      <label class="labelled">${t("find.by")}<input class="field" dir=${direction.value} value=${query.value.replacement} onInput=${(event) => change({ replacement: event.target.value })} /></label>
      <label class="check"><input type="checkbox" checked=${query.value.match} onChange=${(event) => change({ match: event.target.checked })} /> ${t("find.case")}</label>
      <label class="check"><input type="checkbox" checked=${query.value.regex} onChange=${(event) => change({ regex: event.target.checked })} /> ${t("find.regex")}</label>
    </form>
    <p class="hint" role="status" dir="auto">${found.value?.fault ?? (found.value ? t("find.found", { count: found.value.total }) : " ")}${found.value && found.value.total > hits.length && !found.value.fault ? ` ${t("find.first", { count: hits.length })}` : ""}</p>
    <ul class="hits">
      ${hits.map((hit) => html`<li key=${name(hit)}>
        <input type="checkbox" checked=${!left.value.has(name(hit))} aria-label=${t("find.include", { name: `${hit.name}, ${hit.line}` })} onChange=${() => toggle(hit)} />
        <button type="button" class="hit" onClick=${() => open(hit)}><bdi class="hit-page" dir="auto">${hit.name}</bdi>
          <bdi dir="auto" class="hit-text">${marked(hit.text, hit.spans).map((part) => (part.hit ? html`<mark>${part.text}</mark>` : part.text))}</bdi></button>
      </li>`)}
    </ul>
    <div class="dialog-actions">
      <${Button} label=${t("find.replace", { count })} kind="primary" disabled=${count === 0} onClick=${replace} />
      <span class="hint">${t("find.undoHint")}</span>
    </div>
  <//>`;
}
