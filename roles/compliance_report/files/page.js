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

  const fields = ["q", "severity", "control", "status", "cause", "namespace", "workload", "host", "sort"];
  // Findings of one cause wait for the same decision: the code of a refusal, or what is to be done.
  const causeOf = (finding) => finding.code || finding.verdict;
  const state = { view: "findings", shown: PAGE, opened: new Set() };
  for (const field of fields) state[field] = "";

  for (const severity of SEVERITIES) byId("severity").append(make("option", { value: severity }, severity));
  for (const control of report.controls) byId("control").append(make("option", { value: control.id }, `${control.id} ${control.title}`));
  for (const cause of [...new Set(report.findings.map(causeOf))].sort()) byId("cause").append(make("option", { value: cause }, cause));
  for (const host of hosts.values()) if (host.findings.length) byId("hosts").append(make("option", { value: host.name }));
  const affected = (finding, kind) => finding.affected[kind] ?? { count: 0, names: [] };
  const namespacesOf = (finding) => affected(finding, "namespaces").names;
  for (const name of [...new Set(report.findings.flatMap(namespacesOf))].sort()) byId("namespaces").append(make("option", { value: name }));

  const workloadsOf = (finding) => affected(finding, "owners").names;
  for (const name of [...new Set(report.findings.flatMap(workloadsOf))].sort()) byId("workloads").append(make("option", { value: name }));

  const VIEWS = ["findings", "hosts", "causes", "namespaces", "workloads"];
  // The address remembers what is looked at, so that it can be sent to somebody.
  const readHash = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const field of fields) {
      // A list takes only what it offers; what it does not show must not filter.
      byId(field).value = given.get(field) ?? "";
      if (byId(field).selectedIndex === -1) byId(field).value = "";
      state[field] = byId(field).value;
    }
    state.view = VIEWS.includes(given.get("view")) ? given.get("view") : "findings";
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
      const { host, control, severity, object, summary, code, reason, evidence, repair, affected } = finding;
      texts.set(finding, JSON.stringify([host, control, severity, object, summary, code, reason, evidence, repair, affected]).toLowerCase());
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
  const SORTS = {
    oldest: (one, other) => one.first_seen.localeCompare(other.first_seen),
    host: (one, other) => one.host.localeCompare(other.host),
    namespace: (one, other) => (namespacesOf(one)[0] ?? "").localeCompare(namespacesOf(other)[0] ?? ""),
    pods: (one, other) => affected(other, "pods").count - affected(one, "pods").count,
  };
  const words = () => state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const findingsShown = () => {
    const wanted = words().map((word) => JSON.stringify(word).slice(1, -1));
    const status = ofStatus[state.status] ?? ofStatus[""];
    const found = report.findings.filter((finding) =>
      (!state.severity || finding.severity === state.severity)
      && (!state.control || finding.control === state.control)
      && (!state.cause || causeOf(finding) === state.cause)
      && (!state.namespace || namespacesOf(finding).includes(state.namespace.trim()))
      && (!state.workload || workloadsOf(finding).includes(state.workload.trim()))
      && status(finding) && wantsHost(finding.host)
      && wanted.every((word) => textOf(finding).includes(word)));
    // The report has the worst first, and sorting keeps that order among equals.
    return Object.hasOwn(SORTS, state.sort) ? found.sort(SORTS[state.sort]) : found;
  };
  const numbers = (some) => SEVERITIES.map((severity) => some.filter((finding) => finding.severity === severity).length);
  const worse = (one, other) => {
    const place = one.findIndex((number, index) => number !== other[index]);
    return place < 0 ? 0 : other[place] - one[place];
  };
  // A finding is in each of its groups.
  const groupsShown = (groupsOf) => {
    const found = new Map();
    for (const finding of findingsShown()) {
      for (const group of groupsOf(finding)) {
        const key = JSON.stringify(group);
        if (!found.has(key)) found.set(key, { fields: group, findings: [] });
        found.get(key).findings.push(finding);
      }
    }
    const groups = [...found.values()];
    for (const group of groups) group.numbers = numbers(group.findings);
    return groups.sort((one, other) => worse(one.numbers, other.numbers));
  };
  const hostsShown = () => {
    const found = new Map();
    for (const finding of findingsShown()) {
      if (!found.has(finding.host)) found.set(finding.host, []);
      found.get(finding.host).push(finding);
    }
    const filtered = state.severity || state.status || state.cause || state.namespace || state.workload;
    const wanted = words();
    const rows = [...hosts.values()].filter((host) => wantsHost(host.name) && (found.has(host.name) || (!filtered
      && (!state.control || state.control in host.controls)
      && wanted.every((word) => `${host.name} ${host.kind} ${host.status} ${host.code} ${host.reason}`.toLowerCase().includes(word)))));
    const ranks = new Map(rows.map((host) => [host, numbers(found.get(host.name) ?? [])]));
    return rows.sort((one, other) => worse(ranks.get(one), ranks.get(other))
      || (one.status === "assessed") - (other.status === "assessed") || one.name.localeCompare(other.name));
  };

  const chip = (kind, text) => make("span", { class: `chip ${kind}` }, text);
  const severityChip = (severity) => chip(severity, `${MARKS[severity]} ${severity}`);
  // A run of a part is compared with no other, so it does not know how old a finding is.
  const ageOf = (finding) => {
    if (report.run.partial) return "";
    const days = Math.floor((Date.parse(report.run.started) - Date.parse(finding.first_seen)) / 86400000);
    return days > 0 ? `${days} d` : "";
  };
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

  // An audit was asked for no repair, so it refuses none.
  const VERDICTS = { repair: "Can be repaired", refuse: "Needs attention: a repair would refuse it", report: "Needs attention" };
  const KINDS = { pods: "Pods", claims: "Claims", namespaces: "Namespaces", owners: "Workloads" };
  const namedOf = ({ count, names }) => (names.length ? `${names.join(", ")}${count > names.length ? ` and ${count - names.length} more` : ""}` : "not known by name");
  const affectedList = (finding) => {
    const there = Object.keys(KINDS).filter((kind) => affected(finding, kind).count);
    const rest = finding.affected.complete ? [] : [make("p", { class: "soft" }, there.length ? "There may be more: not all of it is known." : "Not known.")];
    const told = Object.fromEntries(there.map((kind) => [`${KINDS[kind]} (${affected(finding, kind).count})`, namedOf(affected(finding, kind))]));
    return [...(there.length ? [data(told)] : []), ...rest];
  };

  const detail = (finding) => {
    const inner = [];
    inner.push(...part(`${VERDICTS[finding.verdict]}${finding.code ? ` (${finding.code})` : ""}`, ...(finding.reason ? [make("p", {}, finding.reason)] : [])));
    if (finding.exception) inner.push(...part("Accepted", make("p", {}, exceptionText(finding.exception))));
    if (finding.expired_exception) inner.push(...part("Was accepted, and counts again", make("p", {}, exceptionText(finding.expired_exception))));
    if (finding.command) {
      inner.push(...part(finding.verdict === "repair" ? "Repair: this shows what would be done; run it again without --check to do it" : "To look closer: this changes nothing",
        make("div", { class: "command" }, make("code", {}, finding.command), copyButton(finding.command))));
    }
    inner.push(...part("Affected", ...affectedList(finding)));
    if (finding.repair.length) {
      // No code, and nothing to copy: unlike the command above, root on the host may have written it.
      inner.push(...part(`Planned actions, as ${finding.host} says`, make("ol", {}, ...finding.repair.map((action) =>
        make("li", {}, `${action.action} ${action.target} `, make("span", { class: "soft" }, action.command.join(" ")))))));
    }
    inner.push(...part("Evidence", Object.keys(finding.evidence).length ? data(finding.evidence) : make("p", {}, "none")));
    const link = make("a", { href: `#${new URLSearchParams({ host: finding.host })}` }, `All of ${finding.host}`);
    const seen = report.run.partial ? "" : finding.first_seen;
    const facts = { object: titled(finding.object), node: finding.object.node, "first seen": seen, playbook: finding.runbook, fingerprint: finding.fingerprint };
    inner.push(...part("About", data(Object.fromEntries(Object.entries(facts).filter(([, value]) => value)))), make("p", {}, link));
    return make("div", { class: "detail" }, ...inner);
  };

  const findingRow = (finding) => {
    const chips = [
      finding.new ? chip("new", "new") : null,
      ageOf(finding) ? make("span", { class: "soft", title: `first seen ${finding.first_seen}` }, ageOf(finding)) : null,
      affected(finding, "pods").count ? make("span", { class: "soft" }, `${affected(finding, "pods").count} pod${affected(finding, "pods").count === 1 ? "" : "s"}`) : null,
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

  const numberChips = (counted) => SEVERITIES.map((severity, index) => [severity, counted[index]]).filter(([, number]) => number)
    .map(([severity, number]) => chip(severity, `${MARKS[severity]} ${number} ${severity}`));
  const showFindings = (wanted) => {
    Object.assign(state, wanted, { view: "findings", shown: PAGE });
    for (const field of Object.keys(wanted)) byId(field).value = wanted[field];
    update();
    byId("findings").focus();
  };

  const hostRow = (host) => {
    const some = host.findings;
    const failing = Object.keys(host.controls).filter((control) => host.controls[control] === "fail");
    const button = make("button", { type: "button", class: "row host" },
      make("span", {}, host.name),
      make("span", {}, chip(host.status, WORDS[host.status])),
      make("span", { class: "why" }, host.reason || failing.join(", ") || (some.length ? "" : "nothing found")),
      make("span", { class: "chips" }, ...numberChips(numbers(some))));
    button.addEventListener("click", () => showFindings({ host: host.name }));
    return make("li", {}, button);
  };

  const faults = new Map(report.controls.map((control) => [control.id, control.fault]));
  const few = (names) => `${names.slice(0, 3).join(", ")}${names.length > 3 ? ` and ${names.length - 3} more` : ""}`;
  const groupRow = (group) => {
    const { control, cause, namespace, workload } = group.fields;
    const where = few([...new Set(group.findings.map((finding) => finding.host))]);
    const name = control === undefined ? namespace ?? workload : `${control || "no control"} ${cause}`;
    const what = control === undefined ? few([...new Set(group.findings.map((finding) => titled(finding.object)))]) : faults.get(control) ?? "";
    const button = make("button", { type: "button", class: "row host" },
      make("span", {}, name),
      make("span", {}, `${group.findings.length} finding${group.findings.length === 1 ? "" : "s"}`),
      make("span", { class: "why" }, what, make("span", { class: "object" }, ` \u2013 ${where}`)),
      make("span", { class: "chips" }, ...numberChips(group.numbers)));
    button.addEventListener("click", () => showFindings(group.fields));
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

  const views = {
    findings: { rows: findingsShown, row: findingRow, total: report.findings.length },
    hosts: { rows: hostsShown, row: hostRow, total: hosts.size },
    causes: { rows: () => groupsShown((finding) => [{ control: finding.control, cause: causeOf(finding) }]), row: groupRow },
    namespaces: { rows: () => groupsShown((finding) => namespacesOf(finding).map((namespace) => ({ namespace }))), row: groupRow },
    workloads: { rows: () => groupsShown((finding) => workloadsOf(finding).map((workload) => ({ workload }))), row: groupRow },
  };
  let rows = [];
  const render = (from) => {
    const { row, total } = views[state.view];
    const list = byId("list");
    if (!from) list.replaceChildren();
    list.append(...rows.slice(from, state.shown).map(row));
    const shown = Math.min(state.shown, rows.length);
    const there = `${rows.length}${total === undefined ? "" : ` of ${total}`} ${state.view}`;
    byId("count").textContent = rows.length
      ? `${there}${shown < rows.length ? `, the first ${shown} are shown` : ""}`
      : total ? `None of ${total} ${state.view} match` : `There are no ${state.view}`;
    byId("more").hidden = shown >= rows.length;
  };
  const update = () => {
    rows = views[state.view].rows();
    for (const view of VIEWS) byId(`view-${view}`).setAttribute("aria-pressed", String(state.view === view));
    const one = hosts.get(state.host.trim());
    byId("about-host").replaceChildren(...(one ? [aboutHost(one)] : []));
    render(0);
    writeHash();
  };

  // A spreadsheet takes what begins with one of these for a formula (OWASP, CSV injection). Where it separates cells by
  // semicolons, what follows one in a text begins a cell as well.
  const FORMULA = /(^|;)([\s"]*)(?=[=+\-@\t\r\uff1d\uff0b\uff0d\uff20])/g;
  const cell = (value) => `"${String(value).replace(FORMULA, "$1$2'").replaceAll('"', '""')}"`;
  const COLUMNS = {
    severity: (one) => one.severity, control: (one) => one.control, status: (one) => one.status,
    first_seen: (one) => (report.run.partial ? "" : one.first_seen), host: (one) => one.host, kind: (one) => one.object.kind,
    namespace: (one) => one.object.namespace, name: (one) => one.object.name, node: (one) => one.object.node,
    ...Object.fromEntries(Object.keys(KINDS).flatMap((kind) => [
      [`affected_${kind}`, (one) => affected(one, kind).names.join(", ")],
      [`affected_${kind}_count`, (one) => String(affected(one, kind).count)]])),
    affected_complete: (one) => String(one.affected.complete),
    summary: (one) => one.summary, verdict: (one) => one.verdict, code: (one) => one.code, reason: (one) => one.reason,
    command: (one) => one.command,
  };
  byId("csv").addEventListener("click", () => {
    const lines = [Object.keys(COLUMNS), ...findingsShown().map((one) => Object.values(COLUMNS).map((column) => column(one)))];
    const text = lines.map((line) => line.map(cell).join(",")).join("\r\n");
    // The mark tells spreadsheets that it is UTF-8.
    const link = make("a", { href: URL.createObjectURL(new Blob([`\ufeff${text}\r\n`], { type: "text/csv" })), download: `findings-${report.run.id}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });

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
  for (const view of VIEWS) {
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
  // On a phone the findings come first; the filters are a touch away.
  byId("filter-box").open = !window.matchMedia("(max-width: 640px)").matches;
  update();
  root.dataset.ready = "true";
})();
