// What else the machine thought of a character: a small list at its place in the text.

import { html, useEffect, useLayoutEffect, useRef, useSignal } from "../lib.js";
import * as api from "../api.js";
import { characterOf } from "../text.js";
import { sayError } from "../state.js";
import { t, percent } from "../i18n/index.js";

const known = new Map(); // of page, line and reading: what the server said

async function ask(store, line) {
  const key = `${store.id} ${line.id} ${line.reading.text}`;
  if (!known.has(key)) {
    if (known.size > 200) known.clear();
    known.set(key, await api.get(`/api/pages/${store.id}/lines/${encodeURIComponent(line.id)}/alternatives`));
  }
  return known.get(key);
}

/** Where a character of the field stands on the screen: measured on the text that lies below it. */
function placeOf(below, unit) {
  if (unit < 0) return below.getBoundingClientRect();
  const walker = document.createTreeWalker(below, NodeFilter.SHOW_TEXT);
  let at = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (unit < at + node.length) {
      const range = document.createRange();
      range.setStart(node, unit - at);
      range.setEnd(node, unit - at + 1);
      return range.getBoundingClientRect();
    }
    at += node.length;
  }
  return below.getBoundingClientRect();
}

export function Alternatives({ store, line, text, at, below, field, onReplace, onClose }) {
  const list = useRef(null);
  const choices = useSignal(null);
  const of = characterOf(text, line.reading);
  // The character at the caret; at the end of the text, or behind what a person wrote, the one before it.
  const unit = of[at] >= 0 ? at : at - 1;
  const index = of[unit] ?? -1;
  let start = unit;
  while (start > 0 && of[start - 1] === index) start--;
  let end = unit + 1;
  while (end < text.length && of[end] === index) end++;

  useEffect(() => {
    if (index < 0) return void (choices.value = []);
    let gone = false;
    ask(store, line).then(
      (answer) => !gone && (choices.value = answer.characters[index]?.[1] ?? []),
      (error) => (sayError(error), onClose()),
    );
    return () => (gone = true);
  }, [index]);
  useLayoutEffect(() => {
    const box = placeOf(below, unit);
    const whole = below.parentElement.getBoundingClientRect();
    list.current.style.left = `${Math.max(Math.min(box.left - whole.left - 8, whole.width - 170), 0)}px`;
    list.current.style.top = `${box.bottom - whole.top + 4}px`;
    if (choices.value?.length) list.current.querySelector("button")?.focus({ preventScroll: true });
    list.current.scrollIntoView({ block: "nearest" });
  });
  useEffect(() => {
    const away = (event) => !list.current?.contains(event.target) && event.target !== field && onClose();
    addEventListener("pointerdown", away);
    return () => removeEventListener("pointerdown", away);
  }, []);

  const keys = (event) => {
    const buttons = [...list.current.querySelectorAll("button")];
    const now = buttons.indexOf(document.activeElement);
    const digit = /^Digit([1-9])$/.exec(event.code);
    if (event.key === "Escape") onClose();
    else if (event.key === "ArrowDown") buttons[(now + 1) % buttons.length]?.focus();
    else if (event.key === "ArrowUp") buttons[(now - 1 + buttons.length) % buttons.length]?.focus();
    else if (digit && buttons[Number(digit[1]) - 1]) buttons[Number(digit[1]) - 1].click();
    else if (event.key !== "Tab") return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="alternatives" ref=${list} role="group" aria-label=${t("alternatives.of", { character: text.slice(start, end) })} onKeyDown=${keys}>
    ${choices.value === null && html`<span class="hint">${t("loading")}</span>`}
    ${choices.value?.length === 0 && html`<span class="hint">${t("alternatives.none")}</span>`}
    ${choices.value?.map(([character, confidence], place) => html`<button type="button" onClick=${() => onReplace(start, end, character)}>
      <kbd>${place + 1}</kbd><bdi class="sign">${character === " " ? "␣" : character || t("alternatives.nothing")}</bdi><span class="share">${confidence < 0.01 ? `< ${percent(0.01, 0)}` : percent(confidence, 0)}</span>
    </button>`)}
  </div>`;
}
