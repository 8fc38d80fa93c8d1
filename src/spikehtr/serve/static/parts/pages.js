// All pages of the project as a grid: state, expected error, and what can be done with the chosen ones.

import { html, signal, computed, useEffect, useRef, batch } from "../lib.js";
import * as api from "../api.js";
import { attempt, dialog, go, session, startJob, say } from "../state.js";
import { commandsOf } from "../keys.js";
import { noteSteps, projectSteps, stepHint, turnProject } from "../project-steps.js";
import { t, percent, number } from "../i18n/index.js";
import { said } from "../i18n/said.js";
import { Button, StateBadge } from "./basics.js";
import { chooseFiles, ImportStatus } from "./import.js";

const STATES = ["new", "found", "read", "started", "corrected"];
const REMOVED = "removed"; // shown like a state, but these are no pages of the project any more
const BATCH = 120;

export const pages = signal([]);
export const total = signal(0);
export const counts = signal(null);
const chosen = signal(new Set());
const filter = signal({ state: "", q: "", sort: "order" });
const loading = signal(false);
const everything = computed(() => STATES.reduce((sum, state) => sum + (counts.value?.[state] ?? 0), 0));
let round = 0;

export async function loadPages(more = false) {
  const mine = ++round;
  loading.value = true;
  const { state, q, sort } = filter.value;
  const query = new URLSearchParams({ offset: more ? pages.value.length : 0, limit: more ? BATCH : Math.max(BATCH, Math.min(pages.value.length, 1000)), q, sort, ...(state === REMOVED ? { removed: 1 } : { state }) });
  const answer = await attempt(() => api.get(`/api/pages?${query}`));
  if (mine !== round || waiting) return; // after the last move they are asked for again
  batch(() => {
    loading.value = false;
    if (!answer) return;
    pages.value = more ? [...pages.value, ...answer.pages] : answer.pages;
    total.value = answer.total;
    counts.value = answer.counts;
    noteSteps(answer);
  });
}

let timer = 0;
/** A page changed: its card at once, the counts soon after. */
export function notePage(summary) {
  pages.value = pages.value.map((page) => (page.id === summary.id ? summary : page));
  clearTimeout(timer);
  timer = setTimeout(() => loadPages(), 600);
}

function setFilter(change) {
  filter.value = { ...filter.value, ...change };
  loadPages();
}

/** What is chosen stays so among pages, and does not among removed ones. */
function showState(state) {
  if ((state === REMOVED) !== (filter.value.state === REMOVED)) chosen.value = new Set();
  setFilter({ state });
}

function toggle(id) {
  const now = new Set(chosen.value);
  now.has(id) ? now.delete(id) : now.add(id);
  chosen.value = now;
}

function Meter({ page }) {
  const share = page.lines ? page.lines_corrected / page.lines : 0;
  const read = page.lines ? page.lines_read / page.lines : 0;
  return html`<svg class="meter" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
    <rect width="100" height="4" class="rest" /><rect width=${read * 100} height="4" class="read" /><rect width=${share * 100} height="4" class="corrected" />
  </svg>`;
}

function Card({ page }) {
  const isChosen = chosen.value.has(page.id);
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(`/p/page/${page.id}`);
  };
  return html`<li class=${`card ${isChosen ? "chosen" : ""}`} data-page=${page.id}>
    <a class="card-link" href=${`/p/page/${page.id}`} onClick=${open}>
      <span class="card-image"><img src=${page.thumbnail_url} alt="" loading="lazy" decoding="async" /></span>
      <bdi class="card-name" dir="auto">${page.name}</bdi>
      <${Meter} page=${page} />
      <span class="card-facts">
        <${StateBadge} state=${page.state} />
        <span>${t("lines.count", { count: page.lines })}${page.lines_corrected > 0 && page.state !== "corrected" ? `, ${t("lines.corrected", { count: page.lines_corrected })}` : ""}</span>
      </span>
      <span class="card-facts">
        ${page.expected_error !== null && page.state !== "corrected" && page.lines_read > 0
          ? html`<span title=${t("expectedError.hint")}>${t("expectedError", { share: percent(page.expected_error) })}</span>`
          : html`<span> </span>`}
      </span>
      ${page.problem && html`<span class="problem" dir="auto">${said(page.problem)}</span>`}
    </a>
    <label class="card-choose"><input type="checkbox" checked=${isChosen} onChange=${() => toggle(page.id)} aria-label=${t("choose.page", { name: page.name })} /></label>
  </li>`;
}

