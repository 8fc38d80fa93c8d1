// The workbench's front end: opens the session, listens to the server, shows the view that the address names.

import { html, render, useEffect } from "./lib.js";
import * as api from "./api.js";
import { attempt, dialog, jobs, lastSeq, messages, needsToken, noteJob, noteJobs, route, say, sayError, session, settings, unsay } from "./state.js";
import { commandsOf, isTyping } from "./keys.js";
import { noteSteps, turnProject } from "./project-steps.js";
import { t } from "./i18n/index.js";
import { said } from "./i18n/said.js";
import { Button } from "./parts/basics.js";
import { Header } from "./parts/header.js";
import { Pages, loadPages, notePage, pages } from "./parts/pages.js";
import { Editor, current } from "./parts/editor.js";
import { Learn } from "./parts/learn.js";
import { DropHint, IiifDialog, ImportDialog, takeDrops } from "./parts/import.js";
import { ExportDialog, HistoryDialog, JobsDialog, KeysDialog, Login, SettingsDialog } from "./parts/dialogs.js";
import { FindDialog } from "./parts/find.js";
import { MergeDialog } from "./parts/merge.js";

const DIALOGS = {
  keys: KeysDialog, export: ExportDialog, settings: SettingsDialog, jobs: JobsDialog, history: HistoryDialog,
  find: FindDialog, merge: MergeDialog, import: ImportDialog, iiif: IiifDialog,
};

function Messages() {
  return html`<div class="messages" aria-live="polite">
    ${messages.value.map((message) => html`<div key=${message.id} class="message" data-kind=${message.kind} role=${message.kind === "error" ? "alert" : undefined}>
      <p dir="auto"><strong>${said(message.text)}</strong>${message.detail ? html`<br />${said(message.detail)}` : ""}</p>
      ${message.action && html`<${Button} label=${message.action.label} kind="small" onClick=${() => (message.action.run(), unsay(message.id))} />`}
      <${Button} icon="close" label=${t("close")} iconOnly kind="quiet small" onClick=${() => unsay(message.id)} />
    </div>`)}
  </div>`;
}

function View() {
  const { view, page, line } = route.value;
  if (view === "page" && Number.isFinite(page)) return html`<${Editor} key=${page} page=${page} line=${line} />`;
  if (view === "learn") return html`<${Learn} />`;
  return html`<${Pages} />`;
}

function OtherProject() {
  return html`<main class="pages" id="main"><div class="empty" role="alert"><h2>${t("project.other")}</h2><p>${t("project.otherText")}</p>
    <p class="empty-actions"><${Button} kind="primary" label=${t("project.open")} onClick=${() => location.assign("/")} /></p></div></main>`;
}

function App() {
  const shown = dialog.value;
  const Shown = shown && DIALOGS[shown.name];
  useEffect(() => {
    document.title = session.value ? `${session.value.project.name} – Spike-HTR` : "Spike-HTR";
  }, [session.value]);
  if (api.otherProject.value) return html`<${OtherProject} />`;
  if (needsToken.value) return html`<${Login} onDone=${start} /><${Messages} />`;
  if (!session.value) return html`<p class="nothing" aria-busy="true">${t("loading")}</p><${Messages} />`;
  return html`<a class="skip" href="#main">${t("skip")}</a><${Header} /><${View} />
    ${Shown && html`<${Shown} key=${shown.name} store=${current.value} ...${shown} />`}<${DropHint} /><${Messages} />`;
}

/** Keys that hold in every view; a page's own keys are the editor's, which undoes what was done to the page. */
function takeKeys() {
  addEventListener("keydown", (event) => {
    if (dialog.value || !session.value || event.defaultPrevented) return;
    const found = commandsOf(event);
    if (found.includes("help")) dialog.value = { name: "keys" };
    else if (found.includes("find")) dialog.value = { name: "find" };
    else if (route.value.view !== "page" && !isTyping(event.target) && found.includes("undo")) turnProject("undo");
    else if (route.value.view !== "page" && !isTyping(event.target) && found.includes("redo")) turnProject("redo");
    else return;
    event.preventDefault();
  });
}

async function listJobs() {
  const answer = await attempt(() => api.get("/api/jobs"));
  if (answer) noteJobs(answer.jobs);
}

function hear() {
  api.listen({
    hello: ({ seq, project }) => {
      if (!api.isOurs(project)) return;
      // The connection was away and something happened meanwhile: what is shown is fetched anew.
      if (lastSeq.value && seq > lastSeq.value) {
        current.value?.load();
        if (pages.value.length) loadPages();
      }
      lastSeq.value = seq;
      current.value?.retry();
      listJobs();
    },
    change: (change) => {
      const store = current.value;
      if (store && (change.page?.id ?? change.id) === store.id) store.apply(change);
      else lastSeq.value = Math.max(lastSeq.value, change.seq);
      if (change.page) notePage(change.page);
    },
    page: (summary) => {
      notePage(summary);
      if (current.value?.id === summary.id) current.value.summary.value = summary;
    },
    job: (job) => {
      const before = jobs.value.find((one) => one.id === job.id);
      noteJob(job);
      if (before?.state === job.state) return;
      if (job.state === "failed") say(job.error?.fault ?? t("jobState.failed"), { kind: "error", detail: job.error?.remedy });
      if (job.state === "done") {
        if (job.problems?.length) say(t("job.problems", { count: job.problems.length }), { action: { label: t("jobs"), run: () => (dialog.value = { name: "jobs" }) }, keep: true });
        if (route.value.view === "pages") loadPages();
      }
    },
    settings: (whole) => (settings.value = whole),
    project: (change) => {
      noteSteps(change);
      if (change.pages.length && route.value.view === "pages") loadPages();
    },
    stopping: () => say(t("stopping"), { keep: true }),
  });
}

let started = false;
async function start() {
  try {
    const opened = await api.openSession();
    settings.value = opened.settings;
    session.value = opened;
    lastSeq.value = opened.seq;
  } catch (error) {
    return sayError(error);
  }
  if (!started) {
    started = true;
    takeKeys(); // at once: the page is there, and somebody may type or drop files
    takeDrops();
    hear();
  }
  return listJobs();
}

addEventListener("unhandledrejection", (event) => sayError(event.reason));
render(html`<${App} />`, document.getElementById("app"));
start();
