# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the controller, and reads the results of the audits where Ansible keeps them.

So none of them is templated or copied to a module.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.action import ActionBase

from ..module_utils._compliance import (
    affected,
    assembly,
    clean,
    files,
    history,
    html,
    junit,
    model,
    overview,
    prometheus,
    reading,
)
from ..module_utils._compliance.model import Occasion, Scope
from ..module_utils._compliance.reading import Row
from ..module_utils._compliance.selection import Expression, make_exceptions
from ..module_utils._core.controls import CONTROLS
from ..module_utils._core.engine import SEVERITIES
from ..module_utils._core.errors import BadOption, StorageOpsError
from ..module_utils._core.untrusted import few

COLLECTION = Path(__file__).resolve().parents[2]
ASSETS = COLLECTION / "roles/compliance_report/files"
NAMES = {
    "json": "report.json",
    "html": "report.html",
    "prometheus": "storage_ops.prom",
    "junit": "junit.xml",
}
PARTIAL = "a part of the fleet only, so neither metrics nor a run to compare with were written"
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
    "users": {"type": "str", "default": ""},
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
    "fleet": {"type": "str", "default": model.NO_FLEET},
    "slice": {"type": "str", "default": ""},
    "partial": {"type": "bool"},
    "started": {"type": "str", "default": ""},
    "validate_only": {"type": "bool", "default": False},
    "ask_only": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action of this file."""

    TRANSFERS_FILES = False
    _requires_connection = False
    # It writes the report in check mode as well: that changes no host, and the play that gathers is
    # always in check mode.
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Check everything; then, unless that was all, write the report."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _ok, params = self.validate_argument_spec(argument_spec=SPEC)
        try:
            request = Request(params)
            if params["validate_only"]:
                return {
                    **result,
                    "changed": False,
                    "started": request.started,
                    "msg": "everything the report was asked for can be done",
                }
            rows = request.rows(task_vars or {})
            if params["ask_only"]:
                return {**result, "changed": False, **request.question(rows)}
            return {**result, **request.write(rows, (task_vars or {}).get(params["users"]))}
        except StorageOpsError as error:
            return {**result, "failed": True, "msg": str(error), "code": error.code}
        except OSError as error:
            said = f"the report could not be written: {error}"
            return {**result, "failed": True, "msg": said, "code": "file_unusable"}


class Request:
    """What is to be reported, checked before anything is done."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        now = datetime.now(timezone.utc)
        self.scope = _scope(params)
        self.exceptions = make_exceptions(_parsed(params["exceptions"]), now.date())
        self.slice = _slice(params["slice"].strip())
        self.fleet = params["fleet"].strip()
        self._check()
        self.started = params["started"] or now.strftime(model.TIME)
        # A clock that was set back must not cost the report.
        self.begun = min(_time(self.started), now)
        self.parts = self._parts()
        # A report that leaves something out must not pass for the fleet, neither in metrics nor as
        # the run that the next one is compared with.
        narrow = self.scope != Scope() or self.slice is not None
        self.partial = narrow if params["partial"] is None else params["partial"]
        self.folder = os.path.abspath(os.path.expanduser(params["folder"]))
        # Those of two inventories of one user must not replace each other. Parts are where the
        # user has put them, and so is what is made of them.
        if not self.parts and self.folder == os.path.expanduser(SPEC["folder"]["default"]):
            self.folder += _suffix(self.fleet)
        self._refuse_that_of_another()
        # The last whole report stays where it is.
        if self.partial and files.has_runs(self.folder):
            self.folder = os.path.join(self.folder, "partial")
        files.prepare(self.folder, *([] if self.partial else ["runs"]))
        self.paths = self._paths()
        for path in self.paths.values():
            files.check(path)

    def _check(self) -> None:
        """Options that nothing else checks."""
        if self.params["keep"] < 1:
            raise BadOption(
                "keep must be 1 or more: the last run is what the next one is compared with"
            )
        if not self.params["formats"]:
            raise BadOption("formats must name at least one format")
        if not self.fleet:
            raise BadOption("fleet must not be empty: it tells the fleets of one Prometheus apart")

    def _refuse_that_of_another(self) -> None:
        """Replace no report of another fleet, and compare with none."""
        kept = files.owner(self.folder)
        # Part of a fleet may be any of its nodes, those that are new as well.
        names = [] if self.partial else self.params["hosts"]
        nodes = [clean.line(name, 300) for name in names]
        other = history.of_another(kept, clean.line(self.fleet, 200), nodes) if kept else ""
        if other:
            raise StorageOpsError(
                f"{self.folder} has the report of {other}, which this one would replace: give this "
                "inventory a folder of its own (compliance_report_folder), or, without one, a name "
                "(compliance_report_fleet); if it is the same fleet, move report.json "
                "and runs away from there",
                code="file_unusable",
            )

    def _paths(self) -> dict[str, str]:
        """The files to write, by format."""
        paths = {
            name: os.path.join(self.folder, NAMES[name])
            for name in NAMES
            if name in self.params["formats"]
        }
        if self.partial:
            paths.pop("prometheus", None)
        if "prometheus" in paths and self.params["prometheus_file"]:
            paths["prometheus"] = os.path.abspath(self.params["prometheus_file"])
            # The text file collector reads *.prom (node_exporter, collector/textfile.go).
            if not paths["prometheus"].endswith(".prom"):
                raise BadOption("prometheus_file must end in .prom: node_exporter reads no other")
        return paths

    def _parts(self) -> list[reading.Part]:
        """Earlier reports that become one, with their fleet and scope and the earliest start."""
        paths = [os.path.abspath(os.path.expanduser(path)) for path in self.params["inputs"]]
        parts = [reading.read_report(files.read_report(path), path) for path in paths]
        if not parts:
            return []
        # Scopes given here and by the inputs must agree; what was not given here has its default.
        asked, theirs = self.scope, parts[0].scope
        for name, default in Scope().to_result().items():
            if asked.to_result()[name] not in (default, theirs.to_result()[name]):
                raise BadOption(
                    f"{name} cannot differ from what the inputs asked for: what they left out is "
                    "in none of them"
                )
        self.scope, self.fleet = theirs, parts[0].cluster
        self.begun = min(part.started for part in parts)
        return parts

    def rows(self, task_vars: Mapping[str, Any]) -> list[Row]:
        """What is reported on."""
        others = self._others(task_vars)
        if self.parts:
            return self._joined(others)
        # raw_get returns a host's variables without templating them (HostVars of
        # ansible/vars/hostvars.py): results of hosts must not be evaluated.
        hostvars = task_vars.get("hostvars")
        if hostvars is None or not hasattr(hostvars, "raw_get"):
            raise StorageOpsError(
                "the results of the hosts cannot be read: this ansible-core keeps them elsewhere",
                code="unexpected_error",
            )
        nodes = []
        for name in dict.fromkeys(self.params["hosts"]):
            variables = hostvars.raw_get(name)
            found = variables.get(self.params["result"]) if isinstance(variables, Mapping) else None
            nodes.append(reading.read_result(name, "node", found, self.scope.controls))
        return reading.name_apart([row for row in [*nodes, *others] if row])

    def _others(self, task_vars: Mapping[str, Any]) -> list[Row]:
        # A report always says something about the cluster, if only that there was no access.
        others = list(self.params["others"])
        if not any(other["kind"] == "cluster" for other in others):
            others.append({"name": "cluster", "kind": "cluster", "result": ""})
        rows = [
            reading.read_result(
                one["name"], one["kind"], task_vars.get(one["result"]), self.scope.controls
            )
            for one in others
        ]
        return [row for row in rows if row]

    def _joined(self, others: Sequence[Row]) -> list[Row]:
        """Earlier reports as one."""
        if not self.exceptions:
            # Several reports may have the same exception.
            given = {
                tuple(sorted(one.items())): one for part in self.parts for one in part.exceptions
            }
            self.exceptions = make_exceptions(
                list(given.values()), datetime.now(timezone.utc).date()
            )
        return reading.join(self.parts, others, self.params["hosts"])

    def question(self, rows: Sequence[Row]) -> dict[str, Any]:
        """What volume_user_info can say about the findings."""
        # The worst first, since not all have room in one question.
        found = sorted(
            (finding for row in rows for finding in row.findings),
            key=lambda finding: SEVERITIES.index(finding["severity"]),
        )
        asked = affected.question(found)
        said = (
            f"{len(asked['volumes'])} volumes and {len(asked['pods'])} pods are named by findings"
        )
        return {"question": asked, "msg": said}

    def write(self, rows: Sequence[Row], told: Any = None) -> dict[str, Any]:
        """Make the report and write all of it; ``told``: the answer of volume_user_info."""
        params = self.params
        # Who is affected is not worth losing the report for.
        users, warned = affected.NOT_ASKED, []
        try:
            users = affected.read_users(told)
        except ValueError as error:
            warned.append(f"who is affected is not known: {error}")
        runs, unread = files.read_runs(self.folder) if not self.partial else ([], [])
        now = datetime.now(timezone.utc)
        occasion = Occasion(
            params["title"], self.fleet, self.begun, now, _version(), self.slice, self.partial
        )
        earlier = history.comparable(runs, assembly.describe_run(occasion, self.scope))
        previous = earlier[-1] if earlier else None
        report = assembly.build(rows, self.scope, self.exceptions, occasion, previous, users)
        text = json.dumps(report, separators=(",", ":"))
        render: dict[str, Callable[[], str]] = {
            "json": lambda: text + "\n",
            "html": lambda: html.render(
                report, text, history.trend(earlier, report), html.Assets.read(ASSETS)
            ),
            "prometheus": lambda: prometheus.render(report),
            "junit": lambda: junit.render(report),
        }
        # All are rendered before the first is written: a mixture of two runs would be worse than
        # the files of the last one.
        rendered = {name: render[name]() for name in self.paths}
        for name, path in self.paths.items():
            # node_exporter must read its file; all others are for the user's group.
            files.write(path, rendered[name], 0o644 if name == "prometheus" else 0o640)
        # Written last: the next run compares itself only with a complete one.
        if not self.partial:
            files.keep_run(
                self.folder, report["run"]["id"], history.keep(report, previous), params["keep"]
            )
        # Ansible prints warnings as they are, and an expression's error quotes what nodes say.
        warnings = [clean.line(one) for one in (*_warnings(report, unread, self.parts), *warned)]
        return {
            "changed": True,
            "msg": overview.sentence(report) + (f"; {PARTIAL}" if self.partial else ""),
            "failing": overview.failing(report),
            "unassessed": overview.unassessed(report),
            "summary": overview.counts(report),
            "files": list(self.paths.values()),
            **({"warnings": warnings} if warnings else {}),
        }


