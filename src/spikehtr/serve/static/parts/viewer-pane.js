// The image of the page with its lines, and the tools on it.

import { html, useEffect, useRef, effect, untracked, useSignal } from "../lib.js";
import { Viewport } from "../viewer/viewport.js";
import { Shapes, LAYERS } from "../viewer/shapes.js";
import { Tools, TOOLS } from "../viewer/tools.js";
import { bounds } from "../geometry.js";
import { join, remove } from "../line-actions.js";
import { threshold, stored } from "../state.js";
import { t, percent } from "../i18n/index.js";
import { Button } from "./basics.js";

const layer = stored("layer", "all");

function levels(page) {
  return Array.from({ length: page.levels }, (_, level) => ({
    url: `${page.image_url}&level=${level}`,
    width: Math.max(Math.round(page.width / 2 ** level), 1),
  }));
}

/** Connects image, shapes and tools with the store; returns what undoes that. */
function connect(host, store, control, onPick, zoom) {
  const shapes = new Shapes(host);
  const viewport = new Viewport(host, (view) => {
    shapes.draw(view);
    zoom.value = view.scale;
  });
  const tools = new Tools(viewport, shapes, store, { onPick });
  Object.assign(control, { viewport, shapes, tools });
  const page = store.summary.peek();
  viewport.open(page.width, page.height, levels(page), t("viewer.image", { name: page.name }));
  const drawLines = ({ lines, deleted }) => {
    for (const id of deleted) shapes.drop(id);
    for (const id of lines) {
      const line = store.line(id);
      if (line) shapes.setLine(line, threshold.peek());
    }
    shapes.choose(store.active.peek(), store.selection.peek());
    tools.refresh();
  };
  const endings = [
    store.watch(drawLines),
    effect(() => shapes.choose(store.active.value, store.selection.value)),
    effect(() => shapes.setRegions(store.regions.value)),
    effect(() => shapes.setLayer(layer.value)),
    effect(() => layer.value === "order" && shapes.setOrder(store.order.value.map((id) => store.line(id)).filter(Boolean))),
    // Only when another line becomes active, not when its shape, the tool or the chosen point changes.
    effect(() => {
      const id = store.active.value;
      untracked(() => {
        const line = store.line(id);
        if (line) viewport.reveal(bounds(line.polygon.length ? line.polygon : line.baseline));
        tools.point.value = null;
        tools.cut = null;
        tools.refresh();
      });
    }),
  ];
  drawLines({ lines: store.order.peek(), deleted: [] });
  return () => {
    for (const end of endings) end();
    tools.finishNudge();
    viewport.close();
    shapes.svg.remove();
  };
}

const ICONS = { select: "select", shape: "shape", draw: "draw", outline: "outline", region: "region", split: "split" };
const COMMANDS = { select: "toolSelect", shape: "toolShape", draw: "toolDraw", outline: "toolOutline", region: "toolRegion", split: "toolSplit" };

export const nextLayer = () => (layer.value = LAYERS[(LAYERS.indexOf(layer.value) + 1) % LAYERS.length]);

function ToolBar({ store, control }) {
  const tool = control.tools?.tool.value ?? "select";
  return html`<div class="toolbar" role="toolbar" aria-label=${t("tools")}>
    ${TOOLS.map((name) => html`<${Button} key=${name} icon=${ICONS[name]} label=${t(`tool.${name}`)} command=${COMMANDS[name]} iconOnly kind="quiet" pressed=${tool === name} onClick=${() => control.tools.setTool(name)} />`)}
    <span class="divider"></span>
    <${Button} icon="join" label=${t("tool.join")} command="joinPlain" iconOnly kind="quiet" onClick=${() => join(store)} />
    <${Button} icon="trash" label=${t("tool.delete")} command="deletePlain" iconOnly kind="quiet" onClick=${() => remove(store)} />
    <span class="divider"></span>
    <${Button} icon="layers" label=${t("tool.layers", { layer: t(`layer.${layer.value}`) })} command="layers" iconOnly kind="quiet" onClick=${nextLayer} />
  </div>`;
}

function ZoomBar({ control, zoom }) {
  return html`<div class="zoombar" role="toolbar" aria-label=${t("zoom")}>
    <${Button} icon="minus" label=${t("zoom.out")} command="zoomOut" iconOnly kind="quiet" onClick=${() => control.viewport.zoomBy(1 / 1.4)} />
    <output class="zoom-share">${percent(zoom.value, 0)}</output>
    <${Button} icon="plus" label=${t("zoom.in")} command="zoomIn" iconOnly kind="quiet" onClick=${() => control.viewport.zoomBy(1.4)} />
    <${Button} icon="fit" label=${t("zoom.page")} command="fitPage" iconOnly kind="quiet" onClick=${() => control.viewport.fit()} />
  </div>`;
}

/** `control` is filled with {viewport, shapes, tools, host}: the editor's keys act through it. */
export function ViewerPane({ store, control, onPick }) {
  const host = useRef(null);
  const zoom = useSignal(1);
  const ready = useSignal(false);
  useEffect(() => {
    control.host = host.current;
    const end = connect(host.current, store, control, onPick, zoom);
    ready.value = true;
    return end;
  }, [store]);
  const chosen = store.selection.value.size;
  const tool = ready.value ? control.tools.tool.value : "select";
  return html`<section class="viewer-pane" aria-label=${t("viewer")}>
    <div class="viewer" ref=${host} tabindex="0" role="group" aria-label=${t("viewer.hint")}></div>
    ${ready.value && html`<${ToolBar} store=${store} control=${control} /><${ZoomBar} control=${control} zoom=${zoom} />`}
    <p class="tool-hint" role="status" hidden=${tool === "select" && chosen < 2}>${tool !== "select" ? t(`toolHint.${tool}`) : chosen > 1 ? t("lines.chosen", { count: chosen }) : ""}</p>
  </section>`;
}
