// Every key of the workbench, once: what acts on them and the list that '?' shows come from this table.
// Scope "text": also while text is being typed. Scope "plain": only where no text is typed.

export const KEYS = [
  { id: "accept", keys: ["Enter"], scope: "text", group: "text" },
  { id: "acceptBack", keys: ["Shift+Enter"], scope: "text", group: "text" },
  { id: "nextLine", keys: ["Alt+ArrowDown"], scope: "text", group: "text" },
  { id: "previousLine", keys: ["Alt+ArrowUp"], scope: "text", group: "text" },
  { id: "nextDoubt", keys: ["F8", "Alt+KeyN"], scope: "text", group: "text" },
  { id: "previousDoubt", keys: ["Shift+F8"], scope: "text", group: "text" },
  { id: "alternatives", keys: ["Alt+KeyA", "Ctrl+Space"], scope: "text", group: "text" },
  { id: "palette", keys: ["Alt+KeyC"], scope: "text", group: "text" },
  { id: "machineText", keys: ["Alt+KeyM"], scope: "text", group: "text" },
  { id: "leaveText", keys: ["Escape"], scope: "text", group: "text" },
  { id: "undo", keys: ["Ctrl+KeyZ"], scope: "text", group: "all" },
  { id: "redo", keys: ["Ctrl+KeyY", "Ctrl+Shift+KeyZ"], scope: "text", group: "all" },
  { id: "find", keys: ["Ctrl+KeyH"], scope: "text", group: "all" },
  { id: "leastSure", keys: ["Alt+KeyL"], scope: "text", group: "all" },
  { id: "nextPage", keys: ["Alt+PageDown"], scope: "text", group: "all" },
  { id: "previousPage", keys: ["Alt+PageUp"], scope: "text", group: "all" },
  { id: "allPages", keys: ["Alt+Home"], scope: "text", group: "all" },
  { id: "help", keys: ["?", "F1"], scope: "text", group: "all" },
  { id: "splitLine", keys: ["Alt+KeyS"], scope: "text", group: "lines" },
  { id: "joinLines", keys: ["Alt+KeyJ"], scope: "text", group: "lines" },
  { id: "lineUp", keys: ["Alt+Shift+ArrowUp"], scope: "text", group: "lines" },
  { id: "lineDown", keys: ["Alt+Shift+ArrowDown"], scope: "text", group: "lines" },
  { id: "deleteLine", keys: ["Alt+Delete", "Alt+Backspace"], scope: "text", group: "lines" },
  { id: "readAgain", keys: ["Alt+KeyR"], scope: "text", group: "lines" },
  { id: "chooseMore", keys: ["Shift+ArrowUp", "Shift+ArrowDown"], scope: "shown", group: "image" },
  { id: "toolSelect", keys: ["KeyV"], scope: "plain", group: "image" },
  { id: "toolShape", keys: ["KeyE"], scope: "plain", group: "image" },
  { id: "toolDraw", keys: ["KeyB"], scope: "plain", group: "image" },
  { id: "toolOutline", keys: ["KeyO"], scope: "plain", group: "image" },
  { id: "toolRegion", keys: ["KeyG"], scope: "plain", group: "image" },
  { id: "regionHere", keys: ["Shift+KeyG"], scope: "plain", group: "image" },
  { id: "toolSplit", keys: ["KeyS"], scope: "plain", group: "image" },
  { id: "joinPlain", keys: ["KeyJ"], scope: "plain", group: "image" },
  { id: "deletePlain", keys: ["Delete", "Backspace"], scope: "plain", group: "image" },
  { id: "nextPlain", keys: ["KeyN"], scope: "plain", group: "image" },
  { id: "previousPlain", keys: ["KeyP"], scope: "plain", group: "image" },
  { id: "nextPoint", keys: ["."], scope: "plain", group: "image" },
  { id: "previousPoint", keys: [","], scope: "plain", group: "image" },
  { id: "addPoint", keys: ["Insert", "KeyI"], scope: "plain", group: "image" },
  { id: "nudge", keys: ["Arrows", "Shift+Arrows"], scope: "shown", group: "image" },
  { id: "typeText", keys: ["KeyT", "Enter"], scope: "plain", group: "image" },
  { id: "layers", keys: ["KeyL"], scope: "plain", group: "image" },
  { id: "zoomIn", keys: ["+", "="], scope: "plain", group: "image" },
  { id: "zoomOut", keys: ["-"], scope: "plain", group: "image" },
  { id: "fitPage", keys: ["Digit0"], scope: "plain", group: "image" },
  { id: "fitWidth", keys: ["KeyW"], scope: "plain", group: "image" },
  { id: "zoomLine", keys: ["KeyZ"], scope: "plain", group: "image" },
  { id: "amongPages", keys: ["Arrows"], scope: "shown", group: "pages" },
  { id: "openPage", keys: ["Enter"], scope: "shown", group: "pages" },
  { id: "choosePage", keys: ["Space"], scope: "shown", group: "pages" },
  { id: "pageEarlier", keys: ["Alt+Shift+ArrowLeft"], scope: "plain", group: "pages" },
  { id: "pageLater", keys: ["Alt+Shift+ArrowRight"], scope: "plain", group: "pages" },
  { id: "removePages", keys: ["Delete"], scope: "plain", group: "pages" },
];

const isMac = /Mac|iPad|iPhone/.test(navigator.platform ?? "");

/** The key by its letter where it has a Latin one (on a German keyboard Z lies where others have Y), else by its place. */
const code = (event) => (/^[a-z]$/i.test(event.key) ? `Key${event.key.toUpperCase()}` : event.code);

function name(event) {
  const held = (event.ctrlKey || event.metaKey ? "Ctrl+" : "") + (event.altKey ? "Alt+" : "");
  return { whole: held + (event.shiftKey ? "Shift+" : "") + code(event), sign: held + event.key };
}

export const isTyping = (target) => target?.matches?.("textarea, input:not([type=checkbox]):not([type=radio]):not([type=range]), select");

/** The ids of the table that this key press means here, the best first. */
export function commandsOf(event) {
  const { whole, sign } = name(event);
  // The shift of '?' and '+' is part of the sign, not a key of its own.
  const typing = isTyping(event.target);
  const matches = (key) => key === whole || (key.length === 1 && key === sign && !typing);
  return KEYS.filter((key) => key.scope !== "shown" && (key.scope === "text" || !typing) && key.keys.some(matches)).map((key) => key.id);
}

const SIGNS = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Arrows: "← ↑ ↓ →", PageDown: "Page ↓", PageUp: "Page ↑", Digit0: "0" };

/** A key of the table as caps to print: ["Alt", "↓"]. */
export function caps(key) {
  if (key.length === 1) return [key];
  return key.split("+").map((part) => {
    if (part === "Ctrl") return isMac ? "⌘" : "Ctrl";
    if (part === "Alt") return isMac ? "⌥" : "Alt";
    return SIGNS[part] ?? part.replace(/^Key/, "");
  });
}

/** For aria-keyshortcuts. */
export const shortcutOf = (id) => (KEYS.find((key) => key.id === id)?.keys ?? []).map((key) => key.replace("Ctrl", "Control").replace("Key", "")).join(" ");
