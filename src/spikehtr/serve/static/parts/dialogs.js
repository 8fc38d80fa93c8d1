// The smaller dialogs: keys, export, settings, jobs, a line's history, the token.

import { html, useEffect, useSignal } from "../lib.js";
import * as api from "../api.js";
import { KEYS, caps } from "../keys.js";
import { attempt, dialog, isRunning, jobs, needsToken, noteJob, session, setSettings, settings, startJob, theme } from "../state.js";
import { LANGUAGES, duration, has, moment, number, percent, t } from "../i18n/index.js";
import { said, whole } from "../i18n/said.js";
import { Bar, Button, Dialog } from "./basics.js";

// ---- keys
export function KeysDialog() {
  const groups = ["text", "lines", "image", "pages", "all"];
  return html`<${Dialog} title=${t("keys.title")} name="keys" wide>
    <div class="keys">
      ${groups.map((group) => html`<section><h3>${t(`keys.${group}`)}</h3><dl>
        ${KEYS.filter((key) => key.group === group).map((key) => html`<div><dt>${key.keys.map((one, at) => html`${at > 0 ? html` <span class="or">${t("keys.or")}</span> ` : ""}${caps(one).map((cap) => html`<kbd>${cap}</kbd>`)}`)}</dt><dd>${t(`key.${key.id}`)}</dd></div>`)}
      </dl></section>`)}
    </div>
    <p class="hint">${t("keys.note")}</p>
  <//>`;
}

// ---- export
const SEVERAL = { parquet: true };

export function ExportDialog({ pages: chosen }) {
  const format = useSignal("page");
  const all = useSignal(!chosen);
  const images = useSignal(false);
  const onlyCorrected = useSignal(true);
  const formats = session.value?.formats ?? ["page"];
  const query = new URLSearchParams({ format: format.value, pages: all.value || !chosen ? "all" : chosen.join(",") });
  if (format.value === "page" && images.value) query.set("images", "1");
  if (SEVERAL[format.value]) query.set("corrected", onlyCorrected.value ? "1" : "0");
  const backup = async () => {
    await startJob({ kind: "backup" });
    dialog.value = { name: "jobs" };
  };
  return html`<${Dialog} title=${t("export")} name="export">
    <fieldset class="choices"><legend>${t("export.format")}</legend>
      ${formats.map((one) => html`<label class="check"><input type="radio" name="format" value=${one} checked=${format.value === one} onChange=${() => (format.value = one)} />
        <span><strong>${t(`format.${one}`)}</strong> <span class="hint">${t(`format.${one}.hint`)}</span></span></label>`)}
    </fieldset>
    ${chosen && html`<fieldset class="choices row-wise"><legend>${t("export.pages")}</legend>
      <label class="check"><input type="radio" name="pages" checked=${!all.value} onChange=${() => (all.value = false)} /> ${t("export.these", { count: chosen.length })}</label>
      <label class="check"><input type="radio" name="pages" checked=${all.value} onChange=${() => (all.value = true)} /> ${t("export.all")}</label>
    </fieldset>`}
    ${format.value === "page" && html`<label class="check"><input type="checkbox" checked=${images.value} onChange=${(event) => (images.value = event.target.checked)} /> ${t("export.images")}</label>`}
    ${SEVERAL[format.value] && html`<label class="check"><input type="checkbox" checked=${onlyCorrected.value} onChange=${(event) => (onlyCorrected.value = event.target.checked)} /> ${t("export.onlyCorrected")}</label>`}
    <div class="dialog-actions">
      <a class="button primary" href=${`/api/export?${query}`} download autofocus onClick=${() => setTimeout(() => (dialog.value = null), 50)}><span>${t("export.save")}</span></a>
      <${Button} label=${t("backup")} hint=${t("backup.hint")} onClick=${backup} />
    </div>
  <//>`;
}

// ---- settings
export function SettingsDialog() {
  const models = useSignal([]);
  const user = useSignal(localStorage.getItem("user") ?? "");
  useEffect(() => void attempt(async () => (models.value = (await api.get("/api/models")).models)), []);
  const now = settings.value;
  const choice = (key, label, options) => html`<label class="labelled">${label}<select class="field" value=${now[key] ?? ""} onChange=${(event) => setSettings({ [key]: event.target.value || null })}>
    ${options.map(([value, words]) => html`<option value=${value}>${words}</option>`)}</select></label>`;
  const check = (key, label) => html`<label class="check"><input type="checkbox" checked=${now[key]} onChange=${(event) => setSettings({ [key]: event.target.checked })} /> ${label}</label>`;
  return html`<${Dialog} title=${t("settings")} name="settings">
    <div class="settings">
      ${choice("language", t("settings.language"), [["", t("settings.browser")], ...Object.entries(LANGUAGES).map(([key, words]) => [key, words["language.name"]])])}
      <label class="labelled">${t("settings.theme")}<select class="field" value=${theme.value} onChange=${(event) => (theme.value = event.target.value)}>
        ${["auto", "light", "dark"].map((one) => html`<option value=${one}>${t(`theme.${one}`)}</option>`)}</select></label>
      ${choice("direction", t("settings.direction"), ["auto", "ltr", "rtl"].map((one) => [one, t(`direction.${one}`)]))}
      ${choice("model", t("settings.model"), models.value.map((model) => [model.name, model.name]))}
      ${(session.value?.segmenters?.length ?? 0) > 1 && choice("segmenter", t("settings.segmenter"), session.value.segmenters.map((one) => [one, one]))}
      <label class="labelled">${t("settings.threshold", { share: percent(now.threshold ?? 0.8, 0) })}<input type="range" min="0.3" max="0.99" step="0.01" value=${now.threshold ?? 0.8} onChange=${(event) => setSettings({ threshold: Number(event.target.value) })} /></label>
      <label class="labelled">${t("settings.palette")}<input class="field" dir="auto" value=${now.palette ?? ""} onChange=${(event) => setSettings({ palette: event.target.value })} /></label>
      <label class="labelled">${t("settings.user")}<input class="field" dir="auto" value=${user.value} onChange=${(event) => localStorage.setItem("user", event.target.value.trim())} /></label>
      ${check("reread", t("settings.reread"))}
      ${check("read_on_import", t("settings.readOnImport"))}
    </div>
  <//>`;
}

