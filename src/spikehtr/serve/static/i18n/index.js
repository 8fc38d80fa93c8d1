// Words of the interface. A key that ends with "_one" is for a count of one.

import { computed, effect } from "../lib.js";
import { settings } from "../state.js";
import en from "./en.js";
import fr from "./fr.js";
import de from "./de.js";

export const LANGUAGES = { en, fr, de };

const preferred = () => (navigator.languages ?? ["en"]).map((name) => name.slice(0, 2)).find((name) => name in LANGUAGES) ?? "en";
export const locale = computed(() => (settings.value.language in LANGUAGES ? settings.value.language : preferred()));
effect(() => (document.documentElement.lang = locale.value));

/** The words for `key`; "{name}" in them is replaced by `values.name`. */
export function t(key, values = {}) {
  const words = LANGUAGES[locale.value];
  const pattern = (values.count === 1 && words[`${key}_one`]) || words[key] || key;
  return pattern.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? format(values[name]) : whole));
}

/** Whether there are words for it: codes that a server of another version sends may be unknown. */
export const has = (key) => key in LANGUAGES[locale.value];

const format = (value) => (typeof value === "number" ? number(value) : value);
export const number = (value, digits = 0) => new Intl.NumberFormat(locale.value, { maximumFractionDigits: digits }).format(value);
export const percent = (value, digits = 1) =>
  new Intl.NumberFormat(locale.value, { style: "percent", minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
export const moment = (iso) => new Intl.DateTimeFormat(locale.value, { dateStyle: "medium", timeStyle: "short" }).format(new Date(iso));

/** Seconds as people say them. */
export function duration(seconds) {
  if (seconds < 60) return t("time.seconds", { count: Math.max(Math.round(seconds), 1) });
  if (seconds < 3600) return t("time.minutes", { count: Math.round(seconds / 60) });
  return t("time.hours", { hours: Math.floor(seconds / 3600), minutes: Math.round((seconds % 3600) / 60) });
}
