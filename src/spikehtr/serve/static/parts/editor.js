// One page: image and text side by side, and every key that acts on them.

import { html, signal, effect, useEffect, useMemo } from "../lib.js";
import * as api from "../api.js";
import { attempt, dialog, go, noteLine, say, startJob, stored, threshold } from "../state.js";
import { commandsOf, isTyping } from "../keys.js";
import { PageStore } from "../page-store.js";
import { stepHint } from "../project-steps.js";
import { bounds } from "../geometry.js";
import { runs } from "../text.js";
import { join, machineText, nextDoubt, readAgain, regionFrom, remove, shift, splitAtCaret } from "../line-actions.js";
import { t, percent } from "../i18n/index.js";
import { said, whole } from "../i18n/said.js";
import { Button, StateBadge } from "./basics.js";
import { LineList } from "./line-list.js";
import { ViewerPane, nextLayer } from "./viewer-pane.js";

/** The page that is open, if one is: events of the server go to it. */
export const current = signal(null);
const split = stored("split", 0.56);
const leastSureMode = stored("leastSure", false);

// ---- what buttons and keys share
function makeActions(store, control) {
  const edit = (id, caret = null) => {
    control.caret = caret;
    if (store.active.value === id) {
      control.field?.focus();
      if (caret !== null) control.field?.setSelectionRange(caret, caret);
      return;
    }
    control.wantsFocus = true;
    store.activate(id);
  };
  const move = (step) => {
    const next = store.neighbour(store.active.value, step);
    if (!next) return false;
    isTyping(document.activeElement) || document.activeElement === document.body ? edit(next) : store.activate(next);
    return true;
  };
  const accept = (step) => {
    const id = store.active.value;
    if (!id) return;
    const saved = store.accept(id);
    if (!move(step)) saved.then(() => (leastSureMode.value ? nextUnsurePage(store) : say(t("page.end"), { action: { label: t("page.next"), run: () => turn(store, 1) } })));
  };
  /** Cuts the active line at the cursor of its text; one without text at a mark on the image. */
  const splitActive = async () => {
    const id = store.active.value;
    if (store.text(id).trim()) return splitAtCaret(store, id, control.field?.selectionStart ?? 0);
    control.host.focus();
    return control.tools.setTool("split");
  };
  const extend = (step) => {
    const id = store.extend(step);
    if (id) control.viewport.reveal(bounds(store.line(id).polygon));
  };
  return { edit, move, accept, splitActive, extend };
}

/** Ids of the pages around this one, in order: a few where its place is known, else all. */
async function around(store) {
  const place = store.summary.value.order;
  const ids = async (query) => (await api.get(`/api/pages?${query}`)).pages.map((page) => page.id);
  const few = await ids(`offset=${Math.max(place - 3, 0)}&limit=6`);
  const at = few.indexOf(store.id);
  return at > 0 && at < few.length - 1 ? few : ids("limit=1000");
}

/** To the page that lies before or after this one. */
async function turn(store, step) {
  const ids = await attempt(() => around(store));
  const next = ids?.[ids.indexOf(store.id) + step];
  if (!ids) return;
  if (next !== undefined) go(`/p/page/${next}`);
  else say(t(step > 0 ? "page.last" : "page.first"));
}

/** The page with the least sure line of the project. */
async function nextUnsurePage(store) {
  const answer = await attempt(() => api.get("/api/queue?limit=50"));
  const line = answer?.lines.find((one) => one.page !== store.id);
  if (line) go(`/p/page/${line.page}`);
  else if (answer) say(t("leastSure.allDone"));
}

function toDoubt(store, control, actions, step) {
  const id = store.active.value;
  const line = store.line(id);
  const marks = line ? runs(store.text(id), line.corrected ? null : line.reading, threshold.value) : [];
  const field = control.field;
  const from = field && document.activeElement === field ? field.selectionStart - (step < 0 ? 0 : field.selectionEnd > field.selectionStart ? 0 : 1) : step > 0 ? -1 : Infinity;
  const found = nextDoubt(marks, from, step);
  if (found && field) {
    field.focus();
    return field.setSelectionRange(found.start, found.start + found.text.length);
  }
  return actions.move(step);
}

function arrows(event, control, actions) {
  const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!by || event.target !== control.host || event.altKey || event.ctrlKey || event.metaKey) return false;
  if (event.shiftKey && by[1] && control.tools.tool.value === "select") {
    actions.extend(by[1]);
    return true;
  }
  const step = event.shiftKey ? 10 : 1;
  if (!control.tools.nudge(by[0] * step, by[1] * step)) control.viewport.moveBy(-by[0] * 40 * Math.sqrt(step), -by[1] * 40 * Math.sqrt(step));
  return true;
}

