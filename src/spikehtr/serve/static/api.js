// Requests to the server. Every failure is an ApiError with the server's own code, fault and remedy.

import { signal } from "./lib.js";

export const CLIENT = crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");

let csrf = "";

/** Whether the server answers: false after a request that got no answer, true after the next that did. */
export const online = signal(true);

/** Whether another project is served at this address by now: nothing that was typed here may reach it. */
export const otherProject = signal(false);
let project = null;

export function isOurs(id) {
  project ??= id;
  if (id !== project) otherProject.value = true;
  return !otherProject.value;
}

export class ApiError extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    super(error.message ?? `HTTP ${status}`);
    this.status = status;
    this.code = error.code ?? (status === 0 ? "offline" : "internal");
    this.fault = error.fault ?? this.message;
    this.remedy = error.remedy ?? "";
    this.body = body ?? {};
  }
}

function headers(unsafe, extra = {}) {
  const all = { "X-Client": CLIENT, ...extra };
  if (unsafe) all["X-CSRF"] = csrf;
  const user = localStorage.getItem("user");
  if (user) all["X-User"] = encodeURIComponent(user);
  return all;
}

async function answered(response) {
  online.value = true;
  const isJson = (response.headers.get("Content-Type") ?? "").includes("json");
  const body = isJson ? await response.json().catch(() => null) : null;
  if (!response.ok) throw new ApiError(response.status, body);
  return body;
}

async function send(method, path, body) {
  const unsafe = method !== "GET";
  const init = { method, headers: headers(unsafe, body === undefined ? {} : { "Content-Type": "application/json" }) };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (unsafe && otherProject.value) throw new ApiError(0, null);
  let response;
  try {
    response = await fetch(path, init);
  } catch {
    online.value = false;
    throw new ApiError(0, null);
  }
  return answered(response);
}

/** A request that is sent once more with a fresh CSRF word where the server has started anew since. */
async function request(method, path, body) {
  try {
    return await send(method, path, body);
  } catch (error) {
    if (error.code !== "csrf") throw error;
    await openSession();
    return send(method, path, body);
  }
}

export const get = (path) => request("GET", path);
export const post = (path, body = {}) => request("POST", path, body);
export const patch = (path, body) => request("PATCH", path, body);
export const put = (path, body) => request("PUT", path, body);

export async function openSession() {
  const session = await send("GET", "/api/session");
  if (!isOurs(session.project.id)) throw new ApiError(0, null);
  csrf = session.csrf;
  return session;
}

export const login = (token) => send("POST", "/api/login", { token });

/** Sends files; `onProgress(share)` while they travel. Resolves to the server's job. */
export function upload(files, folder, onProgress) {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    if (folder) form.append("folder", folder);
    for (const { file, path } of files) form.append("files", file, path);
    const sending = new XMLHttpRequest();
    sending.open("POST", "/api/uploads");
    for (const [name, value] of Object.entries(headers(true))) sending.setRequestHeader(name, value);
    sending.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    sending.onerror = () => reject(new ApiError(0, null));
    sending.onload = () => {
      let body = null;
      try {
        body = JSON.parse(sending.responseText);
      } catch {
        // not JSON: the status says enough
      }
      sending.status < 300 && body ? resolve(body.job) : reject(new ApiError(sending.status, body));
    };
    sending.send(form);
  });
}

/**
 * Server-sent events, `handlers` by event name. A tab that is hidden for a minute lets go of its connection:
 * browsers allow six to one server, over all tabs. `onReturn` is called when it is back.
 */
export function listen(handlers) {
  let source = null;
  let timer = 0;
  const open = () => {
    if (source) return;
    source = new EventSource("/api/events");
    source.onopen = () => (online.value = true);
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
  };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden) return open();
    timer = setTimeout(() => {
      source?.close();
      source = null;
    }, 60_000);
  });
  open();
}
