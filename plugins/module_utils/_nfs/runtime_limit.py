# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many files a container may open (STOR-10).

A program that closes all descriptors that it might have, as rpc.statd does when it starts, takes
minutes if these are 1e9.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._core.argspec import ArgumentSpec, check_numbers, given_options
from .._core.bounded import call_each
from .._core.codes import Reason
from .._core.engine import Finding, Plan
from .._core.errors import StorageOpsError
from .._node.control_groups import pod_of
from .._node.host import Host
from .._node.options import NOFILE

# Drop-ins are applied in the order of their names (systemd.unit(5)), so 50- overrides most others.
DROP_IN = "/etc/systemd/system/{unit}.d/50-storage_ops-nofile.conf"

# As systemd shows "infinity" (include/uapi/asm-generic/resource.h RLIM_INFINITY).
INFINITY = 2**64 - 1
_UNITS = {"containerd": "containerd.service", "crio": "crio.service", "docker": "docker.service"}
_PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "MainPID",
    "LimitNOFILE",
    "FragmentPath",
    "DropInPaths",
    # Else a restart would give the old limit, and the drop-in would look ineffective.
    "NeedDaemonReload",
    "KillMode",
)
_MAX_OPEN_FILES = re.compile(r"^Max open files +\S+ +(\S+)", re.MULTILINE)

LIMIT_SPEC = NOFILE.merge(
    ArgumentSpec(
        {"runtimes": {"type": "list", "elements": "str", "choices": list(_UNITS), "default": []}}
    )
)


@dataclass(frozen=True)
class LimitOptions:
    """What the user asked for; the documentation of nfs_mount_check describes each option.

    ``runtimes``: if empty, all that exist.
    """

    runtimes: tuple[str, ...] = ()
    # The kernel's default of fs.nr_open.
    limit_nofile_max: int = 1048576


@dataclass(frozen=True)
class Runtime:
    """A container runtime that systemd knows.

    ``unit_limit``: the LimitNOFILE that systemd has loaded. ``pid``: its main process; 0 if it does
    not run. ``process_limit``: hard limit of that process; 0 if it does not run. ``reload``: its
    files were changed since systemd read them. ``keeps_containers``: containers survive a restart.
    """

    runtime: str
    unit: str
    unit_limit: int
    # 0 while the unit does not run; then only its next start can be judged.
    pid: int
    process_limit: int
    fragment: str
    drop_ins: tuple[str, ...]
    reload: bool
    keeps_containers: bool


@dataclass(frozen=True)
class CsiProcess:
    """A process of a CSI driver's pod, with its hard limit of open files."""

    pid: int
    command: str
    pod: str
    limit: int


@dataclass(frozen=True)
class LimitState:
    """What was gathered, from which the plan is made.

    ``nr_open``: fs.nr_open, the largest possible limit (proc_sys_fs(5)). ``systemd``: systemd's own
    limit, which a unit gets that asks for more than ``nr_open``, as for infinity. ``problem``: why
    the runtimes are not known.
    """

    node: str
    nr_open: int
    systemd: int
    runtimes: tuple[Runtime, ...]
    csi: tuple[CsiProcess, ...]
    problem: str = ""
    # IDs of the processes whose command line could not be read.
    unread: tuple[str, ...] = ()


def limit_options(params: dict[str, Any]) -> LimitOptions:
    """The options of RuntimeLimits, checked. Raises BadOption."""
    given = given_options(LimitOptions, params)
    # 1024 is the soft limit that programs with select(2) expect: they would fail with less.
    check_numbers(given, {"limit_nofile_max": 1024})
    return LimitOptions(**{**given, "runtimes": tuple(given.get("runtimes", ()))})


class RuntimeLimits:
    """STOR-10 on one node; only reports."""

    def __init__(self, host: Host, options: LimitOptions) -> None:
        self._host = host
        self._options = options
        self._state: LimitState | None = None

    def gather(self) -> LimitState:
        """Read the units, the running processes and those of CSI drivers."""
        # /proc/PID/limits of other users' processes needs it.
        self._host.require_root()
        state = read_limits(self._host, self._options)
        # Without systemd's answer there is neither a limit nor a repair.
        if state.problem:
            raise StorageOpsError(state.problem, code="evidence_unreadable")
        self._state = state
        return state

    def plan(self, state: LimitState) -> Plan:
        """Decide, from what was gathered."""
        return plan_limits(state, self._options)

    def not_applicable(self, state: LimitState) -> dict[str, str]:
        """The control, where there is no container runtime."""
        return not_applicable(state)

    def healthy(self, state: LimitState) -> str:
        """What a run says that finds nothing."""
        # Of a runtime that does not run, what it would get.
        limits = {
            runtime.runtime: runtime.process_limit or _next(runtime, state)
            for runtime in state.runtimes
        }
        return (
            ", ".join(f"{name} may open {limit} files" for name, limit in limits.items())
            or "no container runtime"
        )

    def facts(self) -> dict[str, Any]:
        """What the role needs to correct a limit (``runtimes``)."""
        state = self._state
        return (
            {}
            if state is None
            else {
                "runtimes": [describe(runtime, state, self._options) for runtime in state.runtimes]
            }
        )