/** What each key of the table does here. One that returns false did nothing: the browser may have the key. */
function commands(store, control, actions, event) {
  const field = control.field;
  const { tools, viewport } = control;
  const inField = field && document.activeElement === field;
  const onImage = document.activeElement === control.host || document.activeElement === document.body;
  const id = store.active.value;
  const ifActive = (run) => () => (id ? run() : say(t("line.which")));
  return {
    accept: () => (inField ? actions.accept(1) : false),
    acceptBack: () => (inField ? actions.accept(-1) : false),
    nextLine: () => actions.move(1),
    previousLine: () => actions.move(-1),
    nextDoubt: () => toDoubt(store, control, actions, 1),
    previousDoubt: () => toDoubt(store, control, actions, -1),
    alternatives: () => (inField ? control.alternatives() : false),
    palette: () => document.querySelector(".palette button")?.focus(),
    machineText: ifActive(() => machineText(store, id)),
    leaveText: () => {
      if (inField) return control.closeAlternatives() || control.host.focus();
      return tools.escape();
    },
    // What is typed and not sent yet is taken back by the text field itself.
    undo: () => (inField && store.entries.get(id)?.draft.value ? false : store.step("undo")),
    redo: () => (inField && store.entries.get(id)?.draft.value ? false : store.step("redo")),
    leastSure: () => setLeastSure(store, !leastSureMode.value, actions),
    nextPage: () => turn(store, 1),
    previousPage: () => turn(store, -1),
    allPages: () => go("/"),
    splitLine: ifActive(() => actions.splitActive()),
    joinLines: () => join(store),
    lineUp: ifActive(() => shift(store, id, -1)),
    lineDown: ifActive(() => shift(store, id, 1)),
    deleteLine: ifActive(() => remove(store)),
    readAgain: ifActive(() => readAgain(store, id)),
    toolSelect: () => tools.setTool("select"),
    toolShape: () => tools.setTool("shape"),
    toolDraw: () => tools.setTool("draw"),
    toolOutline: () => tools.setTool("outline"),
    toolRegion: () => tools.setTool("region"),
    regionHere: ifActive(() => regionFrom(store, id)),
    toolSplit: () => tools.setTool("split"),
    joinPlain: () => join(store),
    deletePlain: () => (!onImage ? false : tools.point.value ? tools.removePoint(tools.point.value) : remove(store)),
    nextPlain: () => actions.move(1),
    previousPlain: () => actions.move(-1),
    nextPoint: () => tools.stepPoint(1),
    previousPoint: () => tools.stepPoint(-1),
    addPoint: () => tools.addPointHere(),
    typeText: () => {
      if (event.key === "Enter" && !onImage) return false;
      if (tools.points.length) return tools.finish();
      if (event.key === "Enter" && tools.tool.value === "split") return tools.cutHere();
      const target = id ?? store.shown[0];
      return target ? actions.edit(target) : false;
    },
    layers: nextLayer,
    zoomIn: () => viewport.zoomBy(1.4),
    zoomOut: () => viewport.zoomBy(1 / 1.4),
    fitPage: () => viewport.fit(),
    fitWidth: () => viewport.fitWidth(),
    zoomLine: ifActive(() => viewport.reveal(bounds(store.line(id).polygon), true)),
  };
}

