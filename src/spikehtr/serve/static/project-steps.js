// Undo and redo of what is done to the project as a whole: pages removed, their order, settings.

import { signal } from "./lib.js";
import * as api from "./api.js";
import { attempt, lastSeq, say } from "./state.js";
import { has, t } from "./i18n/index.js";

export const projectSteps = signal({ undo: null, redo: null });
let stamp = 0;

/** Takes an answer or a message of the server that says what undo and redo would do. */
export function noteSteps({ undo, redo, seq }) {
  lastSeq.value = Math.max(lastSeq.value, seq);
  if (seq < stamp) return;
  stamp = seq;
  projectSteps.value = { undo, redo };
}

/** What a button that undoes (or redoes) a step says of it. */
export function stepHint(which, step) {
  if (!step) return t(which);
  const key = `label.${step.label}`;
  return `${t(which)}: ${has(key) ? t(key) : step.label}${step.user ? ` (${step.user})` : ""}`;
}

/** `only`: this step or none. */
export async function turnProject(which, only) {
  const step = projectSteps.value[which];
  const expect = only ?? step?.seq;
  if (expect === undefined) return say(t(`${which}.nothing`));
  return attempt(async () => {
    try {
      noteSteps(await api.post(`/api/project/${which}`, { expect }));
      say(stepHint(which, step));
    } catch (error) {
      if (error.code !== "conflict") throw error;
      noteSteps(await api.get("/api/project"));
      say(t("conflict.project"), { kind: "error" });
    }
  });
}
