// One open page: its lines, what is being typed, and the one queue through which every change goes to the server.

import { signal, batch } from "./lib.js";
import * as api from "./api.js";
import { attempt, dialog, say, sayError, session, lastSeq } from "./state.js";
import { normalised } from "./text.js";
import { t } from "./i18n/index.js";

const AUTOSAVE = 1500; // ms after the last key
const RETRY = 3000;

export class PageStore {
  constructor(id) {
    this.id = id;
    this.summary = signal(null);
    this.regions = signal([]);
    this.order = signal([]); // line ids in reading order
    this.entries = new Map(); // of a line's id: {line: signal, draft: signal(null | {text, version})}
    this.active = signal(null);
    this.selection = signal(new Set());
    this.reach = null; // the other end of lines that were chosen in one go from the active one
    this.undo = signal(null);
    this.redo = signal(null);
    this.saving = signal("saved"); // saved | unsaved | saving | failed
    this.leastSure = signal(null); // the order of correcting: ids, least sure first; null: reading order
    this.failure = signal(null);
    this.seq = 0;
    this.orderVersion = 0;
    this.stamps = new Map();
    this.listeners = new Set();
    this.queue = Promise.resolve();
    this.timers = new Map();
    this.closed = false;
  }

  // ---- what is there
  line(id) {
    return this.entries.get(id)?.line.value ?? null;
  }

  /** The text as it stands on the screen. */
  text(id) {
    const entry = this.entries.get(id);
    return entry ? (entry.draft.value?.text ?? entry.line.value.text) : "";
  }

  lines() {
    return this.order.value.map((id) => this.line(id)).filter(Boolean);
  }

  get shown() {
    return this.leastSure.value ?? this.order.value;
  }

  neighbour(id, step) {
    const ids = this.shown;
    const at = ids.indexOf(id);
    return at < 0 ? (ids[0] ?? null) : (ids[at + step] ?? null);
  }

  async load() {
    try {
      this.take(await api.get(`/api/pages/${this.id}`));
    } catch (error) {
      this.failure.value = error;
      if (error.code === "token") sayError(error);
    }
  }

  take(page) {
    batch(() => {
      const kept = new Set();
      for (const line of page.lines) {
        kept.add(line.id);
        this.put(line, page.seq);
      }
      const gone = [...this.entries.keys()].filter((id) => !kept.has(id));
      for (const id of gone) this.drop(id);
      this.arrange(page);
      this.summary.value = page.page;
      this.tell({ lines: [...kept], deleted: gone });
    });
    this.restoreDrafts();
  }

  put(line, seq) {
    if (seq < (this.stamps.get(line.id) ?? 0)) return;
    this.stamps.set(line.id, seq);
    const entry = this.entries.get(line.id);
    if (entry) entry.line.value = line;
    else this.entries.set(line.id, { line: signal(line), draft: signal(null) });
  }

  drop(id) {
    this.entries.delete(id);
    clearTimeout(this.timers.get(id));
    if (this.active.value === id) this.active.value = null;
    if (this.selection.value.has(id)) this.select([...this.selection.value].filter((one) => one !== id));
    if (this.leastSure.value) this.leastSure.value = this.leastSure.value.filter((one) => one !== id);
  }

  arrange(change) {
    if (change.seq < this.seq) return;
    this.seq = change.seq;
    this.regions.value = change.regions;
    this.orderVersion = change.order_version;
    this.undo.value = change.undo;
    this.redo.value = change.redo;
    const order = change.regions.flatMap((region) => region.lines).filter((id) => this.entries.has(id));
    if (order.join("\n") !== this.order.value.join("\n")) this.order.value = order;
    if (this.leastSure.value) {
      const fresh = order.filter((id) => !this.leastSure.value.includes(id) && !this.line(id).corrected);
      if (fresh.length) this.leastSure.value = [...this.leastSure.value, ...fresh];
    }
  }

  /** Takes what changed, of this tab or of others; older news than what is shown is passed over, line by line. */
  apply(change) {
    lastSeq.value = Math.max(lastSeq.value, change.seq);
    if (change.lines === null) return this.load();
    batch(() => {
      const neighbour = this.active.value && change.deleted.includes(this.active.value) ? this.neighbour(this.active.value, 1) ?? this.neighbour(this.active.value, -1) : null;
      for (const line of change.lines) this.put(line, change.seq);
      for (const id of change.deleted) this.drop(id);
      this.arrange(change);
      if (change.page && change.seq >= this.seq) this.summary.value = change.page;
      if (neighbour && this.entries.has(neighbour)) this.active.value = neighbour;
      this.tell({ lines: change.lines.map((line) => line.id), deleted: change.deleted });
    });
    return undefined;
  }