def _scope(params: Mapping[str, Any]) -> Scope:
    """The scope, with the controls in their order; all where none is named."""
    named = tuple(control for control in CONTROLS if control in params["controls"])
    scope = Scope(named or tuple(CONTROLS), params["severity"], params["select"].strip())
    if scope.select:
        # Only to refuse a wrong expression before anything is gathered.
        Expression(scope.select, "select")
    return scope


def _parsed(given: Any) -> Any:
    """The exceptions; a survey's text area sends YAML or JSON as text."""
    if not isinstance(given, str):
        return given or []
    try:
        return yaml_load(str.__str__(given)) or []
    # Any exception: PyYAML's own, or a RecursionError for deeply nested text.
    except Exception as error:
        raise BadOption(f"exceptions are not YAML: {str(error).splitlines()[0]}") from error


def _suffix(fleet: str) -> str:
    """What a fleet's own folder has behind the name of the default one; nothing for no fleet."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", fleet)
    return "" if fleet == model.NO_FLEET else f"_{name}"


def _slice(given: str) -> tuple[int, int] | None:
    if not given:
        return None
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", given, re.ASCII)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise BadOption(f"slice must be number/count, as in 2/5, and is {given!r}")
    return int(found[1]), int(found[2])


def _time(given: str) -> datetime:
    try:
        return datetime.strptime(given, model.TIME).replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise BadOption(
            f"started must be a time as 2026-12-31T23:59:59Z, and is {given!r}"
        ) from error


def _version() -> str:
    """The version of the collection, from its manifest, or from galaxy.yml in a checkout."""
    manifest, source = COLLECTION / "MANIFEST.json", COLLECTION / "galaxy.yml"
    if manifest.exists():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    return (
        str(yaml_load(source.read_text(encoding="utf-8"))["version"])
        if source.exists()
        else "unknown"
    )


def _warnings(
    report: Mapping[str, Any], unread: Sequence[str], parts: Sequence[reading.Part]
) -> list[str]:
    said: list[str] = []
    scope = report["run"]["scope"]
    said += [f"{scope['select_error']}; all findings are shown"] if "select_error" in scope else []
    said += [
        f"{one['error']}; it accepts nothing" for one in report["exceptions"] if "error" in one
    ]
    twice = reading.repeated(parts)
    more = f" and {len(twice) - MAX_WARNINGS} more" if len(twice) > MAX_WARNINGS else ""
    said += (
        [
            "in more than one report, of which the newest counts: "
            f"{', '.join(twice[:MAX_WARNINGS])}{more}"
        ]
        if twice
        else []
    )
    if unread:
        names = few(f"runs/{name}" for name in unread)
        said.append(f"left out of the trend, since they are no runs of this version: {names}")
    return said[:MAX_WARNINGS]
