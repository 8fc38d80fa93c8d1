// One line in the list: its text, and if it is the active one, its image, the field to correct it and its buttons.

import { html, useComputed, useLayoutEffect, useRef } from "../lib.js";
import { direction, threshold, dialog } from "../state.js";
import { t, percent } from "../i18n/index.js";
import { stateOf } from "../viewer/shapes.js";
import { join, machineText, placeBefore, readAgain, remove, shift } from "../line-actions.js";
import { Button } from "./basics.js";
import { MarkedText, TypingField } from "./typing.js";

/** The place in the text where a press on a row's text falls; null beside it. */
function unitAt(event) {
  const caret = document.caretPositionFromPoint?.(event.clientX, event.clientY);
  const range = caret ? null : document.caretRangeFromPoint?.(event.clientX, event.clientY);
  const node = caret?.offsetNode ?? range?.startContainer;
  const offset = caret?.offset ?? range?.startOffset;
  if (!node || !event.currentTarget.contains(node)) return null;
  const before = document.createRange();
  before.selectNodeContents(event.currentTarget.querySelector(".row-text") ?? event.currentTarget);
  try {
    before.setEnd(node, offset);
  } catch {
    return null;
  }
  return before.toString().length;
}

function Tools({ store, entry, control, actions }) {
  const line = entry.line.value;
  const id = line.id;
  const button = (icon, label, command, onClick) => html`<${Button} icon=${icon} label=${t(label)} command=${command} iconOnly kind="quiet" keepFocus onClick=${onClick} />`;
  return html`<div class="row-tools" role="toolbar" aria-label=${t("line.tools")}>
    <${Button} icon="check" label=${t(line.corrected && !entry.draft.value ? "line.next" : "line.accept")} command="accept" kind="primary small" keepFocus onClick=${() => actions.accept(1)} />
    ${line.confidence !== null && !line.corrected && html`<span class="sureness" title=${t("confidence.hint")}>${t("confidence", { share: percent(line.confidence, 0) })}</span>`}
    <span class="gap"></span>
    ${button("split", "line.split", "splitLine", () => actions.splitActive())}
    ${button("join", "line.join", "joinLines", () => join(store))}
    ${button("up", "line.up", "lineUp", () => shift(store, id, -1))}
    ${button("down", "line.down", "lineDown", () => shift(store, id, 1))}
    ${!line.corrected && button("again", "line.again", "readAgain", () => readAgain(store, id))}
    ${line.corrected && line.reading && button("machine", "line.machine", "machineText", () => machineText(store, id))}
    ${button("history", "line.history", undefined, () => (dialog.value = { name: "history", store, id }))}
    ${button("trash", "line.delete", "deleteLine", () => remove(store))}
  </div>`;
}

function ActiveRow({ store, entry, number, control, actions }) {
  const line = entry.line.value;
  const row = useRef(null);
  useLayoutEffect(() => {
    row.current.scrollIntoView({ block: "nearest" });
  }, [line.id]);
  const image = `/api/pages/${store.id}/lines/${encodeURIComponent(line.id)}/image?height=96&v=${line.version}`;
  return html`<li class="row active" ref=${row} data-line=${line.id} data-state=${stateOf(line)} aria-current="true">
    <span class="row-number">${number}</span>
    <div class="row-body">
      <img class="row-image" src=${image} alt=${t("line.image", { number })} />
      <${TypingField} store=${store} entry=${entry} control=${control} />
      <${Tools} store=${store} entry=${entry} control=${control} actions=${actions} />
      ${entry.draft.value?.held && html`<p class="row-note">${t("merge.waiting")} <${Button} label=${t("merge.open")} kind="small" onClick=${() => store.reopenMerge(line.id)} /></p>`}
    </div>
  </li>`;
}

/** A row draws itself anew only when its own line, or whether it is active, changes: not for its 499 neighbours. */
export function LineRow({ store, id, control, actions }) {
  const entry = store.entries.get(id);
  const isActive = useComputed(() => store.active.value === id);
  const isChosen = useComputed(() => store.selection.value.size > 1 && store.selection.value.has(id));
  const number = useComputed(() => store.order.value.indexOf(id) + 1);
  if (!entry) return null;
  if (isActive.value) return html`<${ActiveRow} store=${store} entry=${entry} number=${number.value} control=${control} actions=${actions} />`;
  const line = entry.line.value;
  const state = stateOf(line);
  const text = entry.draft.value?.text ?? line.text;
  const press = (event) => {
    if (event.shiftKey || event.ctrlKey || event.metaKey) return void store.toggle(id);
    actions.edit(id, unitAt(event));
  };
  const drop = (event) => {
    const moved = event.dataTransfer.getData("text/x-line");
    event.currentTarget.classList.remove("drop-here");
    if (moved) placeBefore(store, moved, id);
  };
  const unsure = !line.corrected && line.confidence !== null && line.confidence < threshold.value;
  return html`<li class=${`row ${isChosen.value ? "chosen" : ""}`} data-line=${id} data-state=${state}
    onDragOver=${(event) => event.dataTransfer.types.includes("text/x-line") && (event.preventDefault(), event.currentTarget.classList.add("drop-here"))}
    onDragLeave=${(event) => event.currentTarget.classList.remove("drop-here")} onDrop=${drop}>
    <span class="row-number" draggable="true" title=${t("line.drag")} onDragStart=${(event) => event.dataTransfer.setData("text/x-line", id)}>${number.value}</span>
    <button type="button" class="row-open" onClick=${press} dir=${direction.value} aria-label=${`${number.value}: ${text || t("line.empty")}. ${t(`lineState.${state}`)}${unsure ? `, ${t("line.unsure")}` : ""}`}>
      <span class="row-text">${text ? html`<${MarkedText} text=${text} reading=${line.reading} corrected=${line.corrected} />` : html`<em class="none">${t("line.empty")}</em>`}</span>
    </button>
    ${line.stale && html`<span class="spinner" title=${t("line.stale")}></span>`}
  </li>`;
}
