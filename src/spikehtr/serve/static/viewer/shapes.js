// The lines of a page as SVG over its image. A change of one line touches that line's two elements and no other.

import { pointText, bounds } from "../geometry.js";

const NS = "http://www.w3.org/2000/svg";
export const LAYERS = ["all", "baselines", "order", "none"];

export function make(name, attributes = {}, parent = null) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
}

export const stateOf = (line) => (line.corrected ? "corrected" : line.text || line.reading ? "read" : "found");

export class Shapes {
  constructor(host) {
    this.svg = make("svg", { class: "shapes", "aria-hidden": "true" });
    this.world = make("g", {}, this.svg);
    this.regions = make("g", { class: "regions" }, this.world);
    this.lines = make("g", { class: "lines" }, this.world);
    this.path = make("polyline", { class: "reading-order" }, this.world);
    this.marks = make("g", { class: "marks" }, this.world);
    this.parts = new Map(); // of a line's id: {group, outline, baseline}
    this.chosen = new Set();
    this.active = null;
    host.append(this.svg);
    this.setLayer("all");
  }

  /** `view`: {x, y, scale}, in the frame in which the picture moves too. */
  draw({ x, y, scale }) {
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  }

  setLayer(layer) {
    this.layer = layer;
    this.svg.dataset.layer = layer;
  }

  setLine(line, threshold) {
    let part = this.parts.get(line.id);
    if (!part) {
      const group = make("g", { "data-line": line.id });
      part = { group, outline: make("polygon", { class: "outline" }, group), baseline: make("polyline", { class: "baseline" }, group) };
      this.parts.set(line.id, part);
      this.lines.append(group);
    }
    const unsure = !line.corrected && line.confidence !== null && line.confidence < threshold;
    part.name = `line ${stateOf(line)}${unsure ? " unsure" : ""}${line.stale ? " stale" : ""}`;
    this.dress(line.id);
    this.setShape(line.id, line);
  }

  /** Only where it lies: while it is dragged. */
  setShape(id, { baseline, polygon }) {
    const part = this.parts.get(id);
    if (!part) return;
    if (polygon) part.outline.setAttribute("points", pointText(polygon));
    if (baseline) part.baseline.setAttribute("points", pointText(baseline));
  }

  dress(id) {
    const part = this.parts.get(id);
    if (!part) return;
    part.group.setAttribute("class", part.name + (this.chosen.has(id) ? " chosen" : "") + (this.active === id ? " active" : ""));
  }

  drop(id) {
    this.parts.get(id)?.group.remove();
    this.parts.delete(id);
  }

  clear() {
    this.lines.replaceChildren();
    this.parts.clear();
    this.marks.replaceChildren();
  }

  /** The active line lies on top, so that its handles and outline can be reached. */
  choose(active, selection) {
    const touched = new Set([...this.chosen, ...selection, this.active, active]);
    this.chosen = new Set(selection);
    this.active = active;
    for (const id of touched) if (id) this.dress(id);
    const part = this.parts.get(active);
    if (part && part.group !== this.lines.lastChild) this.lines.append(part.group);
  }

  setRegions(regions) {
    this.regions.replaceChildren(
      ...regions.map((region) => {
        const polygon = make("polygon", { class: "region", points: pointText(region.polygon) });
        return polygon;
      }),
    );
  }

  /** The way the eye takes: through the middles of the lines, in reading order. */
  setOrder(lines) {
    const middles = lines.map((line) => {
      const box = bounds(line.polygon.length ? line.polygon : line.baseline);
      return box ? [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2] : null;
    });
    this.path.setAttribute("points", pointText(middles.filter(Boolean)));
  }

  /** Handles of a line's points. A line of no length with round ends is a dot of the same size at every zoom. */
  setHandles(line, point) {
    this.marks.replaceChildren();
    if (!line) return;
    for (const kind of ["polygon", "baseline"]) {
      line[kind].forEach(([x, y], index) => {
        const chosen = point && point.kind === kind && point.index === index;
        const group = make("g", { class: `handle ${kind}${chosen ? " chosen" : ""}`, "data-kind": kind, "data-index": index }, this.marks);
        make("path", { class: "reach", d: `M${x} ${y}h0` }, group);
        make("path", { class: "dot", d: `M${x} ${y}h0` }, group);
      });
    }
  }

  /** What is being drawn: points, closed to an outline or not. */
  setDraft(points, closed) {
    this.marks.replaceChildren();
    if (!points?.length) return;
    make(closed ? "polygon" : "polyline", { class: "draft", points: pointText(points) }, this.marks);
    for (const [x, y] of points) make("path", { class: "dot", d: `M${x} ${y}h0` }, this.marks);
  }

  /** Where a line would be cut. */
  setCut(line, x) {
    this.marks.replaceChildren();
    const box = line && bounds(line.polygon.length ? line.polygon : line.baseline);
    if (!box || x <= box[0] || x >= box[2]) return false;
    make("path", { class: "cut", d: `M${x} ${box[1] - 6}V${box[3] + 6}` }, this.marks);
    return true;
  }
}
