# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a node is ready for iSCSI, and what makes it so. Pure: no I/O here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .._core import drivers
from .._core.codes import Reason
from .._core.engine import Action, Finding, Plan
from .._core.errors import StorageOpsError

RUNBOOK = "storage_ops.runbooks.load_iscsi_modules"
INITIATOR_FILE = "/etc/iscsi/initiatorname.iscsi"
# The formats iqn., eui. and naa. (RFC 7143, 4.2.7).
_IQN = re.compile(
    r"^(iqn\.\d{4}-\d{2}\.[a-z0-9.\-]+(:\S+)?|eui\.[0-9A-Fa-f]{16}|naa\.([0-9A-Fa-f]{16}"
    r"|[0-9A-Fa-f]{32}))$"
)


@dataclass(frozen=True)
class IscsiOptions:
    """What the user asked for and allows; the documentation of iscsi_module_check describes each.

    ``peer_initiator_names``, ``peer_boot_ids``: by the name of another node. ``if_used``: judge
    only a node that uses iSCSI, as an audit does; a repair prepares a node that does not use it
    yet. ``uses_iscsi``: by the name of a CSI driver, in place of what is known of it.
    """

    modules: tuple[str, ...] = ("iscsi_tcp",)
    # A loaded module that is not persisted is gone after the next reboot.
    persist: bool = True
    load_blacklisted: bool = False
    # Accepted risks, each off by default.
    start_iscsid: bool = False
    peer_initiator_names: dict[str, str] = field(default_factory=dict)
    peer_boot_ids: dict[str, str] = field(default_factory=dict)
    if_used: bool = False
    uses_iscsi: dict[str, bool] = field(default_factory=dict)
    kubelet_root: str = ""


@dataclass(frozen=True)
class Use:
    """What shows whether the node uses iSCSI; read only for an audit.

    ``sessions``: those of the kernel. ``targets``: those in the database of open-iscsi.
    ``drivers``: the CSI drivers that are registered at the kubelet. ``staged``: those with a volume
    on the node. ``volumes``: folders of volumes of the kubelet's own iSCSI driver.
    """

    sessions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    @property
    def all_drivers(self) -> list[str]:
        """Each CSI driver once."""
        return list(dict.fromkeys([*self.drivers, *self.staged]))


