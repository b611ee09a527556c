# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Whether a node is ready for iSCSI, and what makes it so. Pure: no I/O here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    Finding,
    Plan,
)

RUNBOOK = "storage_ops.runbooks.load_iscsi_modules"
INITIATOR_FILE = "/etc/iscsi/initiatorname.iscsi"
_IQN = re.compile(
    r"^(iqn\.\d{4}-\d{2}\.[a-z0-9.\-]+(:\S+)?|eui\.[0-9A-Fa-f]{16}|naa\.([0-9A-Fa-f]{16}"
    r"|[0-9A-Fa-f]{32}))$"
)


@dataclass(frozen=True)
class Options:
    """What the user asked for and allows; see the documentation of iscsi_module_check."""

    modules: tuple[str, ...] = ("iscsi_tcp",)
    persist: bool = True
    load_blacklisted: bool = False
    start_iscsid: bool = False
    peer_initiator_names: dict[str, str] = field(default_factory=dict)
    peer_boot_ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """A kernel module.

    ``installed_for``: the kernels it is installed for. ``blacklisted``: the configuration line that
    forbids it. ``blocked``: what keeps it from being loaded even where that line is overruled.
    """

    name: str
    loaded: bool
    built_in: bool
    installed_for: tuple[str, ...]
    blacklisted: str
    persisted: str
    missing_dependencies: tuple[str, ...]
    blocked: str = ""

    @property
    def ready(self) -> bool:
        """In the running kernel, with everything it stands on."""
        return self.built_in or (self.loaded and not self.missing_dependencies)


@dataclass(frozen=True)
class State:
    """What was read.

    ``iscsid``: systemd's word for service and socket. ``initiator_names``: None if there is no such
    file. ``boot_id``: of the running kernel; a clone has another one, whatever else it shares.
    """

    node: str
    kernel: str
    modules: tuple[Module, ...]
    iscsid: dict[str, str]
    initiator_names: tuple[str, ...] | None
    boot_id: str = ""


def plan(state: State, options: Options) -> Plan:
    """Findings for each module, iscsid and the initiator name; a pure function."""
    findings = [
        finding
        for module in state.modules
        for finding in [_judge_module(state, module, options)]
        if finding
    ]
    for finding in (_judge_iscsid(state, options), _judge_initiator(state, options)):
        findings += [finding] if finding else []
    return Plan(findings)


def _finding(
    state: State, severity: str, kind: str, name: str, summary: str, reason: str
) -> Finding:
    return Finding(
        control="STOR-04",
        severity=severity,
        kind=kind,
        name=name,
        node=state.node,
        summary=summary,
        verdict="repair",
        reason=reason,
        runbook=RUNBOOK,
    )


def _judge_module(state: State, module: Module, options: Options) -> Finding | None:
    persisted = module.built_in or bool(module.persisted) or not options.persist
    if module.ready and persisted:
        return None
    finding = _finding(
        state, "minor" if module.ready else "major", "kernel module", module.name, "", ""
    )
    finding.evidence = {
        "kernel": state.kernel,
        "loaded": module.loaded,
        "built_in": module.built_in,
        "installed_for": list(module.installed_for),
        "blacklisted": module.blacklisted,
        "blocked": module.blocked,
        "persisted": module.persisted,
        "missing_dependencies": list(module.missing_dependencies),
    }
    if not module.ready:
        finding.summary = (
            f"{module.name} is not loaded"
            if not module.loaded
            else f"{module.name} lacks {', '.join(module.missing_dependencies)}"
        )
        finding.reason = f"it is installed for the running kernel {state.kernel}"
        finding.repair.append(Action("load_module", module.name, _modprobe(module)))
    else:
        finding.summary = f"{module.name} is loaded, but nothing loads it at the next boot"
        finding.reason = "iSCSI volumes would not come back after a reboot"
    if not persisted:
        path = f"/etc/modules-load.d/storage_ops-{module.name}.conf"
        finding.repair.append(Action("persist_module", module.name, ["write", path, module.name]))
    if not module.ready and state.kernel not in module.installed_for:
        install = "install the running kernel's modules"
        elsewhere = (
            f"only for {', '.join(module.installed_for)}: reboot into that kernel, or {install}"
            if module.installed_for
            else install
        )
        finding.refuse(
            Reason(
                "module_missing",
                f"{module.name} is not installed for the running kernel {state.kernel}, "
                f"{elsewhere}",
            )
        )
    elif module.blocked and not module.ready:
        finding.refuse(Reason("module_blocked", f"it cannot be loaded: {module.blocked}"))
    elif module.blacklisted and not module.ready and not options.load_blacklisted:
        finding.refuse(
            Reason(
                "module_blocked",
                f"it is blacklisted by {module.blacklisted}: remove that line, or set "
                "load_blacklisted",
            )
        )
    return finding