/** Arrow keys among the cards, by where they are on the screen; Space chooses; others act on what is chosen. */
function moveAmongCards(event) {
  const card = document.activeElement.closest(".card");
  if (!card) return;
  const here = Number(card.dataset.page);
  const ids = chosen.value.size ? [...chosen.value] : [here];
  const removed = filter.value.state === REMOVED;
  const does = { pageEarlier: () => shiftPages(ids, -1, here), pageLater: () => shiftPages(ids, 1, here), removePages: () => !removed && removeChosen(ids) };
  const command = commandsOf(event).find((id) => id in does);
  if (command) {
    event.preventDefault();
    return void does[command]();
  }
  const links = [...event.currentTarget.querySelectorAll(".card-link")];
  const at = links.indexOf(document.activeElement);
  if (at < 0 || event.altKey || event.ctrlKey) return;
  if (event.key === " ") {
    event.preventDefault();
    return void toggle(here);
  }
  const columns = Math.max(links.findIndex((link) => link.offsetTop > links[0].offsetTop), 1);
  const row = links.some((link) => link.offsetTop > links[0].offsetTop) ? columns : links.length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  links[Math.min(Math.max(at + step, 0), links.length - 1)].focus();
}

async function setRemoved(ids, removed) {
  const change = await attempt(() => api.patch("/api/pages", { pages: ids, removed }));
  if (!change) return null;
  noteSteps(change);
  chosen.value = new Set();
  await loadPages();
  // The last of the removed pages came back: the others are shown again.
  if (filter.value.state === REMOVED && !counts.value?.removed) setFilter({ state: "" });
  return change;
}

async function removeChosen(ids) {
  const change = await setRemoved(ids, true);
  if (change) say(t("pages.removed", { count: ids.length }), { action: { label: t("undo"), run: () => (projectSteps.value.undo?.seq === change.seq ? turnProject("undo", change.seq) : setRemoved(ids, false)) }, keep: true });
}

const isInOrder = () => filter.value.sort === "order" && filter.value.state !== REMOVED;

let moves = Promise.resolve();
let waiting = 0;

/** One place earlier (-1) or later (1) among the pages that are shown; one move after the other, each where the one before has led. */
function shiftPages(ids, step, focus) {
  if (!isInOrder()) return void say(t("pages.byOrder"));
  waiting++;
  moves = moves.then(() => attempt(() => movePages(ids, step, focus))).finally(() => --waiting || loadPages());
}

async function movePages(ids, step, focus) {
  if (!isInOrder()) return;
  const moved = pages.value.slice();
  if (step > 0) moved.reverse();
  for (let at = 1; at < moved.length; at++) {
    if (ids.includes(moved[at].id) && !ids.includes(moved[at - 1].id)) [moved[at - 1], moved[at]] = [moved[at], moved[at - 1]];
  }
  if (step > 0) moved.reverse();
  const before = pages.value;
  const touched = moved.filter((page, at) => page.id !== before[at].id).map((page) => page.id);
  if (!touched.length) return;
  pages.value = moved;
  try {
    noteSteps(await api.put("/api/pages/order", { pages: touched }));
  } catch (error) {
    pages.value = before;
    throw error;
  }
  if (focus) document.querySelector(`.card[data-page="${focus}"] .card-link`)?.focus();
}

