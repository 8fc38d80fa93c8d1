// The server speaks English; its usual sentences are known here in the other languages, and the rest is shown as it is.

import { locale } from "./index.js";
import de from "./said-de.js";
import fr from "./said-fr.js";

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const patterns = (table) => Object.entries(table).map(([from, to]) => [new RegExp(`^${from.split("{}").map(escaped).join("(.+)")}$`, "s"), to]);
const KNOWN = { de: patterns(de), fr: patterns(fr) };

/** A sentence of the server in the language of the interface; so are the sentences within it. */
export function said(text) {
  for (const [pattern, to] of KNOWN[locale.value] ?? []) {
    const found = pattern.exec(text ?? "");
    if (!found) continue;
    const parts = found.slice(1);
    return to.replace(/\{\}/g, () => said(parts.shift()));
  }
  return text;
}

/** Fault and remedy of a failure as one sentence. */
export const whole = ({ fault, remedy }) => (remedy ? `${said(fault)}; ${said(remedy)}` : said(fault));