def _modprobe(module: Module) -> list[str]:
    """An install line in modprobe.d would run instead of loading the module; whoever accepts the
    blacklist wants it passed over.
    """
    return ["modprobe", *(["--ignore-install"] if module.blacklisted else []), module.name]


def _judge_iscsid(state: State, options: Options) -> Finding | None:
    if is_active(state.iscsid):
        return None
    known = (
        "iscsid is not active"
        if state.iscsid
        else "iscsid is not installed, or systemd does not know it"
    )
    finding = _finding(
        state,
        "major",
        "service",
        "iscsid",
        known,
        "sessions are neither made nor recovered without it",
    )
    finding.evidence = {"units": dict(state.iscsid)}
    if state.iscsid.get("iscsid.service") == "masked":
        finding.refuse(Reason("service_masked", "it is masked: systemctl unmask iscsid.service"))
    elif options.start_iscsid and state.iscsid:
        finding.repair = [
            Action("start_service", "iscsid.service", ["systemctl", "start", "iscsid.service"])
        ]
    elif state.iscsid:
        finding.refuse(Reason("consent_required", "set start_iscsid to start it"))
    else:
        finding.refuse(Reason("program_missing", "install open-iscsi (iscsi-initiator-utils)"))
    return finding


def is_active(iscsid: dict[str, str]) -> bool:
    """The socket starts the service at the first login, so either will do, unless the service
    cannot be started.
    """
    return iscsid.get("iscsid.service") not in ("failed", "masked") and "active" in iscsid.values()


def _judge_initiator(state: State, options: Options) -> Finding | None:
    """A name is the node's identity at the array: it is never made up here, only reported."""
    names, twins = state.initiator_names, _twins(state, options)
    if names is None:
        problem = f"{INITIATOR_FILE} is missing"
    elif not names:
        problem = f"{INITIATOR_FILE} has no InitiatorName"
    elif len(names) > 1:
        problem = f"{INITIATOR_FILE} has {len(names)} initiator names: {', '.join(names)}"
    elif not _IQN.match(names[0]):
        problem = f"the initiator name {names[0]!r} is not of the form iqn.YYYY-MM.DOMAIN:NAME"
    elif twins:
        problem = (
            f"the initiator name {names[0]} is also that of {', '.join(twins)}: each ends "
            "the other's sessions"
        )
    else:
        return None
    finding = _finding(
        state,
        "critical" if twins else "major",
        "initiator name",
        (names or ("none",))[0],
        problem,
        "",
    )
    finding.evidence = {"file": INITIATOR_FILE, "names": list(names or ()), "same_as": twins}
    remedy = (
        "give the node a name of its own (iscsi-iname), log out, restart iscsid, and map its "
        "LUNs to that name on the array"
    )
    if twins == [state.node] and not options.peer_boot_ids.get(state.node):
        finding.severity = "major"
        finding.refuse(
            Reason(
                "initiator_name_shared",
                f"the peer {state.node} has this node's own name, so it is this node, or a clone "
                "that kept its name: leave this node out of peer_initiator_names, or give the "
                f"boot ID of {state.node} in peer_boot_ids. Of a clone, {remedy}",
            )
        )
    else:
        code = "initiator_name_shared" if twins else "initiator_name_wrong"
        finding.refuse(Reason(code, remedy))
    return finding


def _twins(state: State, options: Options) -> list[str]:
    """Other nodes of the same initiator name. A name of a node does not tell that it is this one.

    One running kernel has one boot ID (random(4)), so an entry with ours is this node.
    """
    own, boot_ids = (state.initiator_names or ("",))[0], options.peer_boot_ids
    alike = [node for node, name in options.peer_initiator_names.items() if own and name == own]
    if state.boot_id:
        alike = [node for node in alike if boot_ids.get(node) != state.boot_id]
    return sorted(alike)
