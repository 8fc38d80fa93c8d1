// What pointer and keys do on the image: move about, choose, change shapes, draw, cut. Mouse, pen and touch alike.

import { bounds, movedWithin, nearestSegment, onPage, simplified } from "../geometry.js";
import { addLine, addRegion, reshape, splitAtColumn } from "../line-actions.js";
import { signal } from "../lib.js";
import { say } from "../state.js";
import { t } from "../i18n/index.js";

export const TOOLS = ["select", "shape", "draw", "outline", "region", "split"];
const CLOSED = ["outline", "region"];
const SLACK = 4; // screen pixels a click may wander
const NUDGE_PAUSE = 500;
const STEER = 4; // screen pixels of an arrow key while something is drawn

export class Tools {
  constructor(viewport, shapes, store, { onPick }) {
    Object.assign(this, { viewport, shapes, store, onPick });
    this.host = viewport.host;
    this.tool = signal("select");
    this.point = signal(null); // {kind, index} of the active line
    this.pointers = new Map();
    this.drag = null;
    this.points = []; // of what is being drawn
    this.cursor = null; // where arrow keys would set the next of them
    this.cut = null; // the column at which arrow keys set the mark to cut the active line
    this.pending = null; // a shape that keys moved and that is not sent yet
    this.listen();
  }

  listen() {
    const on = (name, handler, options) => this.host.addEventListener(name, handler.bind(this), options);
    on("pointerdown", this.down);
    on("pointermove", this.move);
    on("pointerup", this.up);
    on("pointercancel", this.cancelPointer);
    on("dblclick", this.double);
    on("wheel", this.wheel, { passive: false });
  }

  setTool(tool) {
    this.finishNudge();
    this.points = [];
    this.cursor = null;
    this.cut = null;
    this.tool.value = tool;
    this.host.dataset.tool = tool;
    this.point.value = null;
    this.refresh();
    if (tool === "outline" && !this.store.active.value) say(t("outline.which"));
  }

  /** Marks of the tool, drawn anew: after the active line or its shape changed. */
  refresh() {
    const line = this.pending?.line ?? this.store.line(this.store.active.value);
    if (this.tool.value === "shape") this.shapes.setHandles(line, this.point.value);
    else if (this.points.length || this.cursor) this.shapes.setDraft(this.withCursor, this.isClosed);
    else if (this.tool.value === "split" && line) this.shapes.setCut(line, this.cutColumn(line));
    else this.shapes.setHandles(null);
  }

  get isDrawing() {
    return this.tool.value === "draw" || this.isClosed;
  }

  /** Whether what is drawn is an outline. */
  get isClosed() {
    return CLOSED.includes(this.tool.value);
  }

  get withCursor() {
    return this.cursor ? [...this.points, this.cursor] : this.points;
  }

  place(event) {
    return this.viewport.toImage(event.clientX, event.clientY);
  }

  lineUnder(event) {
    return event.target.closest?.("[data-line]")?.dataset.line ?? null;
  }

  // ---- pointer
  down(event) {
    this.pointers.set(event.pointerId, event);
    this.host.setPointerCapture(event.pointerId);
    this.cursor = null;
    if (this.pointers.size === 2) return void (this.drag = this.pinch());
    if (this.pointers.size > 2) return;
    const drag = { event, from: this.place(event), kind: "pan", line: this.lineUnder(event), moved: false, at: [event.clientX, event.clientY] };
    this.drag = drag;
    if (event.button === 1) return;
    if (this.tool.value === "shape") this.grab(event, drag);
    else if (this.isDrawing) drag.kind = "freehand";
  }

  /** A handle, or the whole of the active line. */
  grab(event, drag) {
    const handle = event.target.closest?.(".handle");
    const line = this.store.line(this.store.active.value);
    if (!line) return;
    if (handle) {
      this.finishNudge();
      this.point.value = { kind: handle.dataset.kind, index: Number(handle.dataset.index) };
      Object.assign(drag, { kind: "point", shape: line, point: this.point.value });
      this.refresh();
    } else if (drag.line === line.id) Object.assign(drag, { kind: "line", shape: line });
  }