@dataclass(frozen=True)
class Module:
    """A kernel module.

    ``installed_for``: the kernels for which it is installed. ``blacklisted``: the configuration
    line that forbids it; that can be overruled. ``persisted``: the file that loads it at boot.
    ``blocked``: why it cannot be loaded even if ``blacklisted`` is overruled.
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
        """Whether it is in the running kernel, with all modules that it needs."""
        # A built-in module has no file, and needs none to be loaded at boot.
        return self.built_in or (self.loaded and not self.missing_dependencies)


@dataclass(frozen=True)
class IscsiState:
    """What was gathered, from which the plan is made.

    ``kernel``: release of the running one. ``iscsid``: unit -> its state in systemd.
    ``iscsid_problem``: why systemd does not tell. ``initiator_names``: None if the file does not
    exist. ``boot_id``: that of the running kernel, which a clone does not share.
    """

    node: str
    kernel: str
    modules: tuple[Module, ...]
    iscsid: dict[str, str]
    initiator_names: tuple[str, ...] | None
    boot_id: str = ""
    iscsid_problem: str = ""
    use: Use = Use()


def signs(state: IscsiState, options: IscsiOptions) -> list[str]:
    """What shows that the node uses iSCSI, or was prepared for it."""
    use, found = state.use, []
    if use.sessions:
        found.append(f"{len(use.sessions)} iSCSI sessions")
    if use.targets:
        found.append(f"{len(use.targets)} targets in the database of open-iscsi")
    if use.volumes:
        found.append(f"volumes of the kubelet's own iSCSI driver, as {use.volumes[0]}")
    if options.peer_initiator_names:
        found.append("the initiator names of its peers are given")
    # Packages write to /usr/lib (modules-load.d(5)): what is in /etc, an administrator or a repair
    # has asked for.
    found += [one.persisted for one in state.modules if one.persisted.startswith("/etc/")]
    return found + [
        f"the CSI driver {name}"
        for name in use.all_drivers
        if drivers.uses_iscsi(name, options.uses_iscsi) is True
    ]


def not_applicable(state: IscsiState, options: IscsiOptions) -> dict[str, str]:
    """The control, where nothing shows that the node uses iSCSI, and no CSI driver may use it."""
    if signs(state, options) or _undecided(state, options):
        return {}
    return {
        "STOR-04": "there is no iSCSI session, no target in the database of open-iscsi, no iSCSI "
        "volume of the kubelet's, and no CSI driver that uses iSCSI"
    }


def _undecided(state: IscsiState, options: IscsiOptions) -> list[str]:
    """CSI drivers that have volumes by iSCSI and by other protocols."""
    return [
        name
        for name in state.use.all_drivers
        if drivers.uses_iscsi(name, options.uses_iscsi) is None
    ]


def _require_evidence(state: IscsiState, options: IscsiOptions, findings: list[Finding]) -> None:
    """Raise StorageOpsError if the node is not ready, and whether it has to be cannot be known."""
    if state.iscsid_problem:
        raise StorageOpsError(
            f"whether iscsid runs cannot be read ({state.iscsid_problem})",
            code="evidence_unreadable",
        )
    undecided = [] if signs(state, options) else _undecided(state, options)
    if findings and undecided:
        raise StorageOpsError(
            f"the node is not ready for iSCSI ({findings[0].summary}), and whether it has to be is "
            f"not known, since {', '.join(undecided)} can also use other protocols: say which in "
            "uses_iscsi",
            code="iscsi_use_unknown",
        )


def plan(state: IscsiState, options: IscsiOptions) -> Plan:
    """Findings for each kernel module, for iscsid and for the initiator name.

    Of an audit, which judges no node that does not use iSCSI, it raises StorageOpsError if that is
    not known.
    """
    if options.if_used and not_applicable(state, options):
        return Plan([])
    findings = _judge(state, options)
    if options.if_used:
        _require_evidence(state, options, findings)
    return Plan(findings)


def _judge(state: IscsiState, options: IscsiOptions) -> list[Finding]:
    findings = [
        finding
        for module in state.modules
        for finding in [_judge_module(state, module, options)]
        if finding
    ]
    for finding in (_judge_iscsid(state, options), _judge_initiator(state, options)):
        findings += [finding] if finding else []
    return findings


def _finding(
    state: IscsiState, severity: str, kind: str, name: str, summary: str, reason: str
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
    )


def _judge_module(state: IscsiState, module: Module, options: IscsiOptions) -> Finding | None:
    """The finding about a kernel module; None if it is ready, and will be after a reboot."""
    # A distribution may load it at boot by itself; then there is nothing to do.
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
    # modules-load.d(5); a file of its own, which no package overwrites.
    if not persisted:
        path = f"/etc/modules-load.d/storage_ops-{module.name}.conf"
        finding.repair.append(Action("persist_module", module.name, ["write", path, module.name]))
    if not module.ready:
        _refuse_load(finding, state, module, options)
    return finding


def _refuse_load(
    finding: Finding, state: IscsiState, module: Module, options: IscsiOptions
) -> None:
    """Refuse to load a module that is not installed, or that an administrator has forbidden."""
    if state.kernel not in module.installed_for:
        # Typical after an update without a reboot, when the package manager has removed them.
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
    # Before the blacklist: what cannot be overruled, load_blacklisted does not help with.
    elif module.blocked:
        finding.refuse(Reason("module_blocked", f"it cannot be loaded: {module.blocked}"))
    elif module.blacklisted and not options.load_blacklisted:
        finding.refuse(
            Reason(
                "module_blocked",
                f"it is blacklisted by {module.blacklisted}: remove that line, or set "
                "load_blacklisted",
            )
        )


def _modprobe(module: Module) -> list[str]:
    """The command that loads a module."""
    # modprobe runs the command of an install line in place of loading the module
    # (modprobe.d(5)). Whoever overrules the blacklist wants that ignored, too.
    return ["modprobe", *(["--ignore-install"] if module.blacklisted else []), module.name]


def _judge_iscsid(state: IscsiState, options: IscsiOptions) -> Finding | None:
    """The finding about iscsid, without which no session is made or recovered; None if it runs."""
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
    # systemd may know it, and not have answered.
    if state.iscsid_problem:
        finding.summary = "whether iscsid runs is not known"
        finding.refuse(Reason("evidence_unreadable", state.iscsid_problem))
        return finding
    # systemctl start fails on a masked unit (systemctl(1), mask), and who masked it meant it.
    if state.iscsid.get("iscsid.service") == "masked":
        finding.refuse(Reason("service_masked", "it is masked: systemctl unmask iscsid.service"))
    # Starting a service may have effects on other sessions, so the user has to allow it.
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
    """Whether iscsid runs, or its socket can start it at the first login (systemd.socket(5))."""
    return iscsid.get("iscsid.service") not in ("failed", "masked") and "active" in iscsid.values()


def _judge_initiator(state: IscsiState, options: IscsiOptions) -> Finding | None:
    """The finding about the initiator name; None if it is in order."""
    # The name is the node's identity at the array, which maps LUNs to it. So a wrong one is only
    # reported: another name would lose the node's LUNs.
    names, twins = state.initiator_names, _twins(state, options)
    problem = _name_problem(names, twins)
    if not problem:
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
    # Without boot IDs it cannot be told whether that is this node itself.
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
    # Boot IDs tell both apart, so another machine has the name. Which one is the copy, only the
    # array's mapping can tell.
    elif twins:
        finding.refuse(
            Reason(
                "initiator_name_shared",
                "find out which of them is the clone, by what the array maps to whom: a host that "
                f"was broken into can answer with any name. Of a clone, {remedy}",
            )
        )
    else:
        finding.refuse(Reason("initiator_name_wrong", remedy))
    return finding


def _name_problem(names: tuple[str, ...] | None, twins: list[str]) -> str:
    """What is wrong with the initiator names; empty if nothing is."""
    if names is None:
        return f"{INITIATOR_FILE} is missing"
    if not names:
        return f"{INITIATOR_FILE} has no InitiatorName"
    if len(names) > 1:
        return f"{INITIATOR_FILE} has {len(names)} initiator names: {', '.join(names)}"
    if not _IQN.match(names[0]):
        return f"the initiator name {names[0]!r} is not of the form iqn.YYYY-MM.DOMAIN:NAME"
    # Session reinstatement: a login with the same name and ISID ends the older session
    # (RFC 7143, 6.3.5). Clones have the same ISID, too.
    if twins:
        return (
            f"the initiator name {names[0]} is also that of {', '.join(twins)}: each ends "
            "the other's sessions"
        )
    return ""


def _twins(state: IscsiState, options: IscsiOptions) -> list[str]:
    """The other nodes with the same initiator name, sorted."""
    # A peer with this node's own name may be a clone of it, so names do not tell which entry is
    # this node. Each running kernel has one random boot ID (/proc/sys/kernel/random/boot_id,
    # random(4)).
    own, boot_ids = (state.initiator_names or ("",))[0], options.peer_boot_ids
    alike = [node for node, name in options.peer_initiator_names.items() if own and name == own]
    if state.boot_id:
        alike = [node for node in alike if boot_ids.get(node) != state.boot_id]
    return sorted(alike)
