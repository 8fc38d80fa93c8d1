// What can be done to lines, from keys, buttons and the image alike.

import { t } from "./i18n/index.js";
import { say, startJob } from "./state.js";
import { codePoints } from "./text.js";
import { bounds, isInside, pointAt } from "./geometry.js";

/** The column of the page between two characters of a line: from the reading's boxes, else by the share of the text. */
export function columnAt(line, text, unit) {
  const at = codePoints(text, unit);
  const characters = line.reading?.characters;
  if (characters && line.reading.text === text && at > 0 && at < characters.length) {
    return Math.round((characters[at - 1][4] + characters[at][2]) / 2);
  }
  const path = line.baseline.length > 1 ? line.baseline : boxPath(line);
  return Math.round(pointAt(path, text.length ? unit / text.length : 0.5)[0]);
}

function boxPath(line) {
  const [left, top, right, bottom] = bounds(line.polygon);
  return [[left, (top + bottom) / 2], [right, (top + bottom) / 2]];
}

/** Cuts the line between two characters of its text. */
export async function splitAtCaret(store, id, unit) {
  await store.save(id);
  const line = store.line(id);
  if (!line) return;
  const text = line.text;
  const at = codePoints(text, Math.min(unit, text.length));
  if (at === 0 || at >= codePoints(text, text.length)) return void say(t("split.where"));
  const x = columnAt(line, text, unit);
  await store.edit(() => [{ op: "split", line: id, version: store.line(id).version, x, at }]);
}

/** Cuts the line at a column of the page. */
export async function splitAtColumn(store, id, x) {
  await store.save(id);
  await store.edit(() => (store.line(id) ? [{ op: "split", line: id, version: store.line(id).version, x: Math.round(x) }] : []));
}

/** Joins the chosen lines, or the active one with the next. */
export async function join(store) {
  let ids = store.order.value.filter((id) => store.selection.value.has(id));
  if (ids.length < 2) {
    const active = store.active.value;
    const next = store.order.value[store.order.value.indexOf(active) + 1];
    if (!active || !next) return void say(t("join.what"));
    ids = [active, next];
  }
  await Promise.all(ids.map((id) => store.save(id)));
  const change = await store.edit(() => [{ op: "join", lines: ids, versions: ids.map((id) => store.line(id)?.version) }]);
  if (change) store.activate(ids[0]);
}

export async function remove(store) {
  const ids = [...store.selection.value].filter((id) => store.line(id));
  if (!ids.length) return;
  await Promise.all(ids.map((id) => store.save(id)));
  const change = await store.edit(() => ids.map((id) => ({ op: "delete", line: id, version: store.line(id).version })));
  if (change) say(t("line.deleted", { count: ids.length }), { action: { label: t("undo"), run: () => store.step("undo", change.seq) } });
}

/** The line, or all that are chosen: one place up (-1) or down (1) in the reading order; over the end of a region into the next one. */
export async function shift(store, id, step) {
  const chosen = store.order.value.filter((one) => store.selection.value.has(one));
  await store.edit(() => shifted(store, chosen.length > 1 ? chosen : [id], step)); // from where they are when its turn comes
}

function shifted(store, moved, step) {
  const regions = store.regions.value;
  const edge = step < 0 ? moved[0] : moved.at(-1);
  const at = regions.findIndex((region) => region.lines.includes(edge));
  if (at < 0 || !moved.every((one) => store.line(one))) return [];
  const ids = regions[at].lines;
  const place = ids.indexOf(edge) + step;
  let region = regions[at];
  let before = null;
  if (place >= 0 && place < ids.length) before = (step > 0 ? ids[place + 1] : ids[place]) ?? null;
  else {
    region = regions[at + step];
    if (!region) return [];
    before = step > 0 ? (region.lines[0] ?? null) : null;
  }
  return moved.map((one) => ({ op: "place", line: one, version: store.line(one).version, region: region.id, before }));
}

/** To just before another line. */
export async function placeBefore(store, id, before) {
  const region = store.line(before)?.region;
  if (!region || id === before) return;
  await store.edit(() => [{ op: "place", line: id, version: store.line(id).version, region, before }]);
}

