// Learn from corrections: what there is to learn from, the run, and old against new.

import { html, signal, useEffect, useSignal } from "../lib.js";
import * as api from "../api.js";
import { attempt, go, isRunning, jobs, noteJob, say, setSettings, settings, startJob } from "../state.js";
import { duration, moment, number, percent, t } from "../i18n/index.js";
import { said, whole } from "../i18n/said.js";
import { difference } from "../text.js";
import { Bar, Button, Difference } from "./basics.js";
import { Curve } from "./curve.js";

const stock = signal(null);
const models = signal([]);

async function load() {
  await attempt(async () => (stock.value = await api.get("/api/finetune")));
  if (stock.value?.job) noteJob(stock.value.job);
  await attempt(async () => (models.value = (await api.get("/api/models")).models));
}

function Stock() {
  const now = stock.value;
  if (!now) return html`<p>${t("loading")}</p>`;
  const fact = (value, label) => html`<div class="figure"><strong>${number(value)}</strong><span>${label}</span></div>`;
  return html`<div class="figures">
      ${fact(now.lines, t("learn.lines"))}${fact(now.pages, t("learn.pages"))}${fact(now.training_lines, t("learn.training"))}${fact(now.heldout_lines, t("learn.heldout"))}
    </div>
    <p class="hint">${t("learn.heldoutHint")}</p>
    ${now.reason && html`<p class=${now.enough ? "hint" : "problem"} dir="auto">${said(now.reason)}</p>`}`;
}

function Start() {
  const minutes = useSignal(10);
  const from = useSignal(null);
  const name = useSignal("");
  const start = async (event) => {
    event.preventDefault();
    const body = { kind: "finetune", model: from.value ?? settings.value.model, minutes: Number(minutes.value) };
    if (name.value.trim()) body.name = name.value.trim();
    await startJob(body);
  };
  return html`<form class="learn-start" onSubmit=${start}>
    <label class="labelled">${t("learn.from")}<select class="field" value=${from.value ?? settings.value.model} onChange=${(event) => (from.value = event.target.value)}>
      ${models.value.map((model) => html`<option value=${model.name}>${model.name}</option>`)}</select></label>
    <label class="labelled">${t("learn.minutes")}<input class="field" type="number" min="0.1" max="1440" step="any" required value=${minutes.value} onInput=${(event) => (minutes.value = event.target.value)} /></label>
    <label class="labelled">${t("learn.name")}<input class="field" value=${name.value} placeholder=${t("learn.nameHint")} onInput=${(event) => (name.value = event.target.value)} /></label>
    <button class="button primary" type="submit" disabled=${!stock.value?.enough}>${t("learn.start")}</button>
  </form>`;
}

/** The curve begins with the old model, as soon as its error on the same lines is known. */
const withStart = (result) => (result?.comparison ? [{ step: 0, cer: result.comparison.old.cer }, ...(result.curve ?? [])] : result?.curve);

function Run({ job }) {
  const act = async (verb) => {
    const answer = await attempt(() => api.post(`/api/jobs/${job.id}/${verb}`));
    if (answer) noteJob(answer.job ?? answer);
  };
  return html`<section class="panel" aria-label=${t("job.finetune")}>
    <div class="job-head"><h2>${t("job.finetune")}</h2><span class="badge" data-state=${job.state}>${t(`jobState.${job.state}`)}</span><span class="gap"></span>
      ${isRunning(job) && job.can_cancel && html`<${Button} label=${t("cancel")} onClick=${() => act("cancel")} />`}
      ${job.can_resume && html`<${Button} label=${t("resume")} kind="primary" onClick=${() => act("resume")} />`}</div>
    ${isRunning(job) && html`<${Bar} share=${job.total ? job.done / job.total : null} label=${t("job.finetune")} />
      <p role="status">${job.total ? t("learn.steps", { done: job.done, total: job.total }) : ""} <bdi dir="auto">${said(job.message)}</bdi> ${job.seconds_left ? t("time.left", { time: duration(job.seconds_left) }) : ""}</p>`}
    ${job.error && html`<p class="problem" role="alert" dir="auto">${whole(job.error)}</p>`}
    <${Curve} curve=${withStart(job.result)} total=${job.total} />
    ${job.result?.comparison && html`<${Comparison} result=${job.result} />`}
  </section>`;
}

