// What all views share: session, settings, route, jobs, messages.

import { signal, computed, effect } from "./lib.js";
import * as api from "./api.js";

export const session = signal(null);
export const settings = signal({});
export const jobs = signal([]);
export const dialog = signal(null); // {name, ...} of the open dialog
export const messages = signal([]);
export const needsToken = signal(false);
export const lastSeq = signal(0);

// ---- route: "/" pages, "/p/learn", "/p/page/ID", "/p/page/ID/LINE"
const parse = () => {
  const parts = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  if (parts[0] !== "p") return { view: "pages" };
  if (parts[1] === "page") return { view: "page", page: Number(parts[2]), line: parts[3] ?? null };
  return { view: parts[1] ?? "pages" };
};
export const route = signal(parse());
addEventListener("popstate", () => (route.value = parse()));

export function go(path, replace = false) {
  if (path === location.pathname) return;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  route.value = parse();
}

/** Notes the line in the address without a new entry in the browser's history. */
export function noteLine(page, line) {
  const path = `/p/page/${page}${line ? `/${encodeURIComponent(line)}` : ""}`;
  if (path !== location.pathname) history.replaceState(null, "", path);
}

// ---- small things kept in this browser
export function stored(key, initial) {
  let value = initial;
  try {
    value = JSON.parse(localStorage.getItem(key)) ?? initial;
  } catch {
    // unreadable: the default
  }
  const kept = signal(value);
  effect(() => localStorage.setItem(key, JSON.stringify(kept.value)));
  return kept;
}
export const theme = stored("theme", "auto");
effect(() => {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

// ---- messages
let count = 0;
/** `text`: shown and read out; `action`: {label, run}. Errors stay until they are closed. */
export function say(text, { kind = "info", detail = "", action = null, keep = kind === "error" } = {}) {
  const id = ++count;
  messages.value = [...messages.value.slice(-3), { id, text, kind, detail, action }];
  if (!keep) setTimeout(() => unsay(id), 5000);
  return id;
}
export const unsay = (id) => (messages.value = messages.value.filter((message) => message.id !== id));

/** Says what went wrong, as the server words it. `offline` is shown by the header. */
export function sayError(error) {
  if (error instanceof api.ApiError) {
    if (error.code === "token") needsToken.value = true;
    else if (error.code !== "offline") say(error.fault, { kind: "error", detail: error.remedy });
  } else {
    console.error(error);
    say(String(error?.message ?? error), { kind: "error" });
  }
}
/** Runs what may fail; the failure is said, and undefined comes back. */
export async function attempt(run) {
  try {
    return await run();
  } catch (error) {
    sayError(error);
    return undefined;
  }
}

// ---- settings and jobs
export const threshold = computed(() => settings.value.threshold ?? 0.8);
export const direction = computed(() => settings.value.direction ?? "auto");

export async function setSettings(changes) {
  settings.value = { ...settings.value, ...changes };
  const whole = await attempt(() => api.patch("/api/settings", changes));
  if (whole) settings.value = whole;
}

// An answer that was on its way while an event came says less than that.
const newer = (job, known) => (known && known.as_of > job.as_of ? known : job);
const knownJob = (id) => jobs.value.find((one) => one.id === id);

export function noteJob(job) {
  jobs.value = knownJob(job.id) ? jobs.value.map((one) => (one.id === job.id ? newer(job, one) : one)) : [job, ...jobs.value];
}

export function noteJobs(all) {
  jobs.value = all.map((job) => newer(job, knownJob(job.id)));
}

export async function startJob(body) {
  const answer = await attempt(() => api.post("/api/jobs", body));
  if (answer) noteJob(answer.job);
  return answer?.job;
}

export const isRunning = (job) => job && (job.state === "queued" || job.state === "running");
export const running = computed(() => jobs.value.filter(isRunning));
