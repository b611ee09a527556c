# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""LimitNOFILE of container runtimes: unit and running process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs import runtime_limit
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs.runtime_limit import (
    INFINITY,
    CsiProcess,
    LimitOptions,
    LimitState,
    Runtime,
    RuntimeLimits,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

HUGE, GOOD = 1073741816, 1048576
LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \nMax "
    "processes 1 2 processes\n"
)
SHOWN = """MainPID=42
LimitNOFILE=infinity
Id=containerd.service
LoadState=loaded
ActiveState=active
FragmentPath=/lib/systemd/system/containerd.service
DropInPaths=/etc/systemd/system/containerd.service.d/a.conf /run/b.conf
NeedDaemonReload=yes
KillMode=process

MainPID=0
LimitNOFILE=524288
Id=crio.service
LoadState=not-found
ActiveState=inactive

MainPID=43
LimitNOFILE=1048576
Id=docker.service
LoadState=loaded
ActiveState=active
FragmentPath=/lib/systemd/system/docker.service
DropInPaths=
NeedDaemonReload=no
KillMode=process
"""
POD = "0b1e3f3c-6d0a-4c6e-9f5e-1f1e0d5a7c11"
UNDER = POD.replace("-", "_")
BURSTABLE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable"


class Node(Host):
    """A node made of files; systemd and docker answer from a table."""

    def __init__(self, root: Path, answers: dict[str, str]) -> None:
        super().__init__(Deadline(60), 10, str(root))
        self.name, self.answers, self.root = "n1", answers, root
        self.put("proc/sys/fs/nr_open", f"{HUGE}\n")
        for pid, limit in ((1, HUGE), (42, HUGE), (43, GOOD)):
            self.put(
                f"proc/{pid}/limits",
                f"{LIMITS}Max open files            1024                 {limit}              "
                "files     \n",
            )

    def put(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def process(self, pid: int, cgroup: str, sets: str = "000001ffffffffff") -> None:
        """A process with its control group and its capabilities."""
        self.put(f"proc/{pid}/cgroup", f"{cgroup}\n")
        self.put(f"proc/{pid}/status", f"CapPrm:\t{sets}\nCapEff:\t{sets}\nCapBnd:\t{sets}\n")
        (self.root / f"proc/{pid}/ns").mkdir()
        (self.root / f"proc/{pid}/ns/mnt").symlink_to("mnt:[1]")
        (self.root / f"proc/{pid}/ns/user").symlink_to("user:[4026531837]")

    def require_root(self) -> None:
        """Files of a folder need no root."""

    def run(self, argv: Any, timeout: float | None = None) -> CommandResult:
        said = self.answers.get(argv[0])
        return CommandResult(
            tuple(argv), 1 if said is None else 0, said or "", "no such thing", 0.1
        )


def test_what_is_read(tmp_path: Path) -> None:
    node = Node(tmp_path, {"systemctl": SHOWN, "docker": "true\n"})
    state = runtime_limit.read_limits(node, LimitOptions())
    drop_ins = ("/etc/systemd/system/containerd.service.d/a.conf", "/run/b.conf")
    assert (state.nr_open, state.systemd) == (HUGE, HUGE)
    assert state.runtimes == (
        Runtime(
            "containerd",
            "containerd.service",
            INFINITY,
            42,
            HUGE,
            "/lib/systemd/system/containerd.service",
            drop_ins,
            True,
            True,
        ),
        Runtime(
            "docker",
            "docker.service",
            GOOD,
            43,
            GOOD,
            "/lib/systemd/system/docker.service",
            (),
            False,
            True,
        ),
    )
    assert runtime_limit.excessive(state, LimitOptions()) == HUGE
    assert runtime_limit.excessive(state, LimitOptions(limit_nofile_max=HUGE)) == 0


def test_drop_in_that_systemd_has_not_read(tmp_path: Path) -> None:
    """Of one in a new folder systemd does not say so."""
    node = Node(tmp_path, {"systemctl": SHOWN})
    assert [
        runtime.reload for runtime in runtime_limit.read_limits(node, LimitOptions()).runtimes
    ] == [True, False]
    node.put("etc/systemd/system/docker.service.d/a.conf", "")
    state = runtime_limit.read_limits(node, LimitOptions())
    assert [runtime.reload for runtime in state.runtimes] == [True, True]
    (finding,) = runtime_limit.plan_limits(state, LimitOptions()).findings
    assert finding.reason.startswith(
        "systemd has not read the unit's files since they were changed: run 'systemctl "
        "daemon-reload'; write"
    )


@pytest.mark.parametrize(
    ("answers", "settings", "kept"),
    [
        ({"docker": "false"}, '{"live-restore": true}', False),
        ({}, '{"live-restore": true}', True),
        ({}, '{"live-restore": "true"}', False),
        ({}, "[]", False),
        ({}, "{", False),
        ({}, "", False),
    ],
)
def test_live_restore(tmp_path: Path, answers: dict[str, str], settings: str, kept: bool) -> None:
    """What the running docker says; if it does not answer, its file; if that is not clear, no."""
    node = Node(tmp_path, {"systemctl": SHOWN, **answers})
    node.put("etc/docker/daemon.json", settings)
    assert [
        runtime.keeps_containers
        for runtime in runtime_limit.read_limits(node, LimitOptions()).runtimes
    ] == [True, kept]


@pytest.mark.parametrize(
    ("cgroup", "pod"),
    [
        (
            f"0::{BURSTABLE}-pod{UNDER}.slice/cri-containerd-a.scope",
            POD,
        ),
        (f"11:cpu:/kubepods/besteffort/pod{POD}/abc", POD),
        ("0::/system.slice/containerd.service", ""),
    ],
)
def test_processes_of_csi_pods(tmp_path: Path, cgroup: str, pod: str) -> None:
    node = Node(tmp_path, {"systemctl": SHOWN})
    node.process(77, cgroup)
    node.put("proc/77/cmdline", "/nfsplugin\0--endpoint=unix:///csi/csi.sock\0")
    node.put("proc/77/limits", "Max open files  1048576  1073741816  files\n")
    node.process(78, cgroup)
    node.put("proc/78/cmdline", "/pause\0")
    expected = (CsiProcess(77, "nfsplugin", pod, HUGE),) if pod else ()
    assert runtime_limit.read_limits(node, LimitOptions()).csi == expected


def test_a_tenants_words_make_no_csi_driver(tmp_path: Path) -> None:
    """Its process was told as a driver's, and its pod to be deleted. Nor need it show any words."""
    node = Node(tmp_path, {"systemctl": SHOWN})
    # Of a privileged container, and of the usual one without CAP_SYS_ADMIN.
    for pid, sets in ((77, "000001ffffffffff"), (78, "00000000a80425fb")):
        node.process(pid, f"0::/kubepods/besteffort/pod{POD}/abc", sets)
        node.put(f"proc/{pid}/cmdline", "/csi\0")
        node.put(f"proc/{pid}/limits", "Max open files  1048576  1073741816  files\n")
    state = runtime_limit.read_limits(node, LimitOptions())
    assert [process.pid for process in state.csi] == [77]
    (tmp_path / "proc/78/cmdline").unlink()
    assert runtime_limit.read_limits(node, LimitOptions()).unread == ()


def test_one_command_line_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    class Hanging(Node):
        def command_line(self, pid: str) -> list[str]:
            # In a child, a read that hangs ends as a problem, too.
            if pid == "78":
                raise StorageOpsError("no answer")
            return super().command_line(pid)

    node = Hanging(tmp_path, {"systemctl": SHOWN})
    for pid in (77, 78):
        node.process(pid, f"0::/kubepods/besteffort/pod{POD}/abc")
        node.put(f"proc/{pid}/limits", "Max open files  1048576  1073741816  files\n")
    node.put("proc/77/cmdline", "/nfsplugin\0--endpoint=unix:///csi/csi.sock\0")
    state = runtime_limit.read_limits(node, LimitOptions())
    assert [process.pid for process in state.csi] == [77]
    assert state.unread == ("78",)
    found = runtime_limit.plan_limits(replace(state, runtimes=()), LimitOptions()).findings
    assert [(one.kind, one.verdict) for one in found] == [
        ("CSI driver", "report"),
        ("process", "refuse"),
    ]


def test_systemd_that_does_not_answer(tmp_path: Path) -> None:
    """Neither fails nor passes, nor is it as if there were no runtime."""
    node = Node(tmp_path, {})
    with pytest.raises(StorageOpsError, match="no such thing") as raised:
        RuntimeLimits(node, LimitOptions()).gather()
    assert raised.value.code == "evidence_unreadable"
    state = runtime_limit.read_limits(node, LimitOptions())
    assert runtime_limit.not_applicable(state) == {}


ABSENT = {
    f"{unit}": f"Id={unit}.service\nLoadState=not-found\n"
    for unit in ("containerd", "crio", "docker")
}


def test_a_node_without_a_container_runtime(tmp_path: Path) -> None:
    node = Node(tmp_path, {"systemctl": "\n".join(ABSENT.values())})
    audit = RuntimeLimits(node, LimitOptions())
    assert list(audit.not_applicable(audit.gather())) == ["STOR-10"]
    # Pods that run have a runtime, whatever its unit is called.
    node.put("proc/77/cgroup", f"0::{BURSTABLE}-pod{UNDER}.slice/cri-containerd-1.scope\n")
    with pytest.raises(StorageOpsError, match="pods run here") as raised:
        audit.gather()
    assert raised.value.code == "evidence_unreadable"
    named = RuntimeLimits(node, LimitOptions(runtimes=("crio",)))
    assert list(named.not_applicable(named.gather())) == ["STOR-10"]


def test_a_runtime_is_applicable(tmp_path: Path) -> None:
    audit = RuntimeLimits(Node(tmp_path, {"systemctl": SHOWN}), LimitOptions())
    assert audit.not_applicable(audit.gather()) == {}


def judged(
    unit: int,
    process: int,
    nr_open: int = HUGE,
    live: bool = True,
    csi: tuple[CsiProcess, ...] = (),
    systemd: int = 0,
) -> list[Finding]:
    runtime = Runtime(
        "containerd",
        "containerd.service",
        unit,
        42 if process else 0,
        process,
        "/lib/c",
        (),
        False,
        live,
    )
    return runtime_limit.plan_limits(
        LimitState("n1", nr_open, systemd or nr_open, (runtime,), csi), LimitOptions()
    ).findings


@pytest.mark.parametrize(
    ("unit", "process", "nr_open"),
    [(GOOD, GOOD, HUGE), (INFINITY, GOOD, GOOD), (GOOD, 0, HUGE), (524288, 524288, HUGE)],
)
def test_in_order(unit: int, process: int, nr_open: int) -> None:
    """Infinity is what fs.nr_open says, which is not much everywhere."""
    assert judged(unit, process, nr_open) == []


def test_infinity_is_the_limit_of_systemd() -> None:
    """Where fs.nr_open was raised after the boot, systemd still has what it was, and has no more to
    give; a number it gives as it is.
    """
    assert judged(INFINITY, GOOD, systemd=GOOD) == []
    assert len(judged(HUGE, GOOD, systemd=GOOD)) == 1


@pytest.mark.parametrize(
    ("unit", "process", "severity", "summary", "reason"),
    [
        (
            INFINITY,
            HUGE,
            "major",
            f"containerd and its containers may open {HUGE} files each",
            "write /etc/systemd/system/",
        ),
        (
            GOOD,
            HUGE,
            "major",
            f"containerd and its containers may still open {HUGE} files each",
            "restart containerd.service; pods keep",
        ),
        (
            INFINITY,
            GOOD,
            "minor",
            f"may open {HUGE} files each at its next start",
            "'LimitNOFILE=1048576', run",
        ),
        (
            INFINITY,
            0,
            "minor",
            f"may open {HUGE} files each once it is started",
            "write /etc/systemd/system/",
        ),
        (
            524288,
            GOOD,
            "info",
            "containerd runs with a limit of 1048576 files, and its unit says 524288",
            "restart containerd.service when",
        ),
    ],
)
def test_unit_and_process(
    unit: int, process: int, severity: str, summary: str, reason: str
) -> None:
    (finding,) = judged(unit, process)
    assert (finding.control, finding.severity, finding.verdict) == ("STOR-10", severity, "report")
    assert summary in finding.summary
    assert reason in finding.reason
    assert finding.evidence["unit_limit"] == ("infinity" if unit == INFINITY else str(unit))
    assert (
        finding.evidence["drop_in"]
        == "/etc/systemd/system/containerd.service.d/50-storage_ops-nofile.conf"
    )
    assert finding.evidence["drop_in_lines"] == ["[Service]", "LimitNOFILE=1048576"]


def test_restart_that_ends_the_whole_control_group(tmp_path: Path) -> None:
    """The shims of containerd's containers are in it."""
    node = Node(
        tmp_path,
        {"systemctl": SHOWN.replace("KillMode=process", "KillMode=mixed"), "docker": "true"},
    )
    assert [
        runtime.keeps_containers
        for runtime in runtime_limit.read_limits(node, LimitOptions()).runtimes
    ] == [False, False]


def test_containers_that_would_end_are_told_of() -> None:
    (finding,) = judged(INFINITY, HUGE, live=False)
    assert "after its containers were moved away: they end with it" in finding.reason


def test_pods_that_still_have_the_old_limit() -> None:
    """Only once the runtime is in order: before, a restart of theirs would be in vain."""
    csi = (
        CsiProcess(7, "nfsplugin", POD, HUGE),
        CsiProcess(8, "liveness", POD, HUGE),
        CsiProcess(9, "other-csi", "b", GOOD),
    )
    (finding,) = judged(GOOD, GOOD, csi=csi)
    assert (finding.kind, finding.name, finding.severity) == ("CSI driver", POD, "minor")
    assert finding.summary == f"1 pod of CSI drivers still may open {HUGE} files"
    assert finding.evidence["processes"][0] == f"pid 7 (nfsplugin) of pod {POD}: {HUGE}"
    assert [finding.kind for finding in judged(GOOD, HUGE, csi=csi)] == ["container runtime"]


def test_what_the_role_is_told() -> None:
    runtime = Runtime(
        "containerd", "containerd.service", INFINITY, 42, HUGE, "/lib/c", (), False, True
    )
    told = runtime_limit.describe(
        runtime, LimitState("n1", HUGE, HUGE, (runtime,), ()), LimitOptions(limit_nofile_max=65536)
    )
    assert (told["drop_in_needed"], told["restart_needed"], told["keeps_containers"]) == (
        True,
        True,
        True,
    )
    assert told["drop_in"]["lines"] == ["[Service]", "LimitNOFILE=65536"]


def test_a_limit_that_cannot_be() -> None:
    assert runtime_limit.limit_options({}) == LimitOptions()
    with pytest.raises(StorageOpsError, match="limit_nofile_max is 10; give at least 1024"):
        runtime_limit.limit_options({"limit_nofile_max": 10})
