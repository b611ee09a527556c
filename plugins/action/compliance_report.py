# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the controller, and reads what the audits returned where Ansible keeps it: none of it is templated or copied to a module."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.action import ActionBase

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._report import files, history, html, junit, model, prometheus
from ansible_collections.storage_ops.runbooks.plugins.module_utils._report.controls import CONTROLS, SEVERITIES
from ansible_collections.storage_ops.runbooks.plugins.module_utils._report.model import Occasion, Row, Scope
from ansible_collections.storage_ops.runbooks.plugins.module_utils._report.selection import Expression, make_exceptions

COLLECTION = Path(__file__).resolve().parents[2]
ASSETS = COLLECTION / "roles/compliance_report/files"
NAMES = {"json": "report.json", "html": "report.html", "prometheus": "storage_ops.prom", "junit": "junit.xml"}
MAX_WARNINGS = 10
SPEC: dict[str, dict[str, Any]] = {
    "hosts": {"type": "list", "elements": "str", "default": []},
    "result": {"type": "str", "default": "compliance_node"},
    "others": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "kind": {"type": "str", "choices": ["cluster", "ceph"], "required": True},
            "result": {"type": "str", "required": True},
        },
    },
    "inputs": {"type": "list", "elements": "path", "default": []},
    "controls": {"type": "list", "elements": "str", "choices": list(CONTROLS), "default": []},
    "severity": {"type": "str", "choices": list(SEVERITIES), "default": "info"},
    "select": {"type": "str", "default": ""},
    "exceptions": {"type": "raw", "default": []},
    "folder": {"type": "path", "default": "~/storage_compliance"},
    "keep": {"type": "int", "default": 90},
    "formats": {"type": "list", "elements": "str", "choices": list(NAMES), "default": list(NAMES)},
    "prometheus_file": {"type": "path", "default": ""},
    "title": {"type": "str", "default": "Storage compliance"},
    "cluster": {"type": "str", "default": "default"},
    "slice": {"type": "str", "default": ""},
    "started": {"type": "str", "default": ""},
    "validate_only": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action of this file."""

    TRANSFERS_FILES = False
    _requires_connection = False
    # It writes the report in check mode, too: what it reports on is not changed by that, and the play that gathers is always in check mode.
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check everything; then, unless that was all, write the report."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _ok, params = self.validate_argument_spec(argument_spec=SPEC)
        try:
            request = Request(params)
            if params["validate_only"]:
                return {**result, "changed": False, "started": request.started, "msg": "everything the report was asked for can be done"}
            return {**result, **request.write(request.rows(task_vars or {}))}
        except StorageOpsError as error:
            return {**result, "failed": True, "msg": str(error)}
        except OSError as error:
            return {**result, "failed": True, "msg": f"the report could not be written: {error}"}


class Request:
    """What is to be reported, checked before anything is done."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        controls = tuple(control for control in CONTROLS if control in params["controls"]) or tuple(CONTROLS)
        self.scope = Scope(controls, params["severity"], params["select"].strip())
        if self.scope.select:
            Expression(self.scope.select, "select")
        self.exceptions = make_exceptions(_parsed(params["exceptions"]))
        self.slice = _slice(params["slice"].strip())
        if params["keep"] < 1:
            raise StorageOpsError("keep must be 1 or more: the last run is what the next one is compared with")
        if not params["formats"]:
            raise StorageOpsError("formats must name at least one format")
        self.cluster = params["cluster"].strip()
        if not self.cluster:
            raise StorageOpsError("cluster must not be empty: it tells the fleets of one Prometheus apart")
        now = datetime.now(timezone.utc)
        self.started = params["started"] or now.strftime(model.TIME)
        # A clock that was set back must not cost the report.
        self.begun = min(_time(self.started), now)
        self._check_names()
        self.folder = os.path.abspath(os.path.expanduser(params["folder"]))
        files.prepare(self.folder)
        self.paths = {name: os.path.join(self.folder, NAMES[name]) for name in NAMES if name in params["formats"]}
        if "prometheus" in self.paths and params["prometheus_file"]:
            self.paths["prometheus"] = os.path.abspath(params["prometheus_file"])
            if not self.paths["prometheus"].endswith(".prom"):
                raise StorageOpsError("prometheus_file must end in .prom: node_exporter reads no other")
        for path in self.paths.values():
            files.check(path)

    def _check_names(self) -> None:
        names = [other["name"] for other in self.params["others"]]
        twice = sorted({name for name in names if names.count(name) > 1 or name in set(self.params["hosts"])})
        if twice:
            raise StorageOpsError(f"others must have names of their own, and these are used twice: {', '.join(twice)}")

    def rows(self, task_vars: Mapping[str, Any]) -> list[Row]:
        """What is reported on."""
        others = self._others(task_vars)
        if self.params["inputs"]:
            return self._joined(others)
        hostvars = task_vars.get("hostvars")
        if hostvars is None or not hasattr(hostvars, "raw_get"):
            raise StorageOpsError("the results of the hosts cannot be read: this ansible-core keeps them elsewhere")
        nodes = []
        for name in dict.fromkeys(self.params["hosts"]):
            variables = hostvars.raw_get(name)
            found = variables.get(self.params["result"]) if isinstance(variables, Mapping) else None
            nodes.append(model.read_result(name, "node", found, self.scope.controls))
        return [row for row in [*nodes, *others] if row]

    def _others(self, task_vars: Mapping[str, Any]) -> list[Row]:
        others = list(self.params["others"])
        if not any(other["kind"] == "cluster" for other in others):
            others.append({"name": _free_name("cluster", self.params["hosts"]), "kind": "cluster", "result": ""})
        rows = [model.read_result(one["name"], one["kind"], task_vars.get(one["result"]), self.scope.controls) for one in others]
        return [row for row in rows if row]

    def _joined(self, others: Sequence[Row]) -> list[Row]:
        """Earlier reports as one; it is of the fleet that they are of, asks what they asked, and began when the first of them did."""
        paths = [os.path.abspath(os.path.expanduser(path)) for path in self.params["inputs"]]
        parts = [model.read_report(files.read_report(path), path) for path in paths]
        self.scope, self.cluster = parts[0].scope, parts[0].cluster
        self.begun = min(part.started for part in parts)
        if not self.exceptions:
            told = {tuple(sorted(one.items())): one for part in parts for one in part.exceptions}
            self.exceptions = make_exceptions(list(told.values()))
        return model.join(parts, others, self.params["hosts"])

    def write(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Make the report and write all of it."""
        params = self.params
        runs, unread = files.read_runs(self.folder)
        now = datetime.now(timezone.utc)
        occasion = Occasion(params["title"], self.cluster, self.begun, now, _version(), self.slice)
        earlier = history.comparable(runs, model.describe_run(occasion, self.scope))
        previous = earlier[-1] if earlier else None
        report = model.build(rows, self.scope, self.exceptions, occasion, previous)
        text = json.dumps(report, separators=(",", ":"))
        if "json" in self.paths:
            files.write(self.paths["json"], text + "\n")
        if "html" in self.paths:
            files.write(self.paths["html"], html.render(report, text, history.trend(earlier, report), html.Assets.read(ASSETS)))
        if "prometheus" in self.paths:
            files.write(self.paths["prometheus"], prometheus.render(report))
        if "junit" in self.paths:
            files.write(self.paths["junit"], junit.render(report))
        # Last: a run counts as one when everything of it is there.
        files.keep_run(self.folder, report["run"]["id"], history.keep(report, previous), params["keep"])
        return {
            "changed": True,
            "msg": model.sentence(report),
            "failing": model.failing(report),
            "summary": model.counts(report),
            "files": list(self.paths.values()),
            **({"warnings": told} if (told := _warnings(report, unread)) else {}),
        }


def _parsed(given: Any) -> Any:
    """A survey's text area sends YAML or JSON as text; an empty one means none."""
    if not isinstance(given, str):
        return given or []
    try:
        return yaml_load(str.__str__(given)) or []
    except Exception as error:  # of PyYAML, or of how deep it can look
        raise StorageOpsError(f"exceptions are no YAML: {str(error).splitlines()[0]}") from error


def _slice(given: str) -> tuple[int, int] | None:
    if not given:
        return None
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", given)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise StorageOpsError(f"slice must be number/count, as in 2/5, and is {given!r}")
    return int(found[1]), int(found[2])


def _time(given: str) -> datetime:
    try:
        return datetime.strptime(given, model.TIME).replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise StorageOpsError(f"started must be a time as 2026-12-31T23:59:59Z, and is {given!r}") from error


def _free_name(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else f"{name} (Kubernetes)"


def _version() -> str:
    """Of the collection: as it was installed, or as it is in a checkout."""
    manifest, source = COLLECTION / "MANIFEST.json", COLLECTION / "galaxy.yml"
    if manifest.exists():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    return str(yaml_load(source.read_text(encoding="utf-8"))["version"]) if source.exists() else "unknown"


def _warnings(report: Mapping[str, Any], unread: Sequence[str]) -> list[str]:
    said = [f"runs/{name} is no run of this version, and was left out of the trend" for name in unread]
    scope = report["run"]["scope"]
    said += [f"{scope['select_error']}; all findings are shown"] if "select_error" in scope else []
    said += [f"{one['error']}; it accepts nothing" for one in report["exceptions"] if "error" in one]
    return said[:MAX_WARNINGS]
