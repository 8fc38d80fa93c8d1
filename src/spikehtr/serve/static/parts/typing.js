// The field in which a line's text is corrected. Below its letters lies the same text, unseen, that carries the colours:
// the browser's own text field stays what it is (input methods, right-to-left, its undo), and colours cost no layout.

import { html, useLayoutEffect, useRef, useSignal } from "../lib.js";
import { runs } from "../text.js";
import { direction, threshold } from "../state.js";
import { t } from "../i18n/index.js";
import { Alternatives } from "./alternatives.js";

export const MARKS = ["", "unsure", "very-unsure"];

/** The text in coloured runs; doubt is told by an underline too, not by colour alone. */
export function MarkedText({ text, reading, corrected }) {
  if (corrected || !reading) return text;
  return runs(text, reading, threshold.value).map((run) =>
    run.doubt ? html`<span class=${MARKS[run.doubt]} data-start=${run.start}>${run.text}</span>` : run.text,
  );
}

/** `control.field` is the text field while it is there; `control.alternatives()` opens them at the caret. */
export function TypingField({ store, entry, control }) {
  const field = useRef(null);
  const below = useRef(null);
  const shown = useSignal(null); // place of the character whose alternatives are shown
  const line = entry.line.value;
  const text = entry.draft.value?.text ?? line.text;

  useLayoutEffect(() => {
    const element = field.current;
    if (element.value !== text) {
      const atEnd = element.selectionStart === element.value.length;
      const caret = element.selectionStart;
      element.value = text;
      const place = atEnd ? text.length : Math.min(caret, text.length);
      if (document.activeElement === element) element.setSelectionRange(place, place);
    }
  }, [text]);
  useLayoutEffect(() => {
    control.field = field.current;
    control.alternatives = () => (shown.value = field.current.selectionStart);
    control.closeAlternatives = () => shown.value !== null && ((shown.value = null), true);
    const caret = control.caret;
    control.caret = null;
    if (control.wantsFocus) {
      field.current.focus({ preventScroll: true });
      control.wantsFocus = false;
      const place = Math.min(caret ?? text.length, text.length);
      field.current.setSelectionRange(place, place);
    }
    return () => control.field === field.current && (control.field = null);
  }, [line.id]);

  const clicked = () => {
    const at = field.current.selectionStart;
    if (at !== field.current.selectionEnd || line.corrected) return;
    const here = runs(text, line.reading, threshold.value).find((run) => run.doubt && run.start <= at && at <= run.start + run.text.length);
    shown.value = here ? at : null;
  };
  const replace = (start, end, by) => {
    field.current.focus();
    field.current.setRangeText(by, start, end, "end");
    store.type(line.id, field.current.value);
    shown.value = null;
  };
  return html`<div class="typing">
    <div class="typing-below" ref=${below} aria-hidden="true" dir=${direction.value}><${MarkedText} text=${text} reading=${line.reading} corrected=${line.corrected && !entry.draft.value} />${"\u200b"}</div>
    <textarea class="typing-field" ref=${field} rows="1" dir=${direction.value} spellcheck=${false} autocapitalize="off" autocomplete="off"
      aria-label=${t("line.text", { number: store.order.value.indexOf(line.id) + 1 })}
      onInput=${(event) => (store.type(line.id, event.target.value), (shown.value = null))}
      onClick=${clicked}
      onBlur=${() => store.save(line.id)}></textarea>
    ${shown.value !== null && html`<${Alternatives} store=${store} line=${line} text=${text} at=${shown.value} below=${below.current} field=${field.current}
      onReplace=${replace} onClose=${() => ((shown.value = null), field.current?.focus())} />`}
  </div>`;
}