def read_limits(host: Host, options: LimitOptions) -> LimitState:
    """The limits that systemd has loaded, and those of running processes."""
    # The default of the kernel (fs/file.c sysctl_nr_open).
    nr_open = int(host.read("/proc/sys/fs/nr_open") or 1048576)
    systemd = _most(host, nr_open)
    wanted = options.runtimes or tuple(_UNITS)
    units = {unit: runtime for runtime, unit in _UNITS.items() if runtime in wanted}
    # One call for all units; unknown ones have LoadState=not-found.
    shown = host.run(["systemctl", "show", f"--property={','.join(_PROPERTIES)}", *units])
    if not shown.ok:
        problem = (
            f"what container runtimes there are cannot be read ({shown.describe()}): see "
            "'systemctl status'"
        )
        return LimitState(host.name, nr_open, systemd, (), (), problem)
    loaded = (block for block in _blocks(shown.stdout) if block.get("LoadState") == "loaded")
    runtimes = tuple(
        _runtime(host, units[block["Id"]], block) for block in loaded if block.get("Id") in units
    )
    pods = _pods(host)
    csi, unread = _csi_processes(host, pods) if runtimes else ((), ())
    # As those of k3s, whose containerd is no unit of its own.
    hidden = bool(pods) and not runtimes and not options.runtimes
    problem = _hidden(list(units)) if hidden else ""
    return LimitState(host.name, nr_open, systemd, runtimes, csi, problem, unread)


def _most(host: Host, nr_open: int) -> int:
    """What systemd can give: no more than it has itself, nor than fs.nr_open."""
    return min(_limit_of(host.read("/proc/1/limits") or "") or nr_open, nr_open)


def _hidden(units: list[str]) -> str:
    return (
        f"pods run here, but systemd knows none of {', '.join(units)}: the limit of the runtime "
        "that started them cannot be read"
    )


def _blocks(text: str) -> list[dict[str, str]]:
    """The properties of each unit; systemctl separates units by an empty line (systemctl(1))."""
    return [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in text.split("\n\n")
    ]


def _runtime(host: Host, runtime: str, block: dict[str, str]) -> Runtime:
    pid = int(block.get("MainPID") or 0)
    drop_ins = tuple(block.get("DropInPaths", "").split())
    return Runtime(
        runtime,
        block["Id"],
        _number(block.get("LimitNOFILE", "")),
        pid,
        # Of the running process, which may have been started with another unit file.
        _limit_of(host.read(f"/proc/{pid}/limits") or "") if pid else 0,
        block.get("FragmentPath", ""),
        drop_ins,
        block.get("NeedDaemonReload") == "yes" or _has_unread(host, block["Id"], drop_ins),
        not pid
        or (
            # containerd.service has KillMode=process, so that the shims survive its restart.
            block.get("KillMode") in ("process", "none")
            and (runtime != "docker" or _live_restore(host))
        ),
    )