/** A difference of two rates: "2 % fewer errors" would be taken for a share of the errors. */
const inHundred = (rate) => number(100 * rate, 2);

function Comparison({ result }) {
  const { comparison, model, examples = [] } = result;
  const { old, new: fresh } = comparison;
  const use = async () => {
    await setSettings({ model });
    load();
    say(t("learn.used", { name: model }));
  };
  const reread = () => startJob({ kind: "read", pages: "all", again: true });
  const row = (label, key) => html`<tr><th scope="row">${label}</th><td>${percent(old[key])}</td><td>${percent(fresh[key])}</td></tr>`;
  return html`<div class="comparison">
    <h3>${t("compare.title", { count: comparison.lines })}</h3>
    <table class="scores"><thead><tr><td></td><th scope="col">${t("compare.old")}</th><th scope="col">${t("compare.new")}</th></tr></thead>
      <tbody>${row(t("compare.cer"), "cer")}${row(t("compare.wer"), "wer")}</tbody></table>
    <p class=${comparison.real ? "verdict real" : "verdict"}>
      ${t(comparison.difference < 0 ? "compare.better" : comparison.difference > 0 ? "compare.worse" : "compare.same", { count: inHundred(Math.abs(comparison.difference)) })}
      ${comparison.interval ? ` ${t("compare.interval", { low: inHundred(comparison.interval[0]), high: inHundred(comparison.interval[1]) })}` : ""}
      ${comparison.p_value !== null ? ` ${t("compare.p", { p: number(comparison.p_value, 3) })}` : ""}
      ${" "}${t(comparison.real ? "compare.real" : "compare.chance")}
    </p>
    <div class="dialog-actions">
      <${Button} label=${settings.value.model === model ? t("learn.inUse") : t("learn.use")} kind="primary" disabled=${settings.value.model === model} onClick=${use} />
      <${Button} label=${t("learn.reread")} hint=${t("learn.rereadHint")} disabled=${settings.value.model !== model} onClick=${reread} />
    </div>
    ${examples.length > 0 && html`<h3>${t("compare.examples")}</h3>
      <table class="examples"><thead><tr><th scope="col">${t("compare.reference")}</th><th scope="col">${t("compare.old")}</th><th scope="col">${t("compare.new")}</th></tr></thead>
      <tbody>${examples.map((one) => html`<tr>
        <td><a href=${`/p/page/${one.page}/${encodeURIComponent(one.line)}`} onClick=${(event) => (event.preventDefault(), go(`/p/page/${one.page}/${encodeURIComponent(one.line)}`))}><bdi dir="auto">${one.reference}</bdi></a></td>
        <td><${Difference} parts=${difference(one.reference, one.old)} show="in" /></td><td><${Difference} parts=${difference(one.reference, one.new)} show="in" /></td></tr>`)}</tbody></table>`}
  </div>`;
}

function Models() {
  return html`<section class="panel"><h2>${t("models")}</h2><table class="models"><thead><tr><th scope="col">${t("model.name")}</th><th scope="col">${t("model.from")}</th><th scope="col">${t("model.cer")}</th><th scope="col">${t("model.created")}</th><td></td></tr></thead>
    <tbody>${models.value.map((model) => html`<tr><th scope="row"><bdi>${model.name}</bdi></th><td>${model.from ?? ""}</td><td>${model.cer === null ? "" : percent(model.cer)}</td><td>${model.created ? moment(model.created) : ""}</td>
      <td>${model.name === settings.value.model ? html`<span class="badge" data-state="corrected">${t("learn.inUse")}</span>` : html`<${Button} label=${t("learn.use")} kind="small" onClick=${async () => (await setSettings({ model: model.name }), load())} />`}</td></tr>`)}</tbody></table></section>`;
}

export function Learn() {
  const job = jobs.value.find((one) => one.kind === "finetune");
  useEffect(() => void load(), [job?.state]);
  return html`<main class="learn" id="main" tabindex="-1">
    <h1>${t("learn.title")}</h1><p>${t("learn.text")}</p>
    <section class="panel"><${Stock} />${!isRunning(job) && html`<${Start} />`}</section>
    ${job && html`<${Run} job=${job} />`}
    <${Models} />
  </main>`;
}
