// The text of the page, line by line, in reading order or least sure first.

import { html } from "../lib.js";
import { attempt, settings } from "../state.js";
import { has, t } from "../i18n/index.js";
import { removeRegion, shiftRegion } from "../line-actions.js";
import { Button } from "./basics.js";
import { LineRow } from "./line-row.js";

const KINDS = ["paragraph", "heading", "caption", "header", "footer", "page-number", "drop-capital", "credit", "floating", "signature-mark", "catch-word",
  "marginalia", "footnote", "footnote-continued", "endnote", "TOC-entry", "list-label", "other"];

function RegionHead({ store, region }) {
  const change = (event) => {
    const kind = event.target.value;
    attempt(() => store.edit(() => [{ op: "set_region", region: region.id, version: store.regions.value.find((one) => one.id === region.id)?.version, kind }]));
  };
  const kinds = KINDS.includes(region.kind) ? KINDS : [region.kind, ...KINDS];
  const last = store.regions.value.length - 1;
  const at = store.regions.value.indexOf(region);
  const button = (icon, label, onClick) => html`<${Button} icon=${icon} label=${t(label)} iconOnly kind="quiet" onClick=${onClick} />`;
  return html`<li class="region-head" role="presentation" data-region=${region.id}><select class="region-kind" aria-label=${t("region.kind")} value=${region.kind} onChange=${change}>
    ${kinds.map((kind) => html`<option value=${kind}>${has(`region.${kind}`) ? t(`region.${kind}`) : kind}</option>`)}
  </select><span class="region-tools">
    ${at > 0 && button("up", "region.earlier", () => shiftRegion(store, region.id, -1))}
    ${at < last && button("down", "region.later", () => shiftRegion(store, region.id, 1))}
    ${button("trash", "region.delete", () => removeRegion(store, region))}
  </span></li>`;
}

function Palette({ control }) {
  const signs = Array.from(settings.value.palette ?? "").filter((sign) => sign.trim());
  const insert = (sign) => {
    const field = control.field;
    if (!field) return;
    field.focus();
    field.setRangeText(sign, field.selectionStart, field.selectionEnd, "end");
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const keys = (event) => {
    const buttons = [...event.currentTarget.querySelectorAll("button")];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length].focus();
    else if (event.key === "Escape") control.field?.focus();
    else if (event.key === "Enter" || event.key === " ") document.activeElement.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  if (!signs.length) return null;
  return html`<div class="palette" role="toolbar" aria-label=${t("palette")} onKeyDown=${keys}>
    ${signs.map((sign, at) => html`<button type="button" tabindex=${at ? -1 : 0} onMouseDown=${(event) => event.preventDefault()} onClick=${() => insert(sign)}>${sign}</button>`)}
  </div>`;
}

export function LineList({ store, control, actions }) {
  const row = (id) => html`<${LineRow} key=${id} store=${store} id=${id} control=${control} actions=${actions} />`;
  const sorted = store.leastSure.value;
  const rows = sorted
    ? sorted.map(row)
    : store.regions.value.flatMap((region) => [html`<${RegionHead} key=${`region ${region.id}`} store=${store} region=${region} />`, ...region.lines.filter((id) => store.entries.has(id)).map(row)]);
  return html`<div class="text-pane">
    <ol class="rows" aria-label=${sorted ? t("lines.leastSure") : t("lines")}>${store.order.value.length ? rows : html`<li class="nothing">${t("lines.none")}</li>`}</ol>
    ${sorted?.length === 0 && html`<p class="nothing">${t("leastSure.done")}</p>`}
    <${Palette} control=${control} />
  </div>`;
}