function takeKeys(store, control, actions) {
  const press = (event) => {
    if (dialog.value || event.isComposing || !control.tools) return;
    if (arrows(event, control, actions)) return void event.preventDefault();
    const does = commands(store, control, actions, event);
    for (const id of commandsOf(event)) {
      if (!does[id] || does[id]() === false) continue;
      event.preventDefault();
      return;
    }
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}

function setLeastSure(store, on, actions) {
  leastSureMode.value = on;
  store.sortBySureness(on);
  const first = store.shown[0];
  if (on && first) actions.edit(first);
}

// ---- what is shown
function SaveState({ store }) {
  const state = store.saving.value;
  return html`<span class="save-state" data-state=${state} role="status">${t(`save.${state}`)}</span>`;
}

function EditorBar({ store, actions }) {
  const page = store.summary.value;
  return html`<div class="editor-bar">
    <${Button} icon="left" label=${t("page.previous")} command="previousPage" iconOnly kind="quiet" onClick=${() => turn(store, -1)} />
    <h1><bdi dir="auto">${page.name}</bdi></h1>
    <${Button} icon="right" label=${t("page.next")} command="nextPage" iconOnly kind="quiet" onClick=${() => turn(store, 1)} />
    <${StateBadge} state=${page.state} />
    <span class="facts">${t("lines.corrected.of", { count: page.lines_corrected, total: page.lines })}${page.expected_error !== null && page.state !== "corrected" ? html`<span class="fact-error">, ${t("expectedError", { share: percent(page.expected_error) })}</span>` : ""}</span>
    <span class="gap"></span>
    <${SaveState} store=${store} />
    <${Button} icon="undo" label=${t("undo")} hint=${stepHint("undo", store.undo.value)} command="undo" iconOnly kind="quiet" disabled=${!store.undo.value} onClick=${() => store.step("undo")} />
    <${Button} icon="redo" label=${t("redo")} hint=${stepHint("redo", store.redo.value)} command="redo" iconOnly kind="quiet" disabled=${!store.redo.value} onClick=${() => store.step("redo")} />
    <${Button} icon="sort" label=${t("leastSure")} command="leastSure" kind="quiet" pressed=${leastSureMode.value} onClick=${() => setLeastSure(store, !leastSureMode.value, actions)} />
    <${Button} icon="machine" label=${t(page.lines ? "read.page" : "read.first")} kind="quiet" onClick=${() => startJob({ kind: "read", pages: [store.id], again: page.lines > 0 })} />
    <${Button} icon="export" label=${t("export")} iconOnly kind="quiet" onClick=${() => (dialog.value = { name: "export", pages: [store.id] })} />
  </div>`;
}

/** What is wrong with the page, its files above all, until it was seen. */
function Problem({ store }) {
  const { problem } = store.summary.value;
  if (!problem) return null;
  const seen = async () => {
    const summary = await attempt(() => api.patch(`/api/pages/${store.id}`, { problem: null }));
    if (summary) store.summary.value = summary;
  };
  return html`<div class="page-problem" role="status"><p class="problem" dir="auto">${said(problem)}</p>
    <${Button} icon="close" label=${t("close")} iconOnly kind="quiet small" onClick=${seen} /></div>`;
}

function Splitter() {
  const drag = (event) => {
    if (event.buttons !== 1) return;
    const box = event.currentTarget.parentElement.getBoundingClientRect();
    const share = box.width > 900 ? (event.clientX - box.left) / box.width : (event.clientY - box.top) / box.height;
    split.value = Math.min(Math.max(share, 0.2), 0.8);
  };
  const keys = (event) => {
    const step = { ArrowLeft: -0.02, ArrowUp: -0.02, ArrowRight: 0.02, ArrowDown: 0.02 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    split.value = Math.min(Math.max(split.value + step, 0.2), 0.8);
  };
  return html`<div class="splitter" role="separator" tabindex="0" aria-label=${t("splitter")} aria-valuemin="20" aria-valuemax="80" aria-valuenow=${Math.round(split.value * 100)}
    onPointerDown=${(event) => event.currentTarget.setPointerCapture(event.pointerId)} onPointerMove=${drag} onKeyDown=${keys}></div>`;
}

function open(store, wanted) {
  store.load().then(() => {
    if (store.closed || store.failure.value) return;
    if (leastSureMode.value) store.sortBySureness(true);
    const first = wanted && store.entries.has(wanted) ? wanted : store.shown[0];
    if (first) store.activate(first);
  });
}

export function Editor({ page, line }) {
  const store = useMemo(() => new PageStore(page), [page]);
  const control = useMemo(() => ({ wantsFocus: true }), [store]);
  const actions = useMemo(() => makeActions(store, control), [store]);
  useEffect(() => {
    current.value = store;
    open(store, line);
    const endKeys = takeKeys(store, control, actions);
    const endNote = effect(() => store.summary.value && !store.closed && noteLine(page, store.active.value));
    const leaving = (event) => store.hasDrafts && store.saving.value !== "saved" && (store.flush(), event.preventDefault());
    addEventListener("beforeunload", leaving);
    return () => {
      endKeys();
      endNote();
      removeEventListener("beforeunload", leaving);
      if (current.value === store) current.value = null;
      store.close();
    };
  }, [store]);
  // A line that a search or a link asks for while its page is open.
  useEffect(() => {
    if (line && store.entries.has(line) && line !== store.active.peek()) actions.edit(line);
  }, [line]);
  if (store.failure.value) {
    return html`<main class="pages" id="main"><div class="empty"><h2>${t("page.failed")}</h2><p dir="auto">${whole(store.failure.value)}</p>
      <p class="empty-actions"><${Button} label=${t("pages.back")} onClick=${() => go("/")} /></p></div></main>`;
  }
  if (!store.summary.value) return html`<main class="editor" id="main" aria-busy="true"><p class="nothing">${t("loading")}</p></main>`;
  const pick = (id, point) => actions.edit(id, caretAt(store.line(id), store.text(id), point));
  const share = `${Math.round(split.value * 1000) / 10}%`;
  return html`<main class="editor" id="main">
    <${EditorBar} store=${store} actions=${actions} />
    <${Problem} store=${store} />
    <div class="panes" style=${{ "--split": share }}>
      <${ViewerPane} key=${store.id} store=${store} control=${control} onPick=${pick} />
      <${Splitter} />
      <${LineList} store=${store} control=${control} actions=${actions} />
    </div>
  </main>`;
}

/** The place in the text of the character that lies under a point of the image. */
function caretAt(line, text, [x]) {
  const characters = line?.reading?.characters;
  if (!characters || line.reading.text !== text) return null;
  let unit = 0;
  let best = { distance: Infinity, unit: 0 };
  for (const [character, , left, , right] of characters) {
    const distance = Math.abs((left + right) / 2 - x);
    if (distance < best.distance) best = { distance, unit };
    unit += character.length;
  }
  return best.unit;
}