/** Reads a line anew, if no person wrote its text. */
export async function readAgain(store, id) {
  await store.save(id);
  if (store.line(id)?.corrected) return void say(t("read.corrected"));
  await startJob({ kind: "read", pages: [store.id], lines: { [store.id]: [id] }, again: true });
}

/** Back to what the machine read: the person's text goes (and undo brings it again). */
export async function machineText(store, id) {
  const entry = store.entries.get(id);
  if (!entry) return;
  if (entry.draft.value) store.discard(id);
  const line = entry.line.value;
  if (!line.reading) return void say(t("text.noReading"));
  if (line.corrected) await store.edit(() => [{ op: "unconfirm", line: id, version: store.line(id).version }]);
}

/** The first place after `from` (or before, step -1) where the machine was unsure; null: none. */
export function nextDoubt(marks, from, step) {
  const doubtful = marks.filter((run) => run.doubt > 0);
  if (step > 0) return doubtful.find((run) => run.start > from) ?? null;
  return doubtful.reverse().find((run) => run.start < from) ?? null;
}

/** A baseline drawn by hand becomes a line; the server draws its outline and reads it. */
export async function addLine(store, baseline) {
  const change = await store.edit(() => [{ op: "add_line", ref: "drawn", region: null, before: null, place: "auto", baseline }]);
  if (change) store.activate(change.created.drawn);
}

export async function reshape(store, id, shape) {
  await store.edit(() => (store.line(id) ? [{ op: "reshape", line: id, version: store.line(id).version, ...shape }] : []));
}

const middleOf = (line) => {
  const [left, top, right, bottom] = bounds(line.polygon.length ? line.polygon : line.baseline);
  return [(left + right) / 2, (top + bottom) / 2];
};

/** A region of its own for lines: after the one that the first of them stood in, or before it where that one began with it. */
function gathering(store, lines, polygon) {
  const regions = store.regions.value;
  const at = regions.findIndex((region) => region.lines.includes(lines[0]));
  const before = at < 0 ? null : regions[at].lines[0] === lines[0] ? regions[at].id : (regions[at + 1]?.id ?? null);
  const left = regions.filter((region) => region.lines.length && region.lines.every((id) => lines.includes(id)));
  const add = { op: "add_region", ref: "drawn", kind: "paragraph", lines, before, ...(polygon ? { polygon } : {}) };
  return [add, ...left.map((region) => ({ op: "delete_region", region: region.id, version: region.version, seq: store.seq }))];
}

/** A region drawn by hand takes in the lines whose middle lies in it. */
export async function addRegion(store, polygon) {
  await store.edit(() => gathering(store, store.order.value.filter((id) => isInside(middleOf(store.line(id)), polygon)), polygon));
}

/** A new region of the chosen lines; where one alone is chosen, of the lines of its region from it on. */
export async function regionFrom(store, id) {
  const chosen = () => store.order.value.filter((one) => store.selection.value.has(one));
  if (chosen().length > 1) {
    const change = await store.edit(() => gathering(store, chosen(), null));
    if (change) store.select([store.active.value]);
    return;
  }
  const linesHere = () => store.regions.value.find((region) => region.lines.includes(id))?.lines ?? [];
  if (linesHere().indexOf(id) < 1) return void say(t("region.begins"));
  await store.edit(() => gathering(store, linesHere().slice(linesHere().indexOf(id)), null));
}

/** One place up (-1) or down (1) among the regions. */
export async function shiftRegion(store, id, step) {
  const order = store.regions.value.map((region) => region.id);
  const at = order.indexOf(id);
  if (at + step < 0 || at + step >= order.length) return;
  [order[at], order[at + step]] = [order[at + step], order[at]];
  await store.edit(() => [{ op: "order_regions", regions: order, version: store.orderVersion }]);
}

export async function removeRegion(store, region) {
  await store.flush();
  const now = store.regions.value.find((one) => one.id === region.id);
  if (!now) return;
  const change = await store.edit(() => [{ op: "delete_region", region: now.id, version: now.version, seq: store.seq }]);
  if (change) say(t("region.deleted", { count: now.lines.length }), { action: { label: t("undo"), run: () => store.step("undo", change.seq) } });
}
