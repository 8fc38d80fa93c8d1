// Two people changed one line. Shown: what it was, what the other made of it, what I wrote. Nothing is sent until I decide.

import { html, useSignal } from "../lib.js";
import { difference } from "../text.js";
import { dialog, direction } from "../state.js";
import { t } from "../i18n/index.js";
import { Button, Dialog, Difference } from "./basics.js";

/** Both changes in one text, where they do not touch: the common start and end of each against the base. */
export function merged(base, mine, theirs) {
  if (mine === theirs || theirs === base) return mine;
  if (mine === base) return theirs;
  const [b, m, o] = [base, mine, theirs].map((text) => Array.from(text));
  const change = (other) => {
    let head = 0;
    while (head < b.length && head < other.length && b[head] === other[head]) head++;
    let tail = 0;
    while (tail < b.length - head && tail < other.length - head && b[b.length - 1 - tail] === other[other.length - 1 - tail]) tail++;
    return { start: head, end: b.length - tail, by: other.slice(head, other.length - tail) };
  };
  const [first, second] = [change(m), change(o)].sort((x, y) => x.start - y.start || x.end - y.end);
  if (first.end > second.start || (first.end === second.start && first.start === second.start)) return null;
  return [...b.slice(0, first.start), ...first.by, ...b.slice(first.end, second.start), ...second.by, ...b.slice(second.end)].join("");
}

export function MergeDialog({ store, id, mine, base, current }) {
  const before = base?.text ?? "";
  const theirs = current?.text ?? "";
  const both = current ? merged(before, mine, theirs) : null;
  const result = useSignal(both ?? mine);
  const row = (label, text) => html`<tr><th scope="row">${label}</th><td><${Difference} parts=${difference(before, text)} /></td>
    <td>${current && html`<${Button} label=${t("merge.take")} kind="small" onClick=${() => (result.value = text)} />`}</td></tr>`;
  if (!current) {
    return html`<${Dialog} title=${t("merge.deleted")} name="merge">
      <p>${t("merge.deletedText")}</p><p><bdi dir="auto" class="quoted">${mine}</bdi></p>
      <div class="dialog-actions"><${Button} label=${t("close")} kind="primary" onClick=${() => store.settleMerge(id, null)} /></div>
    <//>`;
  }
  return html`<${Dialog} title=${t("merge.title")} name="merge" wide onClose=${() => (dialog.value = null)}>
    <p>${t("merge.text")}</p>
    <table class="merge"><tbody>
      <tr><th scope="row">${t("merge.base")}</th><td><bdi dir="auto">${before}</bdi></td><td></td></tr>
      ${row(t("merge.theirs"), theirs)}
      ${row(t("merge.mine"), mine)}
    </tbody></table>
    <label class="labelled">${t(both === null ? "merge.result" : "merge.resultBoth")}
      <textarea class="field" rows="2" dir=${direction.value} autofocus value=${result.value} onInput=${(event) => (result.value = event.target.value)}></textarea></label>
    <div class="dialog-actions">
      <${Button} label=${t("merge.save")} kind="primary" onClick=${() => store.settleMerge(id, result.value, current.version)} />
      <${Button} label=${t("merge.keepTheirs")} onClick=${() => store.settleMerge(id, null)} />
    </div>
  <//>`;
}
