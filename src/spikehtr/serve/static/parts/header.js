// The strip on top: where one is, what runs, what can be opened.

import { html } from "../lib.js";
import { online } from "../api.js";
import { dialog, go, jobs, route, running, session } from "../state.js";
import { t, percent } from "../i18n/index.js";
import { Button, Icon } from "./basics.js";

function Link({ path, view, icon, children }) {
  const here = route.value.view === view;
  return html`<a class="nav" href=${path} aria-current=${here ? "page" : undefined} onClick=${(event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(path);
  }}><${Icon} name=${icon} /><span>${children}</span></a>`;
}

function JobsButton() {
  const active = running.value[0];
  const failed = !active && jobs.value[0] && (jobs.value[0].state === "failed" || jobs.value[0].problems?.length > 0);
  const share = active && active.total ? active.done / active.total : null;
  const label = active ? `${t(`job.${active.kind}`)}${share === null ? "…" : ` ${percent(share, 0)}`}` : t("jobs");
  return html`<button type="button" class=${`button jobs ${active ? "busy" : ""} ${failed ? "failed" : ""}`} onClick=${() => (dialog.value = { name: "jobs" })}>
    ${active && html`<span class="spinner" aria-hidden="true"></span>`}<span>${label}</span>
  </button>`;
}

export function Header() {
  return html`<header class="top">
    <a class="brand" href="/" onClick=${(event) => (event.preventDefault(), go("/"))}>
      <img src="/static/icon.svg" alt="" width="24" height="24" /><span>Spike-HTR</span>
    </a>
    ${session.value && html`<bdi class="project" dir="auto">${session.value.project.name}</bdi>`}
    <nav aria-label=${t("nav")}>
      <${Link} path="/" view="pages" icon="fit">${t("pages")}<//>
      <${Link} path="/p/learn" view="learn" icon="learn">${t("learn")}<//>
    </nav>
    <span class="gap"></span>
    ${!online.value && html`<span class="offline" role="status">${t("offline")}</span>`}
    <${JobsButton} />
    <${Button} icon="search" label=${t("find")} command="find" iconOnly kind="quiet" onClick=${() => (dialog.value = { name: "find" })} />
    <${Button} icon="export" label=${t("export")} iconOnly kind="quiet" onClick=${() => (dialog.value = { name: "export" })} />
    <${Button} icon="gear" label=${t("settings")} iconOnly kind="quiet" onClick=${() => (dialog.value = { name: "settings" })} />
    <${Button} icon="help" label=${t("keys.title")} command="help" iconOnly kind="quiet" onClick=${() => (dialog.value = { name: "keys" })} />
  </header>`;
}
