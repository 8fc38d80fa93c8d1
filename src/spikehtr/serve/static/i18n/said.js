// The server speaks English; its sentences are known here in the other languages. What it quotes of files, of the system
// or of other software is shown as it is.

import { locale } from "./index.js";
import de from "./said-de.js";
import fr from "./said-fr.js";

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const words = (sentence) => sentence.replaceAll("{}", "").length;
/** Those that say most come first: "must be {}" is for what no other fits. */
const patterns = (table) =>
  Object.entries(table)
    .sort(([one], [other]) => words(other) - words(one))
    .map(([from, to]) => [new RegExp(`^${from.split("{}").map(escaped).join("(.+)")}$`, "s"), to]);
const TABLES = { de, fr };
const MOST = 2000; // answers that are kept
const made = {};
/** Of the language of the interface; English has none. Made when first asked for. */
const known = () => TABLES[locale.value] && (made[locale.value] ??= { patterns: patterns(TABLES[locale.value]), answers: new Map() });

/** Both sides of the first `mark`, each in the language of the interface; null where nothing of them is known. */
function onBothSides(text, mark) {
  const at = text.indexOf(mark);
  if (at < 0) return null;
  const [before, after] = [text.slice(0, at), text.slice(at + mark.length)];
  const [head, tail] = [said(before), said(after)];
  return head === before && tail === after ? null : `${head}${locale.value === "fr" ? " " : ""}${mark}${tail}`;
}

/** What the server said in the language of the interface: fault and remedy, "file: fault", sentences within sentences. */
export function said(text) {
  const table = known();
  if (!text || !table) return text;
  // A long text is taken apart at many places, and without this its last parts as often as there are ways to get to them.
  let answer = table.answers.get(text);
  if (answer === undefined) {
    answer = translated(text, table.patterns);
    if (table.answers.size >= MOST) table.answers.clear();
    table.answers.set(text, answer);
  }
  return answer;
}

function translated(text, table) {
  const parts = onBothSides(text, "; ");
  if (parts) return parts;
  for (const [pattern, to] of table) {
    const found = pattern.exec(text);
    if (!found) continue;
    const filled = found.slice(1);
    return to.replace(/\{\}/g, () => said(filled.shift()));
  }
  return onBothSides(text, ": ") ?? text;
}

/** Fault and remedy of a failure as one sentence. */
export const whole = ({ fault, remedy }) => said(remedy ? `${fault}; ${remedy}` : fault);