// ---- jobs
function JobRow({ job }) {
  const act = async (verb) => {
    const answer = await attempt(() => api.post(`/api/jobs/${job.id}/${verb}`));
    if (answer) noteJob(answer.job ?? answer);
  };
  return html`<li class="job" data-state=${job.state}>
    <div class="job-head"><strong>${has(`job.${job.kind}`) ? t(`job.${job.kind}`) : job.kind}</strong> <span class="badge" data-state=${job.state}>${t(`jobState.${job.state}`)}</span>
      <span class="gap"></span>
      ${job.result?.url && html`<a class="button small" href=${job.result.url} download><span>${t("job.file", { size: number((job.result.bytes ?? 0) / 1e6, 1) })}</span></a>`}
      ${isRunning(job) && job.can_cancel && html`<${Button} label=${t("cancel")} kind="small" onClick=${() => act("cancel")} />`}
      ${job.can_resume && html`<${Button} label=${t("resume")} kind="small" onClick=${() => act("resume")} />`}</div>
    ${isRunning(job) && html`<${Bar} share=${job.total ? job.done / job.total : null} label=${t(`job.${job.kind}`)} />`}
    <p class="hint" dir="auto">${job.total ? `${number(job.done)} / ${number(job.total)} ${has(`unit.${job.unit}`) ? t(`unit.${job.unit}`) : job.unit}. ` : ""}${said(job.message)}${isRunning(job) && job.seconds_left ? ` ${t("time.left", { time: duration(job.seconds_left) })}` : ""}</p>
    ${job.error && html`<p class="problem" dir="auto">${whole(job.error)}</p>`}
    ${job.problems?.length > 0 && html`<details><summary>${t("job.problems", { count: job.problems.length })}</summary><ul>${job.problems.map((one) => html`<li><bdi dir="auto">${one.title}</bdi>: <bdi dir="auto">${said(one.reason)}</bdi></li>`)}</ul></details>`}
  </li>`;
}

export const JobsDialog = () => html`<${Dialog} title=${t("jobs")} name="jobs">
  ${jobs.value.length ? html`<ul class="jobs-list">${jobs.value.map((job) => html`<${JobRow} key=${job.id} job=${job} />`)}</ul>` : html`<p>${t("jobs.none")}</p>`}
<//>`;

// ---- what a line was before
export function HistoryDialog({ store, id }) {
  const versions = useSignal(null);
  useEffect(() => void attempt(async () => (versions.value = (await api.get(`/api/pages/${store.id}/lines/${encodeURIComponent(id)}/history`)).versions)), []);
  const take = (text) => {
    store.type(id, text);
    store.save(id);
    dialog.value = null;
  };
  return html`<${Dialog} title=${t("line.history")} name="history">
    ${versions.value?.length === 0 && html`<p>${t("history.none")}</p>`}
    <ul class="history">${versions.value?.map((one) => html`<li>
      <span class="hint">${moment(one.time)}${one.user ? html`, <bdi>${one.user}</bdi>` : ""}, ${t(`by.${one.by ?? "file"}`)}, ${has(`label.${one.label}`) ? t(`label.${one.label}`) : one.label}</span>
      <bdi dir="auto" class="quoted">${one.text}</bdi> <${Button} label=${t("history.take")} kind="small" disabled=${one.text === store.line(id)?.text} onClick=${() => take(one.text)} />
    </li>`)}</ul>
  <//>`;
}

// ---- a server that wants a token
export function Login({ onDone }) {
  const token = useSignal("");
  const fault = useSignal("");
  const enter = async (event) => {
    event.preventDefault();
    try {
      await api.login(token.value.trim());
      needsToken.value = false;
      onDone();
    } catch (error) {
      fault.value = error.status === 401 ? t("login.wrong") : whole(error);
    }
  };
  return html`<main class="login" id="main"><form onSubmit=${enter}>
    <img src="/static/icon.svg" alt="" width="48" height="48" /><h1>Spike-HTR</h1><p>${t("login.text")}</p>
    <label class="labelled">${t("login.token")}<input class="field" type="password" required autofocus autocomplete="current-password" value=${token.value} onInput=${(event) => (token.value = event.target.value)} /></label>
    ${fault.value && html`<p class="problem" role="alert" dir="auto">${fault.value}</p>`}
    <button class="button primary" type="submit">${t("login.enter")}</button>
  </form></main>`;
}
