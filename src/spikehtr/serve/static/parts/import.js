// Files into the project: dropped, chosen, or by the address of a IIIF manifest.

import { html, signal, useSignal } from "../lib.js";
import * as api from "../api.js";
import { attempt, dialog, noteJob, session, sayError, startJob, isRunning, jobs } from "../state.js";
import { duration, t, percent } from "../i18n/index.js";
import { said } from "../i18n/said.js";
import { Bar, Button, Dialog } from "./basics.js";

const MOST_BYTES = 200_000_000; // of one request: progress is told, and a broken connection costs little
const MOST_FILES = 50;
const TOLD_FROM = 0.05; // the share from which the time that is left can be told

/** {files, share, left: seconds or null} while files are on their way. */
export const sending = signal(null);

function parcels(files) {
  const out = [];
  let bytes = Infinity;
  for (const one of files) {
    if (bytes + one.file.size > MOST_BYTES || out[out.length - 1].length >= MOST_FILES) {
      out.push([]);
      bytes = 0;
    }
    out[out.length - 1].push(one);
    bytes += one.file.size;
  }
  return out;
}

/** `files`: [{file, path}]. A parcel that fails is told; the others go on. */
export async function send(files) {
  if (!files.length) return;
  const whole = files.reduce((sum, { file }) => sum + file.size, 0) || 1;
  let before = 0;
  const begun = performance.now();
  const note = (share) => {
    const left = share > TOLD_FROM ? ((performance.now() - begun) / 1000) * (1 / share - 1) : null;
    sending.value = { files: files.length, share, left };
  };
  for (const parcel of parcels(files)) {
    const bytes = parcel.reduce((sum, { file }) => sum + file.size, 0);
    try {
      note(before / whole);
      noteJob(await api.upload(parcel, null, (share) => note((before + share * bytes) / whole)));
    } catch (error) {
      sayError(error);
    }
    before += bytes;
  }
  sending.value = null;
}

export function chooseFiles(folder) {
  const input = document.createElement("input");
  input.type = "file";
  input.multiple = true;
  if (folder) input.webkitdirectory = true;
  else input.accept = "image/*,.tif,.tiff,.jp2,.pdf,.xml,.alto";
  input.addEventListener("change", () => send([...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }))));
  input.click();
}

/** All files of what was dropped, folders too, with their paths in it. */
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ file, path: file.name }));
  const files = [];
  const walk = async (entry) => {
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      return void files.push({ file, path: entry.fullPath.replace(/^\//, "") });
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const one of some) await walk(one);
    }
  };
  for (const entry of entries) await walk(entry);
  return files;
}

const over = signal(0);

/** Files can be dropped anywhere on the page. */
export function takeDrops() {
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragenter", (event) => hasFiles(event) && (over.value += 1));
  addEventListener("dragleave", (event) => hasFiles(event) && (over.value = Math.max(over.value - 1, 0)));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    over.value = 0;
    dropped(event.dataTransfer).then(send, sayError);
  });
}

export const DropHint = () => (over.value > 0 ? html`<div class="drop-hint" aria-hidden="true"><p>${t("import.drop")}</p></div>` : null);

const timeLeft = (seconds) => (seconds ? ` ${t("time.left", { time: duration(seconds) })}` : "");

/** What is on its way, and what the latest import could not use. */
export function ImportStatus() {
  const job = jobs.value.find((one) => one.kind === "import" && isRunning(one));
  if (sending.value) {
    return html`<div class="status" role="status"><span>${t("import.sending", { count: sending.value.files, share: percent(sending.value.share, 0) })}${timeLeft(sending.value.left)}</span>
      <${Bar} share=${sending.value.share} label=${t("import")} /></div>`;
  }
  if (!job) return null;
  return html`<div class="status" role="status"><span>${t("job.import")} ${job.total ? `${job.done} / ${job.total}` : ""} <bdi dir="auto">${said(job.message)}</bdi>${timeLeft(job.seconds_left)}</span>
    <${Bar} share=${job.total ? job.done / job.total : null} label=${t("import")} /></div>`;
}

export function ImportDialog() {
  const pick = (folder) => {
    dialog.value = null;
    chooseFiles(folder);
  };
  return html`<${Dialog} title=${t("import")} name="import">
    <p>${t("empty.kinds")}</p>
    <p>${t("import.dropHint")}</p>
    <div class="dialog-actions">
      <${Button} icon="import" kind="primary" label=${t("import.files")} onClick=${() => pick(false)} />
      <${Button} label=${t("import.folder")} onClick=${() => pick(true)} />
      ${session.value?.iiif && html`<${Button} label=${t("import.iiif")} onClick=${() => (dialog.value = { name: "iiif" })} />`}
      <${Button} label=${t("import.scan")} hint=${t("import.scanHint")} onClick=${() => (startJob({ kind: "scan" }), (dialog.value = null))} />
    </div>
  <//>`;
}

export function IiifDialog() {
  const url = useSignal("");
  const run = async (event) => {
    event.preventDefault();
    const answer = await attempt(() => api.post("/api/jobs", { kind: "import", url: url.value.trim() }));
    if (!answer) return;
    noteJob(answer.job);
    dialog.value = null;
  };
  return html`<${Dialog} title=${t("import.iiif")} name="iiif">
    <form onSubmit=${run}>
      <label class="labelled">${t("iiif.address")}<input class="field" type="url" required autofocus placeholder="https://…/manifest.json" value=${url.value} onInput=${(event) => (url.value = event.target.value)} /></label>
      <p class="hint">${t("iiif.hint")}</p>
      <div class="dialog-actions"><button class="button primary" type="submit">${t("import")}</button></div>
    </form>
  <//>`;
}
