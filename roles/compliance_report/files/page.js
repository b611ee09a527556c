/*
Copyright (c) 2026 The storage_ops.runbooks contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
*/
"use strict";
(() => {
  // Everything that comes from hosts goes into the page as text, never as HTML.
  const byId = (id) => document.getElementById(id);
  const make = (name, attributes = {}, ...inner) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined) element.setAttribute(key, value);
    }
    element.append(...inner.filter((one) => one !== null));
    return element;
  };

  // Light and dark: the system's, until somebody chooses.
  const root = document.documentElement;
  const themeButton = byId("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("storage_ops_theme"); } catch { /* a browser may forbid it for files */ }
  const showTheme = () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    root.dataset.theme = dark ? "dark" : "light";
    themeButton.textContent = dark ? "Light colours" : "Dark colours";
  };
  themeButton.addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("storage_ops_theme", chosen); } catch { /* as above */ }
    showTheme();
  });
  system.addEventListener("change", showTheme);
  themeButton.hidden = false;
  showTheme();
  // Paper is white.
  let screenTheme = null;
  window.addEventListener("beforeprint", () => { screenTheme = root.dataset.theme; root.dataset.theme = "light"; });
  window.addEventListener("afterprint", () => { if (screenTheme) root.dataset.theme = screenTheme; });

  const report = JSON.parse(byId("data").textContent);
  const PAGE = 100;
  const PRINTED = 1000;
  const MARKS = { critical: "\u25c6", major: "\u25b2", minor: "\u25cf", info: "\u25cb" };
  const SEVERITIES = Object.keys(MARKS);
  const WORDS = {
    pass: "pass", fail: "fail", accepted: "accepted", not_applicable: "not applicable", not_assessed: "not assessed",
    not_in_scope: "not in scope",
    assessed: "assessed", partly_assessed: "partly assessed",
  };
  const hosts = new Map(report.hosts.map((host) => [host.name, { ...host, findings: [] }]));
  for (const finding of report.findings) hosts.get(finding.host)?.findings.push(finding);

  const fields = ["q", "severity", "control", "status", "host"];
  const state = { view: "findings", shown: PAGE, opened: new Set() };
  for (const field of fields) state[field] = "";

  for (const severity of SEVERITIES) byId("severity").append(make("option", { value: severity }, severity));
  for (const control of report.controls) byId("control").append(make("option", { value: control.id }, `${control.id} ${control.title}`));
  for (const host of hosts.values()) if (host.findings.length) byId("hosts").append(make("option", { value: host.name }));

  // The address remembers what is looked at, so that it can be sent to somebody.
  const readHash = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const field of fields) {
      // A list takes only what it offers; what it does not show must not filter.
      byId(field).value = given.get(field) ?? "";
      if (byId(field).selectedIndex === -1) byId(field).value = "";
      state[field] = byId(field).value;
    }
    state.view = given.get("view") === "hosts" ? "hosts" : "findings";
    state.shown = PAGE;
  };
  const writeHash = () => {
    const kept = new URLSearchParams();
    if (state.view !== "findings") kept.set("view", state.view);
    for (const field of fields) if (state[field]) kept.set(field, state[field]);
    history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname + location.search);
  };

  const texts = new Map();
  const textOf = (finding) => {
    if (!texts.has(finding)) {
      const { host, control, severity, object, summary, code, reason, evidence, repair } = finding;
      texts.set(finding, JSON.stringify([host, control, severity, object, summary, code, reason, evidence, repair]).toLowerCase());
    }
    return texts.get(finding);
  };
  const ofStatus = {
    "": () => true,
    open: (finding) => finding.status === "open",
    accepted: (finding) => finding.status === "accepted",
    new: (finding) => finding.new,
    expired: (finding) => finding.expired_exception !== null,
  };
  const wantsHost = (name) => {
    const wanted = state.host.trim();
    return !wanted || (hosts.has(wanted) ? name === wanted : name.toLowerCase().includes(wanted.toLowerCase()));
  };
  const words = () => state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const findingsShown = () => {
    const wanted = words().map((word) => JSON.stringify(word).slice(1, -1));
    const status = ofStatus[state.status] ?? ofStatus[""];
    return report.findings.filter((finding) =>
      (!state.severity || finding.severity === state.severity)
      && (!state.control || finding.control === state.control)
      && status(finding) && wantsHost(finding.host)
      && wanted.every((word) => textOf(finding).includes(word)));
  };
  const hostsShown = () => {
    const found = new Map();
    for (const finding of findingsShown()) found.set(finding.host, [...(found.get(finding.host) ?? []), finding]);
    const filtered = state.severity || state.status;
    const wanted = words();
    const rows = [...hosts.values()].filter((host) => wantsHost(host.name) && (found.has(host.name) || (!filtered
      && (!state.control || state.control in host.controls)
      && wanted.every((word) => `${host.name} ${host.kind} ${host.status} ${host.code} ${host.reason}`.toLowerCase().includes(word)))));
    const rank = (host) => {
      const some = found.get(host.name) ?? [];
      return SEVERITIES.map((severity) => some.filter((finding) => finding.severity === severity).length);
    };
    const ranks = new Map(rows.map((host) => [host, rank(host)]));
    return rows.sort((one, other) => {
      const place = ranks.get(one).findIndex((number, index) => number !== ranks.get(other)[index]);
      if (place >= 0) return ranks.get(other)[place] - ranks.get(one)[place];
      return (one.status === "assessed") - (other.status === "assessed") || one.name.localeCompare(other.name);
    });
  };

  const chip = (kind, text) => make("span", { class: `chip ${kind}` }, text);
  const severityChip = (severity) => chip(severity, `${MARKS[severity]} ${severity}`);
  const titled = (thing) => `${thing.kind} ${thing.namespace ? `${thing.namespace}/` : ""}${thing.name}`;

  const data = (value) => {
    if (Array.isArray(value)) return value.length ? make("ul", {}, ...value.map((one) => make("li", {}, data(one)))) : document.createTextNode("none");
    if (value !== null && typeof value === "object") {
      return make("dl", {}, ...Object.entries(value).flatMap(([key, one]) => [make("dt", {}, key), make("dd", {}, data(one))]));
    }
    return document.createTextNode(value === "" ? "\u2013" : String(value));
  };
  const part = (title, ...inner) => [make("h3", {}, title), ...inner];
  const exceptionText = (one) => `${one.reason} \u2013 ${one.owner}, until ${one.expires}`;
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

  const copyButton = (text) => {
    const button = make("button", { type: "button" }, "Copy");
    button.addEventListener("click", async () => {
      let done = true;
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        // Pages from a disk may not use the clipboard everywhere.
        const area = make("textarea", { readonly: "" });
        area.value = text;
        document.body.append(area);
        area.select();
        done = document.execCommand("copy");
        area.remove();
      }
      button.textContent = done ? "Copied" : "Select it and copy by hand";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    return button;
  };

  const detail = (finding) => {
    const inner = [];
    if (finding.reason) inner.push(...part(`Verdict: ${finding.verdict}${finding.code ? ` (${finding.code})` : ""}`, make("p", {}, finding.reason)));
    else inner.push(...part("Verdict", make("p", {}, finding.verdict)));
    if (finding.exception) inner.push(...part("Accepted", make("p", {}, exceptionText(finding.exception))));
    if (finding.expired_exception) inner.push(...part("Was accepted, and counts again", make("p", {}, exceptionText(finding.expired_exception))));
    if (finding.command) {
      inner.push(...part(finding.verdict === "repair" ? "Repair: this shows what would be done; run it again without --check to do it" : "To look closer: this changes nothing",
        make("div", { class: "command" }, make("code", {}, finding.command), copyButton(finding.command))));
    }
    if (finding.repair.length) {
      inner.push(...part("Planned actions", make("ol", {}, ...finding.repair.map((action) =>
        make("li", {}, `${action.action} ${action.target} `, make("code", {}, action.command.map(quoted).join(" ")))))));
    }
    inner.push(...part("Evidence", Object.keys(finding.evidence).length ? data(finding.evidence) : make("p", {}, "none")));
    const link = make("a", { href: `#${new URLSearchParams({ host: finding.host })}` }, `All of ${finding.host}`);
    const facts = { object: titled(finding.object), node: finding.object.node, playbook: finding.runbook, fingerprint: finding.fingerprint };
    inner.push(...part("About", data(Object.fromEntries(Object.entries(facts).filter(([, value]) => value)))), make("p", {}, link));
    return make("div", { class: "detail" }, ...inner);
  };

  const findingRow = (finding) => {
    const chips = [
      finding.new ? chip("new", "new") : null,
      finding.status === "accepted" ? chip("accepted", "accepted") : null,
      finding.expired_exception ? chip("expired", "exception expired") : null,
    ];
    const button = make("button", { type: "button", class: "row" },
      make("span", {}, severityChip(finding.severity)),
      make("span", {}, finding.control || "no control"),
      make("span", {}, finding.host),
      make("span", { class: "what" }, finding.summary, make("span", { class: "object" }, ` \u2013 ${titled(finding.object)}`)),
      make("span", { class: "chips" }, ...chips));
    const item = make("li", {}, button);
    const show = () => {
      const open = state.opened.has(finding);
      button.setAttribute("aria-expanded", String(open));
      item.querySelector(".detail")?.remove();
      if (open) item.append(detail(finding));
    };
    button.addEventListener("click", () => {
      if (!state.opened.delete(finding)) state.opened.add(finding);
      show();
    });
    show();
    return item;
  };

  const hostRow = (host) => {
    const some = host.findings;
    const counted = SEVERITIES.map((severity) => [severity, some.filter((one) => one.severity === severity).length]).filter(([, number]) => number);
    const failing = Object.keys(host.controls).filter((control) => host.controls[control] === "fail");
    const button = make("button", { type: "button", class: "row host" },
      make("span", {}, host.name),
      make("span", {}, chip(host.status, WORDS[host.status])),
      make("span", { class: "why" }, host.reason || failing.join(", ") || (some.length ? "" : "nothing found")),
      make("span", { class: "chips" }, ...counted.map(([severity, number]) => chip(severity, `${MARKS[severity]} ${number} ${severity}`))));
    button.addEventListener("click", () => {
      Object.assign(state, { view: "findings", host: host.name, shown: PAGE });
      byId("host").value = host.name;
      update();
      byId("findings").focus();
    });
    return make("li", {}, button);
  };

  const reasonOf = (host, control) => {
    const why = host.reasons[control] ?? host.not_applicable[control];
    return why ? ` ${why}` : "";
  };
  const aboutHost = (host) => make("div", { class: "card" },
    make("h3", {}, host.kind === "node" ? "Host" : host.kind),
    make("p", {}, make("b", {}, host.name), " ", chip(host.status, WORDS[host.status]), host.reason ? ` ${host.reason}` : ""),
    make("ul", { class: "results" }, ...Object.entries(host.controls).map(([control, result]) =>
      make("li", {}, chip(result, `${control} ${WORDS[result]}`), reasonOf(host, control)))));

  let rows = [];
  const render = (from) => {
    const row = state.view === "hosts" ? hostRow : findingRow;
    const list = byId("list");
    if (!from) list.replaceChildren();
    list.append(...rows.slice(from, state.shown).map(row));
    const shown = Math.min(state.shown, rows.length);
    const total = state.view === "hosts" ? hosts.size : report.findings.length;
    const things = state.view === "hosts" ? "hosts" : "findings";
    byId("count").textContent = rows.length
      ? `${rows.length} of ${total} ${things}${shown < rows.length ? `, the first ${shown} are shown` : ""}`
      : total ? `None of ${total} ${things} match` : `There are no ${things}`;
    byId("more").hidden = shown >= rows.length;
  };
  const update = () => {
    rows = state.view === "hosts" ? hostsShown() : findingsShown();
    for (const view of ["findings", "hosts"]) byId(`view-${view}`).setAttribute("aria-pressed", String(state.view === view));
    const one = hosts.get(state.host.trim());
    byId("about-host").replaceChildren(...(one ? [aboutHost(one)] : []));
    render(0);
    writeHash();
  };

  let waiting;
  for (const field of fields) {
    byId(field).addEventListener("input", () => {
      state[field] = byId(field).value;
      state.shown = PAGE;
      clearTimeout(waiting);
      waiting = setTimeout(update, field === "q" || field === "host" ? 120 : 0);
    });
  }
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => {
    for (const field of fields) state[field] = "";
    state.shown = PAGE;
    setTimeout(update);
  });
  for (const view of ["findings", "hosts"]) {
    byId(`view-${view}`).addEventListener("click", () => { state.view = view; state.shown = PAGE; update(); });
  }
  byId("more").addEventListener("click", () => {
    const before = state.shown;
    state.shown += PAGE;
    render(before);
    byId("list").children[before]?.querySelector("button").focus();
  });
  // Links of the summary lead to the filtered list, and so does an address that somebody sent.
  window.addEventListener("hashchange", () => {
    if (location.hash === "#findings") return;
    readHash();
    update();
    byId("findings").scrollIntoView();
    byId("findings").focus({ preventScroll: true });
  });
  window.addEventListener("beforeprint", () => {
    const before = state.shown;
    state.shown = Math.max(before, Math.min(rows.length, PRINTED));
    if (state.shown > before) render(before);
  });

  readHash();
  byId("explorer").hidden = false;
  update();
  root.dataset.ready = "true";
})();