  /** `listener({lines, deleted})` after each change. */
  watch(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(news) {
    for (const listener of this.listeners) listener(news);
  }

  // ---- choosing
  activate(id) {
    if (id === this.active.value) return;
    const before = this.active.value;
    batch(() => {
      this.active.value = id;
      this.selection.value = new Set(id ? [id] : []);
      this.reach = null;
    });
    if (before) this.save(before);
  }

  select(ids) {
    this.selection.value = new Set(ids);
  }

  /** Chooses one line more (or less) after or before those from the active one on; the line at which they end now. */
  extend(step) {
    const ids = this.shown;
    const from = ids.indexOf(this.active.value);
    if (from < 0) return null;
    const end = ids.indexOf(this.reach);
    const at = Math.min(Math.max((end < 0 ? from : end) + step, 0), ids.length - 1);
    this.reach = ids[at];
    this.select(ids.slice(Math.min(from, at), Math.max(from, at) + 1));
    return this.reach;
  }

  toggle(id) {
    this.reach = null;
    const chosen = new Set(this.selection.value);
    chosen.has(id) ? chosen.delete(id) : chosen.add(id);
    this.selection.value = chosen;
  }

  sortBySureness(on) {
    if (!on) return void (this.leastSure.value = null);
    const open = this.lines().filter((line) => !line.corrected);
    open.sort((a, b) => (a.confidence ?? 0) - (b.confidence ?? 0));
    this.leastSure.value = open.map((line) => line.id);
    return undefined;
  }

  // ---- typing
  type(id, text) {
    const entry = this.entries.get(id);
    if (!entry) return;
    const version = entry.draft.value?.version ?? entry.line.value.version;
    const held = entry.draft.value?.held ?? false;
    entry.draft.value = { ...entry.draft.value, text, version, held };
    this.keepDraft(id, entry.draft.value);
    if (this.saving.value !== "saving") this.saving.value = "unsaved";
    clearTimeout(this.timers.get(id));
    if (!held) this.timers.set(id, setTimeout(() => this.save(id), AUTOSAVE));
  }

  draftKey(id) {
    return `draft:${session.value.project.id}:${this.id}:${id}`;
  }

  /** What is typed outlives a crash of the browser too, from the first key on. */
  keepDraft(id, draft) {
    try {
      if (draft) localStorage.setItem(this.draftKey(id), JSON.stringify({ text: draft.text, version: draft.version }));
      else localStorage.removeItem(this.draftKey(id));
    } catch {
      // no room in the browser's store: the server has it within seconds
    }
  }

  restoreDrafts() {
    for (const [id, entry] of this.entries) {
      if (entry.draft.value) continue;
      let draft = null;
      try {
        draft = JSON.parse(localStorage.getItem(this.draftKey(id)));
      } catch {
        // not ours
      }
      if (!draft) continue;
      if (draft.text === entry.line.value.text) this.keepDraft(id, null);
      else {
        entry.draft.value = { text: draft.text, version: draft.version, held: false };
        this.save(id);
      }
    }
  }

  /** Sends what was typed in a line, if anything was. */
  save(id) {
    clearTimeout(this.timers.get(id));
    const entry = this.entries.get(id);
    if (!entry?.draft.value || entry.draft.value.held) return Promise.resolve(true);
    let sent = null;
    return this.edit(
      () => {
        const draft = entry.draft.value;
        if (!draft || draft.held || !this.entries.has(id)) return [];
        sent = draft.text;
        if (normalised(sent) === entry.line.value.text && draft.version === entry.line.value.version) {
          this.dropDraft(entry, id);
          return [];
        }
        return [{ op: "set_text", line: id, version: draft.version, text: normalised(sent) }];
      },
      { onDone: () => this.afterSave(entry, id, sent), onConflict: (conflict) => this.merge(id, conflict) },
    );
  }

  afterSave(entry, id, sent) {
    const draft = entry.draft.value;
    if (!draft) return;
    if (draft.text === sent) this.dropDraft(entry, id);
    else entry.draft.value = { ...draft, version: entry.line.value.version };
  }

  dropDraft(entry, id) {
    entry.draft.value = null;
    this.keepDraft(id, null);
  }

  discard(id) {
    const entry = this.entries.get(id);
    if (!entry) return;
    clearTimeout(this.timers.get(id));
    this.dropDraft(entry, id);
    this.settle();
  }

  /** The text of this line is right: what was typed, or what stands there. */
  accept(id) {
    const entry = this.entries.get(id);
    if (!entry) return Promise.resolve(false);
    if (entry.draft.value && normalised(entry.draft.value.text) !== entry.line.value.text) return this.save(id);
    if (entry.draft.value) this.discard(id);
    // A line that nobody read has no text that could be right.
    if (entry.line.value.corrected || !(entry.line.value.text || entry.line.value.reading)) return Promise.resolve(true);
    return this.edit(() => [{ op: "confirm", line: id, version: this.line(id)?.version }]);
  }

  /** Somebody else changed the line meanwhile: both are shown, and nothing is sent until it is settled. */
  merge(id, conflict) {
    const entry = this.entries.get(id);
    if (!entry) return;
    const mine = entry.draft.value?.text ?? conflict.mine ?? "";
    const { base, current } = conflict;
    if (entry.draft.value && current?.corrected && current.text === normalised(mine)) {
      // Both wrote the same, or what was sent arrived and its answer did not.
      this.discard(id);
      return void this.load();
    }
    if (entry.draft.value && current && current.text === base?.text) {
      // Only the shape was changed: the text goes over it.
      entry.draft.value = { ...entry.draft.value, version: current.version };
      return void this.save(id);
    }
    if (entry.draft.value) entry.draft.value = { ...entry.draft.value, held: true, conflict };
    dialog.value = { name: "merge", store: this, id, mine, base, current };
  }

  /** Shows the merge again that was put off. */
  reopenMerge(id) {
    const draft = this.entries.get(id)?.draft.value;
    if (draft?.held) this.merge(id, { ...draft.conflict, current: this.line(id) });
  }

  /** The end of a merge: this text, over that version. null: theirs stays. */
  settleMerge(id, text, version) {
    const entry = this.entries.get(id);
    dialog.value = null;
    if (!entry) return undefined;
    if (text === null) {
      this.discard(id);
      return this.load();
    }
    entry.draft.value = { text, version, held: false };
    return this.save(id);
  }

  // ---- sending: one after the other, each with the versions that stand when its turn comes
  edit(build, { onDone, onConflict } = {}) {
    return this.enqueue(async () => {
      const ops = build();
      if (!ops.length) return null;
      this.saving.value = "saving";
      try {
        const change = await api.post(`/api/pages/${this.id}/edits`, { ops });
        this.apply(change);
        onDone?.(change);
        return change;
      } catch (error) {
        if (error.code === "conflict" && error.body.conflicts) {
          const conflict = error.body.conflicts[0];
          if (onConflict) onConflict(conflict);
          else {
            say(t("conflict.shape"), { kind: "error", detail: t("conflict.shapeDetail") });
            await this.load();
          }
        } else if (error.code === "offline" || error.status >= 500) {
          this.saving.value = "failed";
          setTimeout(() => this.retry(), RETRY);
          if (error.code !== "offline") sayError(error);
          else if (!onDone) say(t("offline.notDone"), { kind: "error" }); // text is kept and sent later, shapes are not
        } else sayError(error);
        return null;
      }
    });
  }

  enqueue(run) {
    const result = this.queue.then(run);
    this.queue = result.then(
      () => this.settle(),
      (error) => {
        sayError(error);
        this.settle();
      },
    );
    return result;
  }

  settle() {
    if (this.saving.value === "failed") return;
    this.saving.value = this.hasDrafts ? "unsaved" : "saved";
  }

  get hasDrafts() {
    for (const entry of this.entries.values()) if (entry.draft.value) return true;
    return false;
  }

  retry() {
    if (this.saving.value !== "failed" || this.closed) return;
    this.saving.value = "unsaved";
    if (this.hasDrafts) this.flush();
    else this.settle();
  }

  /** Everything typed is on its way; resolves when the server has it. */
  flush() {
    for (const [id, entry] of this.entries) if (entry.draft.value && !entry.draft.value.held) this.save(id);
    return this.queue;
  }

  /** Takes the last step back ("undo") or brings it again ("redo"), also steps of before a reload. `only`: this step or none. */
  async step(which, only) {
    await this.flush();
    const expect = only ?? this[which].value?.seq;
    if (expect === undefined) return say(t(`${which}.nothing`));
    return this.enqueue(() =>
      attempt(async () => {
        try {
          const change = await api.post(`/api/pages/${this.id}/${which}`, { expect });
          this.apply(change);
          const first = change.lines?.map((line) => line.id).find((id) => this.entries.has(id));
          if (first) this.activate(first);
        } catch (error) {
          if (error.code !== "conflict") throw error;
          await this.load();
          say(t("conflict.undo"), { kind: "error" });
        }
      }),
    );
  }

  close() {
    this.closed = true;
    for (const timer of this.timers.values()) clearTimeout(timer);
    return this.flush();
  }
}