  move(event) {
    if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, event);
    const drag = this.drag;
    if (!drag) return void this.hover(event);
    if (drag.kind === "pinch") return void this.spread(drag);
    if (!drag.moved && Math.hypot(event.clientX - drag.event.clientX, event.clientY - drag.event.clientY) < SLACK) return;
    drag.moved = true;
    if (drag.kind === "pan") {
      this.viewport.moveBy(event.clientX - drag.at[0], event.clientY - drag.at[1]);
      drag.at = [event.clientX, event.clientY];
      this.host.dataset.panning = "1";
    } else if (drag.kind === "freehand") {
      drag.path ??= [drag.from];
      drag.path.push(this.place(event));
      this.shapes.setDraft([...this.points, ...drag.path], this.isClosed);
    } else this.reform(drag, this.place(event));
  }

  reform(drag, [x, y]) {
    const { width, height } = this.viewport;
    if (drag.kind === "point") drag.result = withPoint(drag.shape, drag.point, onPage([x, y], width, height));
    else drag.result = this.movedLine(drag.shape, x - drag.from[0], y - drag.from[1]);
    this.shapes.setShape(drag.shape.id, drag.result);
    this.shapes.setHandles({ ...drag.shape, ...drag.result }, drag.point);
  }

  movedLine(line, dx, dy) {
    const { width, height } = this.viewport;
    const both = movedWithin([...line.baseline, ...line.polygon], dx, dy, width, height);
    return { baseline: both.slice(0, line.baseline.length), polygon: both.slice(line.baseline.length) };
  }

  hover(event) {
    if (this.tool.value === "split") {
      const id = this.lineUnder(event);
      this.shapes.setCut(id ? this.store.line(id) : null, this.place(event)[0]);
    } else if (this.isDrawing && this.points.length) {
      this.shapes.setDraft([...this.points, this.place(event)], this.isClosed);
    }
  }

  up(event) {
    this.pointers.delete(event.pointerId);
    const drag = this.drag;
    delete this.host.dataset.panning;
    if (!drag) return;
    if (drag.kind === "pinch") {
      if (this.pointers.size === 0) this.drag = null;
      return;
    }
    this.drag = null;
    if (!drag.moved) return void this.click(event, drag);
    if (drag.kind === "freehand") this.drawn(drag.path);
    else if (drag.result) this.send(drag.shape.id, drag.result);
  }

  cancelPointer(event) {
    this.pointers.delete(event.pointerId);
    const drag = this.drag;
    this.drag = null;
    if (drag?.shape) this.shapes.setShape(drag.shape.id, drag.shape);
    this.refresh();
  }

  click(event, drag) {
    if (event.button === 1) return;
    const point = onPage(this.place(event), this.viewport.width, this.viewport.height);
    if (this.isDrawing) {
      this.points.push(point);
      this.refresh();
    } else if (this.tool.value === "split") {
      if (drag.line) splitAtColumn(this.store, drag.line, point[0]);
    } else if (drag.kind !== "point") this.pick(event, drag.line, point);
  }

  pick(event, id, point) {
    if (!id) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey) return void this.store.toggle(id);
    this.finishNudge();
    this.point.value = null;
    this.onPick(id, point);
    this.refresh();
  }

  double(event) {
    if (this.isDrawing) {
      // The second click of the two set the last point twice.
      this.points.pop();
      return void this.finish();
    }
    const line = this.store.line(this.store.active.value);
    if (this.tool.value !== "shape" || !line) return;
    const handle = document.elementFromPoint(event.clientX, event.clientY)?.closest(".handle"); // the event's own target is the host
    if (handle) return void this.removePoint({ kind: handle.dataset.kind, index: Number(handle.dataset.index) });
    this.addPointNear(line, this.place(event));
  }

  wheel(event) {
    event.preventDefault();
    const box = this.host.getBoundingClientRect();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey) return void this.viewport.moveBy(-(event.deltaX || event.deltaY) * unit, 0);
    this.viewport.zoomBy(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - box.left, event.clientY - box.top);
  }

  // ---- two fingers
  pinch() {
    const [a, b] = [...this.pointers.values()];
    return { kind: "pinch", apart: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY), middle: [(a.clientX + b.clientX) / 2, (a.clientY + b.clientY) / 2] };
  }

  spread(drag) {
    if (this.pointers.size < 2) return;
    const now = this.pinch();
    const box = this.host.getBoundingClientRect();
    this.viewport.moveBy(now.middle[0] - drag.middle[0], now.middle[1] - drag.middle[1]);
    this.viewport.zoomBy(now.apart / Math.max(drag.apart, 1), now.middle[0] - box.left, now.middle[1] - box.top);
    Object.assign(drag, now);
  }

  // ---- drawing
  drawn(path) {
    const tolerance = Math.max(2 / this.viewport.view.scale, 1);
    const { width, height } = this.viewport;
    this.points.push(...simplified(path, tolerance).map((point) => onPage(point, width, height)));
    this.finish();
  }

  finish() {
    const points = this.withCursor;
    this.points = [];
    this.cursor = null;
    this.refresh();
    if (this.tool.value === "draw" && points.length >= 2) {
      // A baseline runs from left to right.
      addLine(this.store, points[0][0] <= points[points.length - 1][0] ? points : points.reverse());
    }
    if (this.tool.value === "region" && points.length >= 3) addRegion(this.store, points);
    const id = this.store.active.value;
    if (this.tool.value === "outline" && points.length >= 3 && id) this.send(id, { polygon: points });
  }

  send(id, shape) {
    reshape(this.store, id, shape).then(() => {
      // Where the server refused, the line goes back to where it was.
      const line = this.store.line(id);
      if (line) this.shapes.setShape(id, line);
      this.refresh();
    });
  }

  // ---- points
  addPointNear(line, place) {
    const onBase = line.baseline.length > 1 ? nearestSegment(place, line.baseline) : null;
    const onOutline = line.polygon.length > 2 ? nearestSegment(place, line.polygon, true) : null;
    const kind = onBase && (!onOutline || onBase.distance <= onOutline.distance) ? "baseline" : "polygon";
    const near = kind === "baseline" ? onBase : onOutline;
    if (!near) return;
    const points = [...line[kind]];
    points.splice(near.index + 1, 0, onPage(near.point, this.viewport.width, this.viewport.height));
    this.point.value = { kind, index: near.index + 1 };
    this.send(line.id, { [kind]: points });
  }

  removePoint(point) {
    const line = this.store.line(this.store.active.value);
    if (!line || line[point.kind].length <= (point.kind === "baseline" ? 2 : 3)) return false;
    this.point.value = null;
    this.send(line.id, { [point.kind]: line[point.kind].filter((_, index) => index !== point.index) });
    return true;
  }

  /** The next (1) or previous (-1) point, first along the baseline, then around the outline. */
  stepPoint(step) {
    const line = this.store.line(this.store.active.value);
    if (!line) return;
    if (this.tool.value !== "shape") this.setTool("shape");
    const all = ["baseline", "polygon"].flatMap((kind) => line[kind].map((_, index) => ({ kind, index })));
    const now = all.findIndex((one) => one.kind === this.point.value?.kind && one.index === this.point.value?.index);
    this.point.value = all[(now + step + all.length + (now < 0 && step < 0 ? 1 : 0)) % all.length];
    this.refresh();
    const [x, y] = line[this.point.value.kind][this.point.value.index];
    this.viewport.reveal([x - 20, y - 20, x + 20, y + 20]);
  }

  /** While something is drawn, arrow keys move the place of its next point. */
  steer(dx, dy) {
    const { scale, x, y } = this.viewport.view;
    const { width, height } = this.viewport.size;
    const [left, top] = this.cursor ?? this.points.at(-1) ?? [(width / 2 - x) / scale, (height / 2 - y) / scale];
    const [px, py] = onPage([left + (dx * STEER) / scale, top + (dy * STEER) / scale], this.viewport.width, this.viewport.height);
    this.cursor = [px, py];
    this.viewport.reveal([px - 20, py - 20, px + 20, py + 20]);
    this.refresh();
    return true;
  }

  /** Where Enter would cut the line: its middle, or where arrow keys moved the mark. */
  cutColumn(line) {
    const [left, , right] = bounds(line.polygon.length ? line.polygon : line.baseline);
    return Math.min(Math.max(this.cut ?? (left + right) / 2, left + 1), right - 1);
  }

  moveCut(dx) {
    const line = this.store.line(this.store.active.value);
    if (!line) return say(t("line.which"));
    const [, top, , bottom] = bounds(line.polygon.length ? line.polygon : line.baseline);
    this.cut = this.cutColumn(line) + (dx * STEER) / this.viewport.view.scale;
    this.cut = this.cutColumn(line);
    this.viewport.reveal([this.cut - 20, top, this.cut + 20, bottom]);
    return this.refresh();
  }

  cutHere() {
    const line = this.store.line(this.store.active.value);
    if (!line) return say(t("line.which"));
    const column = this.cutColumn(line);
    this.cut = null;
    return splitAtColumn(this.store, line.id, column);
  }

  addPointHere() {
    if (this.isDrawing) {
      if (!this.cursor) this.steer(0, 0);
      this.points.push(this.cursor);
      return void this.refresh();
    }
    const line = this.store.line(this.store.active.value);
    const point = this.point.value;
    if (!line || !point) return;
    const points = line[point.kind];
    const a = points[point.index];
    const b = points[(point.index + 1) % points.length];
    this.addPointNear({ ...line, [point.kind === "baseline" ? "polygon" : "baseline"]: [] }, [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]);
  }

  /** Arrow keys: the chosen point, else the whole line. Sent when the keys rest. */
  nudge(dx, dy) {
    if (this.isDrawing) return this.steer(dx, dy);
    if (this.tool.value === "split") {
      this.moveCut(dx);
      return true;
    }
    const line = this.pending?.line ?? this.store.line(this.store.active.value);
    if (!line || this.tool.value !== "shape") return false;
    const { width, height } = this.viewport;
    const point = this.point.value;
    const shape = point
      ? withPoint(line, point, onPage([line[point.kind][point.index][0] + dx, line[point.kind][point.index][1] + dy], width, height))
      : this.movedLine(line, dx, dy);
    this.pending = { line: { ...line, ...shape }, shape: { ...this.pending?.shape, ...shape } };
    this.shapes.setShape(line.id, this.pending.line);
    this.refresh();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.finishNudge(), NUDGE_PAUSE);
    return true;
  }

  finishNudge() {
    clearTimeout(this.timer);
    const pending = this.pending;
    this.pending = null;
    if (pending) this.send(pending.line.id, pending.shape);
  }

  /** Esc: what is being drawn goes, then the tool, then the choice of several lines; false where there was nothing to leave. */
  escape() {
    if (this.points.length || this.cursor) {
      this.points = [];
      this.cursor = null;
      this.refresh();
      return true;
    }
    if (this.tool.value === "select") {
      if (this.store.selection.value.size < 2) return false;
      this.store.reach = null;
      this.store.select([this.store.active.value].filter(Boolean));
      return true;
    }
    this.setTool("select");
    return true;
  }
}

function withPoint(line, { kind, index }, place) {
  return { [kind]: line[kind].map((point, i) => (i === index ? place : point)) };
}