def _has_unread(host: Host, unit: str, drop_ins: Sequence[str]) -> bool:
    """Whether there are drop-ins that systemd has not read; of a new folder it does not notice."""
    folders = [f"{folder}/systemd/system/{unit}.d" for folder in ("/etc", "/run")]
    return any(
        f"{folder}/{name}" not in drop_ins
        for folder in folders
        for name in host.names(folder)
        if name.endswith(".conf")
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else INFINITY


def _limit_of(limits: str) -> int:
    """The hard limit in a /proc/PID/limits (proc_pid_limits(5)); 0 if the process has ended."""
    match = _MAX_OPEN_FILES.search(limits)
    return _number(match.group(1)) if match else 0


def _live_restore(host: Host) -> bool:
    """Whether containers survive a restart of dockerd."""
    # The running dockerd is asked first, since its file may have been changed after its start.
    # live-restore keeps containers while dockerd is down (docs.docker.com, Live restore).
    said = host.run(["docker", "info", "--format", "{{.LiveRestoreEnabled}}"])
    if said.ok:
        return said.stdout.strip() == "true"
    try:
        settings = json.loads(host.read("/etc/docker/daemon.json") or "{}")
    except ValueError:
        return False
    return isinstance(settings, dict) and settings.get("live-restore") is True


def _pods(host: Host) -> dict[str, str]:
    """The processes of pods, by their IDs, with the pod's uid."""
    return {
        pid: uid
        for pid in host.names("/proc")
        if pid.isdigit()
        for uid in [pod_of(host, pid)]
        if uid
    }


def _csi_processes(
    host: Host, pods: dict[str, str]
) -> tuple[tuple[CsiProcess, ...], tuple[str, ...]]:
    """The processes of pods that may mount, with "csi" in their command line, and IDs of those that
    hang.
    """
    # A driver's own container mounts; a tenant's has the words that it likes, but not the right to.
    asked = [pid for pid in pods if host.may_mount(pid)]

    # In children: reading another process's command line may block (fs/proc/base.c get_mm_cmdline),
    # and one that a tenant has made hang must not hide the others.
    def reading(pid: str) -> dict[str, Any] | None:
        found = _csi_process(host, int(pid), pods[pid])
        return asdict(found) if found else None

    seconds = host.deadline.cap(host.command_timeout)
    replies = dict(zip(asked, call_each(reading, asked, seconds, host.deadline.remaining())))
    return (
        tuple(CsiProcess(**reply.value) for reply in replies.values() if reply.value),
        tuple(pid for pid, reply in replies.items() if reply.problem),
    )


def _csi_process(host: Host, pid: int, uid: str) -> CsiProcess | None:
    # CSI drivers and sidecars have csi in their name, or in --csi-address and the like.
    words = host.command_line(str(pid))
    if not any("csi" in word for word in words):
        return None
    return CsiProcess(
        pid, os.path.basename(words[0]), uid, _limit_of(host.read(f"/proc/{pid}/limits") or "")
    )


def not_applicable(state: LimitState) -> dict[str, str]:
    """The control, where systemd answers and knows no container runtime, and no pod runs."""
    if state.problem or state.runtimes:
        return {}
    return {"STOR-10": "systemd knows no container runtime"}


def plan_limits(state: LimitState, options: LimitOptions) -> Plan:
    """Findings for each runtime, and for CSI drivers that still have an old limit."""
    findings = [
        finding
        for runtime in state.runtimes
        for finding in [_judge(runtime, state, options)]
        if finding
    ]
    # While the runtime's own limit is wrong, so are those of all containers that it started.
    return Plan(findings or _judge_csi(state, options))


def _finding(state: LimitState, severity: str, kind: str, name: str, summary: str) -> Finding:
    return Finding(
        control="STOR-10",
        severity=severity,
        kind=kind,
        name=name,
        node=state.node,
        summary=summary,
    )


def _next(runtime: Runtime, state: LimitState) -> int:
    """The limit after the next start of the unit."""
    return runtime.unit_limit if runtime.unit_limit <= state.nr_open else state.systemd


def _shown(limit: int) -> str:
    return "infinity" if limit == INFINITY else str(limit)


def _judge(runtime: Runtime, state: LimitState, options: LimitOptions) -> Finding | None:
    """The finding about a runtime; None if its limit is in order."""
    found = _compare(runtime, state, options)
    if found is None:
        return None
    severity, summary, reason = found
    finding = _finding(state, severity, "container runtime", runtime.runtime, summary)
    reload = (
        "systemd has not read the unit's files since they were changed: run 'systemctl "
        "daemon-reload'; "
        if runtime.reload
        else ""
    )
    finding.reason = f"{reload}{reason}"
    finding.evidence = {
        "unit": runtime.unit,
        "unit_limit": _shown(runtime.unit_limit),
        "process_limit": runtime.process_limit or "not running",
        "pid": runtime.pid,
        "limit_after_restart": _next(runtime, state),
        "fs_nr_open": state.nr_open,
        "limit_of_systemd": state.systemd,
        "limit_nofile_max": options.limit_nofile_max,
        "fragment": runtime.fragment,
        "drop_ins": list(runtime.drop_ins),
        "drop_in": DROP_IN.format(unit=runtime.unit),
        "drop_in_lines": drop_in(options),
    }
    return finding


def _compare(
    runtime: Runtime, state: LimitState, options: LimitOptions
) -> tuple[str, str, str] | None:
    """(severity, summary, next step), by the limit now and that after a restart."""
    now, after, most = runtime.process_limit, _next(runtime, state), options.limit_nofile_max
    name, path = runtime.runtime, DROP_IN.format(unit=runtime.unit)
    write = (
        f"write {path} with the lines '[Service]' and 'LimitNOFILE={most}', run 'systemctl "
        "daemon-reload'"
    )
    # With other kill modes systemd ends the whole control group, which has the containers' shims in
    # it (systemd.kill(5)). Docker has a setting of its own besides.
    ends = (
        ", after its containers were moved away: they end with it (KillMode is not process, or "
        "docker has no live-restore)"
    )
    restart = f"restart {runtime.unit}" + ("" if runtime.keeps_containers else ends)
    # A limit is inherited at fork (getrlimit(2)), so it does not change for running containers.
    pods = (
        "; pods keep the limit that they were started with until they are started again, those "
        "of the CSI driver too"
    )
    # By what helps: a drop-in and a restart, a restart alone, or a drop-in before the next one.
    if now > most and after > most:
        return (
            "major",
            f"{name} and its containers may open {now} files each",
            f"{write}, and {restart}{pods}",
        )
    # The limit was lowered and the restart left for later: nothing is to be written.
    if now > most:
        set_to = (
            f"its unit says {_shown(runtime.unit_limit)}, which the "
            "running process does not have yet"
        )
        return (
            "major",
            f"{name} and its containers may still open {now} files each",
            f"{set_to}: {restart}{pods}",
        )
    if after > most:
        when = "at its next start" if runtime.pid else "once it is started"
        return (
            "minor",
            f"{name} and its containers may open {after} files each {when}",
            f"{write}{pods}",
        )
    if runtime.pid and now != after:
        return (
            "info",
            f"{name} runs with a limit of {now} files, and its unit says "
            f"{_shown(runtime.unit_limit)}",
            f"the unit was changed after {name} was started; {restart} when it suits{pods}",
        )
    return None


def _judge_csi(state: LimitState, options: LimitOptions) -> list[Finding]:
    # Started before the runtime's limit was lowered.
    old = [process for process in state.csi if process.limit > options.limit_nofile_max]
    unread = _unread(state)
    if not old:
        return unread
    # One process of a pod is enough, since its containers are restarted together.
    pods = list(dict.fromkeys(process.pod for process in old))
    summary = (
        f"{len(pods)} pod{'s' * (len(pods) != 1)} of CSI drivers still may open "
        f"{max(process.limit for process in old)} files"
    )
    finding = _finding(state, "minor", "CSI driver", ", ".join(pods[:3]), summary)
    finding.reason = (
        "the runtime's limit is in order, but they were started before it was: delete "
        "these pods, one at a time"
    )
    finding.evidence = {
        "processes": [
            f"pid {process.pid} ({process.command}) of pod {process.pod}: {process.limit}"
            for process in old
        ]
    }
    return [finding, *unread]


def _unread(state: LimitState) -> list[Finding]:
    if not state.unread:
        return []
    pids = ", ".join(state.unread[:10])
    summary = f"the command line of {len(state.unread)} processes of pods cannot be read"
    finding = _finding(state, "info", "process", pids, summary)
    finding.refuse(
        Reason(
            "evidence_unreadable",
            "whether they are a CSI driver's, and started with an older limit, is not known",
        )
    )
    return [finding]


def drop_in(options: LimitOptions) -> list[str]:
    """The lines of the systemd drop-in that sets the limit."""
    # One number sets the soft limit as well as the hard one (systemd.exec(5), LimitNOFILE).
    return ["[Service]", f"LimitNOFILE={options.limit_nofile_max}"]


def describe(runtime: Runtime, state: LimitState, options: LimitOptions) -> dict[str, Any]:
    """A runtime as the module returns it, as JSON."""
    most = options.limit_nofile_max
    return {
        "runtime": runtime.runtime,
        "unit": runtime.unit,
        "unit_limit": _shown(runtime.unit_limit),
        "process_limit": runtime.process_limit,
        "limit_after_restart": _next(runtime, state),
        "pid": runtime.pid,
        "drop_in": {"path": DROP_IN.format(unit=runtime.unit), "lines": drop_in(options)},
        "drop_in_needed": _next(runtime, state) > most,
        "restart_needed": runtime.process_limit > most,
        "keeps_containers": runtime.keeps_containers,
    }


def excessive(state: LimitState, options: LimitOptions) -> int:
    """The largest limit of a running runtime, if it is too large; else 0."""
    # fs.nr_open may have been lowered since; a larger limit can no longer be set (setrlimit(2)).
    limit = max((runtime.process_limit for runtime in state.runtimes), default=0)
    return min(limit, state.nr_open) if limit > options.limit_nofile_max else 0
