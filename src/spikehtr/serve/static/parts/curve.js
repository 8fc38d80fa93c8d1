// How the error went down while a model learned: a small chart, and the same as a table for screen readers.

import { html } from "../lib.js";
import { t, number, percent } from "../i18n/index.js";

const [WIDTH, HEIGHT] = [560, 200];
const [LEFT, RIGHT, TOP, BOTTOM] = [52, 12, 12, 30];

/** Round numbers from 0 to beyond `most`, five at most. */
export function ticks(most) {
  const raw = Math.max(most, 1e-4) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, i) => i * step);
}

/** `curve`: [{step, cer}]; `total`: steps in all, if known. */
export function Curve({ curve, total }) {
  if (!curve?.length) return null;
  const rows = ticks(Math.max(...curve.map((point) => point.cer)));
  const most = rows[rows.length - 1] || 1;
  const last = Math.max(total ?? 0, curve[curve.length - 1].step, 1);
  const x = (step) => LEFT + ((WIDTH - LEFT - RIGHT) * step) / last;
  const y = (cer) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * cer) / most;
  const best = curve.reduce((a, b) => (b.cer < a.cer ? b : a));
  return html`<figure class="curve">
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${t("curve.label", { first: percent(curve[0].cer), best: percent(best.cer), step: best.step })}>
      ${rows.map((cer) => html`<g><line x1=${LEFT} x2=${WIDTH - RIGHT} y1=${y(cer)} y2=${y(cer)} class="grid-line" /><text x=${LEFT - 8} y=${y(cer) + 4} text-anchor="end">${percent(cer, most < 0.05 ? 1 : 0)}</text></g>`)}
      <text x=${LEFT} y=${HEIGHT - 8}>0</text><text x=${WIDTH - RIGHT} y=${HEIGHT - 8} text-anchor="end">${t("curve.steps", { count: last })}</text>
      <polyline class="curve-line" points=${curve.map((point) => `${x(point.step)},${y(point.cer)}`).join(" ")} />
      ${curve.map((point) => html`<circle cx=${x(point.step)} cy=${y(point.cer)} r=${point === best ? 5 : 3} class=${point === best ? "best" : ""} />`)}
    </svg>
    <figcaption>${t("curve.caption")}</figcaption>
    <table class="visually-hidden"><thead><tr><th>${t("curve.step")}</th><th>${t("curve.cer")}</th></tr></thead>
      <tbody>${curve.map((point) => html`<tr><td>${number(point.step)}</td><td>${percent(point.cer)}</td></tr>`)}</tbody></table>
  </figure>`;
}