function Actions() {
  const ids = [...chosen.value];
  const some = ids.length > 0;
  if (filter.value.state === REMOVED) return html`<div class="actions" role="group" aria-label=${t("actions")}>
    <span class="chosen-count" aria-live="polite">${some ? t("chosen.count", { count: ids.length }) : ""}</span>
    ${some && html`<${Button} icon="undo" label=${t("pages.putBack")} onClick=${() => setRemoved(ids, false)} />`}
  </div>`;
  return html`<div class="actions" role="group" aria-label=${t("actions")}>
    <span class="chosen-count" aria-live="polite">${some ? t("chosen.count", { count: ids.length }) : ""}</span>
    <${Button} icon="machine" label=${some ? t("read.chosen") : t("read.all")} onClick=${() => startJob({ kind: "read", pages: some ? ids : "unread" })} />
    ${some && html`
      <${Button} label=${t("find.lines")} hint=${t("find.linesHint")} onClick=${() => startJob({ kind: "find", pages: ids })} />
      <${Button} icon="export" label=${t("export")} onClick=${() => (dialog.value = { name: "export", pages: ids })} />
      ${isInOrder() && html`<${Button} icon="left" label=${t("pages.earlier")} command="pageEarlier" iconOnly kind="quiet" onClick=${() => shiftPages(ids, -1)} />
        <${Button} icon="right" label=${t("pages.later")} command="pageLater" iconOnly kind="quiet" onClick=${() => shiftPages(ids, 1)} />`}
      <${Button} icon="trash" label=${t("pages.remove")} onClick=${() => removeChosen(ids)} kind="quiet" />
      <${Button} icon="close" label=${t("choose.none")} iconOnly kind="quiet" onClick=${() => (chosen.value = new Set())} />`}
  </div>`;
}

function Steps() {
  const button = (which) => html`<${Button} icon=${which} label=${t(which)} hint=${stepHint(which, projectSteps.value[which])} command=${which} iconOnly kind="quiet" disabled=${!projectSteps.value[which]} onClick=${() => turnProject(which)} />`;
  return html`${button("undo")}${button("redo")}`;
}

function Filters() {
  const now = filter.value;
  const tab = (state, label, count) => html`<button type="button" class="tab" aria-pressed=${String(now.state === state)} onClick=${() => showState(state)}>
    ${label} <span class="count">${number(count)}</span>
  </button>`;
  return html`<div class="filters">
    <div class="tabs" role="group" aria-label=${t("filter.state")}>
      ${tab("", t("filter.all"), everything.value)}
      ${[...STATES, REMOVED].filter((state) => counts.value?.[state] || now.state === state).map((state) => tab(state, t(`state.${state}`), counts.value?.[state] ?? 0))}
    </div>
    <input type="search" class="field" placeholder=${t("filter.name")} aria-label=${t("filter.name")} value=${now.q} onInput=${(event) => setFilter({ q: event.target.value })} />
    <select class="field" aria-label=${t("sort")} value=${now.sort} onChange=${(event) => setFilter({ sort: event.target.value })}>
      ${["order", "name", "error"].map((sort) => html`<option value=${sort}>${t(`sort.${sort}`)}</option>`)}
    </select>
  </div>`;
}

function More() {
  const element = useRef(null);
  useEffect(() => {
    const seen = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && !loading.value && loadPages(true));
    seen.observe(element.current);
    return () => seen.disconnect();
  }, []);
  return html`<div ref=${element} class="more">${t("loading")}</div>`;
}

function Empty() {
  return html`<div class="empty">
    <h2>${t("empty.title")}</h2>
    <p>${t("empty.text")}</p>
    <p class="empty-actions">
      <${Button} icon="import" kind="primary" label=${t("import.files")} onClick=${() => chooseFiles(false)} />
      <${Button} label=${t("import.folder")} onClick=${() => chooseFiles(true)} />
      ${session.value?.iiif && html`<${Button} label=${t("import.iiif")} onClick=${() => (dialog.value = { name: "iiif" })} />`}
    </p>
    <p class="hint">${t("empty.kinds")}</p>
  </div>`;
}

export function Pages() {
  useEffect(() => void loadPages(), []);
  const none = counts.value && everything.value === 0 && !counts.value.removed && !filter.value.q;
  return html`<main class="pages" id="main" tabindex="-1">
    <h1 class="visually-hidden">${t("pages")}</h1>
    <${ImportStatus} />
    ${none ? html`<${Empty} />` : html`
      <div class="pages-bar">
        <${Filters} />
        <span class="gap"></span>
        <${Actions} />
        <${Steps} />
        <${Button} icon="import" kind="primary" label=${t("import")} onClick=${() => (dialog.value = { name: "import" })} />
      </div>
      <ul class="grid" onKeyDown=${moveAmongCards} aria-label=${t("pages")} aria-busy=${String(loading.value)}>
        ${pages.value.map((page) => html`<${Card} key=${page.id} page=${page} />`)}
      </ul>
      ${counts.value && pages.value.length === 0 && html`<p class="nothing">${t("filter.nothing")}</p>`}
      ${pages.value.length < total.value && html`<${More} />`}`}
  </main>`;
}
