// Small things that all parts use: buttons with keys, dialogs, state badges, icons.

import { html, useEffect, useRef } from "../lib.js";
import { KEYS, caps, shortcutOf } from "../keys.js";
import { dialog } from "../state.js";
import { t } from "../i18n/index.js";

const PATHS = {
  select: "M5 3l12 9-6 1-3 6z",
  shape: "M5 17L10 6l9 4M4 16h3v3H4zM8.500 4.500h3v3h-3zM17.500 8.500h3v3h-3z",
  draw: "M3 17c5-4 8 2 12-2M14 5l4 4-6 6H8v-4z",
  outline: "M5 7l7-3 7 5-2 9H7z",
  region: "M4 8V4h4M16 4h4v4M20 16v4h-4M8 20H4v-4M8 10h8M8 14h5",
  split: "M12 3v18M3 12h5M16 12h5M6 9.500L8.500 12 6 14.500M18 9.500L15.500 12l2.500 2.500",
  join: "M3 12h7M14 12h7M7.500 9.500L10 12l-2.500 2.500M16.500 9.500L14 12l2.500 2.500",
  trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13M10 11v6M14 11v6",
  undo: "M8 5L4 9l4 4M4 9h9a6 5 0 0 1 0 10H9",
  redo: "M16 5l4 4-4 4M20 9h-9a6 5 0 0 0 0 10h4",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
  layers: "M12 4l9 5-9 5-9-5zM3 14l9 5 9-5",
  check: "M4 12l6 6L20 6",
  up: "M12 19V5M6 11l6-6 6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  close: "M6 6l12 12M18 6L6 18",
  gear: "M12 8.500a3.500 3.500 0 1 0 0 7 3.500 3.500 0 0 0 0-7M12 3v3M12 18v3M3 12h3M18 12h3M5.600 5.600l2.200 2.200M16.200 16.200l2.200 2.200M18.400 5.600l-2.200 2.200M7.800 16.200l-2.200 2.200",
  help: "M9 9a3 3 0 1 1 4 2.800c-.8.4-1 1-1 2.200M12 17.500v.5",
  search: "M10.500 4a6.500 6.500 0 1 0 0 13 6.500 6.500 0 0 0 0-13M15.500 15.500L20 20",
  import: "M12 4v11M7 10l5 5 5-5M4 20h16",
  export: "M12 15V4M7 9l5-5 5 5M4 20h16",
  again: "M19 12a7 7 0 1 1-2-5M19 3v5h-5",
  history: "M12 7v5l4 2M4 12a8 8 0 1 0 3-6M4 4v4h4",
  sort: "M4 6h14M4 12h9M4 18h5M18 11v9M15 17l3 3 3-3",
  signs: "M6 19h4v-3a6 6 0 1 1 4 0v3h4",
  menu: "M8 6h.01M8 12h.01M8 18h.01M15 6h.01M15 12h.01M15 18h.01",
  machine: "M6 8h12v10H6zM12 8V4M9.500 12v2M14.500 12v2M3 12v3M21 12v3",
  learn: "M4 19V5M4 19h16M7 9c3 0 3 6 6 6s4-1 6-1",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;

const printed = (command) => {
  const key = KEYS.find((one) => one.id === command)?.keys[0];
  return key ? ` (${caps(key).join(" ")})` : "";
};

/** A button; `command` (an id of the key table) adds its key to the hint. */
export function Button({ icon, label, hint, command, kind = "", pressed, onClick, disabled, iconOnly = false, keepFocus = false, ...rest }) {
  return html`<button
    type="button"
    class=${`button ${kind} ${iconOnly ? "icon-only" : ""}`}
    aria-label=${iconOnly ? label : undefined}
    aria-pressed=${pressed === undefined ? undefined : String(pressed)}
    aria-keyshortcuts=${command ? shortcutOf(command) : undefined}
    title=${iconOnly || command || hint ? (hint ?? label) + printed(command) : undefined}
    disabled=${disabled}
    onMouseDown=${keepFocus ? (event) => event.preventDefault() : undefined}
    onClick=${onClick}
    ...${rest}
  >
    ${icon && html`<${Icon} name=${icon} />`}${!iconOnly && html`<span>${label}</span>`}
  </button>`;
}

/** A modal dialog of the browser's own kind: it keeps the focus, Esc closes it, and the focus goes back where it was. */
export function Dialog({ title, children, onClose, wide = false, name }) {
  const element = useRef(null);
  useEffect(() => {
    const opener = document.activeElement;
    element.current.showModal();
    return () => opener?.isConnected && opener.focus?.();
  }, []);
  const close = onClose ?? (() => (dialog.value = null));
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} data-name=${name} aria-label=${title} onCancel=${(event) => (event.preventDefault(), close())}
    onMouseDown=${(event) => event.target === element.current && close()}>
    <div class="dialog-body">
      <header class="dialog-head"><h2>${title}</h2><${Button} icon="close" label=${t("close")} iconOnly onClick=${close} kind="quiet" /></header>
      ${children}
    </div>
  </dialog>`;
}

export const StateBadge = ({ state }) => html`<span class="badge" data-state=${state}>${t(`state.${state}`)}</span>`;

/** What two texts differ in. Text goes in as text: nothing of it is ever read as HTML. */
export const Difference = ({ parts, show }) => html`<bdi dir="auto" class="difference">
  ${parts.filter((part) => part.kind === "same" || !show || part.kind === show).map((part) =>
    part.kind === "same" ? part.text : part.kind === "out" ? html`<del>${part.text}</del>` : html`<ins>${part.text}</ins>`,
  )}
</bdi>`;

export function Bar({ share, label }) {
  return html`<progress class="bar" aria-label=${label} max="1" value=${share ?? undefined}></progress>`;
}
