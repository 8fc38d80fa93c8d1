// Strings as people see them: code points, how sure the machine was of each, and what two texts differ in.

/** The place in UTF-16 units of a text (as the browser counts) as a number of code points (as the server counts). */
export const codePoints = (text, units) => Array.from(text.slice(0, units)).length;

/** The other way round. */
export const units = (text, points) => Array.from(text).slice(0, points).join("").length;

/** As the server keeps it: one line, composed characters. */
export const normalised = (text) => text.replace(/\s*[\r\n]+\s*/g, " ").normalize("NFC");

function commonEnds(a, b) {
  const least = Math.min(a.length, b.length);
  let head = 0;
  while (head < least && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < least - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  return { head, tail };
}

/**
 * For each UTF-16 unit of `text` the index of the reading's character that it is, or -1 where a person wrote it:
 * what stands before and after the changed stretch keeps its character.
 */
export function characterOf(text, reading) {
  const of = new Array(text.length).fill(-1);
  if (!reading?.characters) return of;
  const source = [];
  reading.characters.forEach(([character], index) => {
    for (let i = 0; i < character.length; i++) source.push(index);
  });
  const whole = reading.characters.map(([character]) => character).join("");
  const { head, tail } = commonEnds(text, whole);
  for (let i = 0; i < head; i++) of[i] = source[i];
  for (let i = 0; i < tail; i++) of[text.length - 1 - i] = source[whole.length - 1 - i];
  return of;
}

/** 0 sure, 1 unsure, 2 very unsure. */
export function doubt(confidence, threshold) {
  if (confidence === null || confidence === undefined || confidence >= threshold) return 0;
  return confidence < threshold * 0.6 ? 2 : 1;
}

/** The text in runs of equal doubt: [{text, start, doubt}]. Spaces are never marked. */
export function runs(text, reading, threshold) {
  const of = characterOf(text, reading);
  const out = [];
  for (let i = 0; i < text.length; i++) {
    const level = of[i] < 0 || text[i] === " " ? 0 : doubt(reading.characters[of[i]][1], threshold);
    const last = out[out.length - 1];
    if (last && last.doubt === level) last.text += text[i];
    else out.push({ text: text[i], start: i, doubt: level });
  }
  return out;
}

/** Longest common subsequence of two short lists: [{kind: "same" | "out" | "in", text}]. */
function aligned(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const out = [];
  const push = (kind, text) => {
    const last = out[out.length - 1];
    if (last?.kind === kind) last.text += text;
    else out.push({ kind, text });
  };
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) push("same", a[i++]), j++;
    else if (j >= b.length || (i < a.length && table[i + 1][j] >= table[i][j + 1])) push("out", a[i++]);
    else push("in", b[j++]);
  }
  return out;
}

/** What `after` has other than `before`, character by character. */
export function difference(before, after) {
  const a = Array.from(before);
  const b = Array.from(after);
  if (a.length * b.length > 1_000_000) return [{ kind: "out", text: before }, { kind: "in", text: after }];
  return aligned(a, b);
}

/** `text` cut at spans [[start, end]] of code points: [{text, hit}]. */
export function marked(text, spans) {
  const points = Array.from(text);
  const out = [];
  let at = 0;
  for (const [start, end] of spans) {
    if (start > at) out.push({ text: points.slice(at, start).join(""), hit: false });
    out.push({ text: points.slice(start, end).join(""), hit: true });
    at = end;
  }
  if (at < points.length) out.push({ text: points.slice(at).join(""), hit: false });
  return out;
}
