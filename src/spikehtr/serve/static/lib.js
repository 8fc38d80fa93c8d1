// What every part needs of the vendored libraries, from one place.
import { h, render, Fragment, createRef } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { h, render, Fragment, createRef };
export { useEffect, useLayoutEffect, useRef, useState, useMemo, useCallback } from "./vendor/hooks.js";
export { signal, computed, effect, batch, untracked } from "./vendor/signals-core.js";
export { useSignal, useComputed, useSignalEffect } from "./vendor/signals.js";
