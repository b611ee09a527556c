# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done to a node, what is looked at right before it, and what is taken for a proof."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    Finding,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import usage
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.scsi import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.model import (
    ResidualOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.runbook import (
    ResidualAudit,
    ResidualPaths,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.clocks import Arrivals, Steps
from ansible_collections.storage_ops.runbooks.tests.unit.support.storage_node import (
    TARGETS,
    TENANT,
    Module,
    StorageNode,
    repair,
    wwid,
)

PAIR = [("flush_map", "done"), ("flush_map", "done"), ("replace_paths", "done")]


@pytest.fixture
def node(tmp_path: Path) -> StorageNode:
    return StorageNode(tmp_path)


def pure_maps(node: StorageNode) -> dict[str, set[int | None]]:
    """Map -> the volumes that its paths read."""
    return {name: set(paths.values()) for name, paths in node.maps().items()}


HEALTHY = {f"mpath{volume}": {volume} for volume in (1, 2, 3, 4)}


def test_the_node_is_healthy(node: StorageNode) -> None:
    module = repair(node)
    assert not module.failed, module.result
    assert module.result["findings"] == []
    assert pure_maps(node) == HEALTHY


def test_a_scope_that_names_nothing_of_the_node_is_told(node: StorageNode) -> None:
    """It may be misspelt, and then all is not well."""
    there = wwid(1)
    module = repair(node, maps=("mpath1", "mpath9"), wwids=(there, "36001405dead"), product="x-1")
    assert not module.failed and module.result["findings"] == []
    said = module.result["msg"].partition("; on this host ")[2]
    assert said == (
        "there is no multipath map mpath9; there is no map or disk with the WWID 36001405dead; "
        "there is no disk of product x-1: was it repaired already, is it on another, or misspelt?"
    )
    module = repair(node, maps=("mpath1",), wwids=(there,))
    assert "mpath1" in module.result["msg"] and "on this host" not in module.result["msg"]
    node.swap(1, 2)
    module = repair(node, wwids=(wwid(1), wwid(2), "36001405dead"))
    assert module.result["msg"].startswith("1 finding, 1 repaired and proven; on this host there")


def test_the_node_mixes_what_is_scanned_too_early(node: StorageNode) -> None:
    """The danger that the tests below are about."""
    node.swap(1, 2)
    assert pure_maps(node) == {**HEALTHY, "mpath1": {2}, "mpath2": {1}}
    node.run(["multipath", "-f", "mpath2"])
    for target in TARGETS:
        node.put(f"sys/class/scsi_device/{target}:2/device/delete", "1")
        node.follow()
        node.put(f"sys/class/scsi_host/host{target[0]}/scan0", "0 0 2")
        node.follow()
    assert pure_maps(node)["mpath1"] == {1, 2}


@pytest.mark.parametrize("luns", [(1, 2), (1, 2, 3), (4, 2, 1, 3)])
def test_swapped_luns_are_repaired_together(node: StorageNode, luns: tuple[int, ...]) -> None:
    node.swap(*luns)
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [("flush_map", "done")] * len(luns) + [("replace_paths", "done")]
    assert pure_maps(node) == HEALTHY
    assert {len(paths) for paths in node.maps().values()} == {2}
    assert repair(node).result["findings"] == []


def test_two_swaps_are_two_repairs(node: StorageNode) -> None:
    node.swap(1, 2)
    node.swap(3, 4)
    module = repair(node)
    assert sorted(module.verdicts) == ["mpath1, mpath2", "mpath3, mpath4"]
    assert module.outcomes == PAIR * 2
    assert pure_maps(node) == HEALTHY


def test_a_swap_on_one_portal(node: StorageNode) -> None:
    """Both maps are mixed, by the array alone; what serves them stays, and they form again."""
    node.swap(1, 2, targets=TARGETS[:1])
    assert pure_maps(node)["mpath1"] == {1, 2}
    kept = [name for name, volume in node.maps()["mpath1"].items() if volume == 1]
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == PAIR
    assert pure_maps(node) == HEALTHY
    assert set(kept) <= set(node.maps()["mpath1"])


def test_a_lun_that_moved_to_the_number_of_another(node: StorageNode) -> None:
    """No cycle: the old map of that LUN has only dead paths, and must go first all the same."""
    node.unmap(1)
    for target in TARGETS:
        node.array[target, 2] = 1
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert list(module.verdicts) == ["mpath1, mpath2"]
    assert pure_maps(node) == {"mpath1": {1}, "mpath3": {3}, "mpath4": {4}}


def test_a_lun_with_a_second_number_joins_its_map(node: StorageNode) -> None:
    """Its own paths serve it, so a repair of the other one does it no harm."""
    for target in TARGETS:
        node.array[target, 2] = 1
    module = repair(node)
    assert module.outcomes == [
        ("flush_map", "done"),
        ("replace_path", "done"),
        ("replace_path", "done"),
    ]
    assert pure_maps(node)["mpath1"] == {1}
    assert len(node.maps()["mpath1"]) == 4


def test_disks_of_a_swap_without_their_maps(node: StorageNode) -> None:
    """As a killed run leaves them: multipathd would make maps of them together with what a scan
    brings.
    """
    node.swap(1, 2)
    for name in ("mpath1", "mpath2"):
        node.run(["multipath", "-f", name])
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [("replace_paths", "done")]
    assert pure_maps(node) == HEALTHY


def test_a_map_and_the_disks_of_the_other(node: StorageNode) -> None:
    node.swap(1, 2)
    node.run(["multipath", "-f", "mpath1"])
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [("flush_map", "done"), ("replace_paths", "done")]
    assert pure_maps(node) == HEALTHY


def untouched(node: StorageNode, reason: str, **options: object) -> None:
    before = node.maps(), node.disks()
    module = repair(node, **options)
    assert not module.failed, module.result["msg"]
    assert set(module.verdicts.values()) == {"refuse"}
    assert reason in module.reasons
    assert module.outcomes == []
    assert (node.maps(), node.disks()) == before


def test_one_in_use_refuses_all(node: StorageNode) -> None:
    node.swap(1, 2, 3)
    node.mount("mpath2")
    untouched(node, "mpath2: mounted at /mnt/mpath2")


def test_one_out_of_scope_refuses_all(node: StorageNode) -> None:
    """A run never widens itself, and the refusal is the answer about what was named."""
    node.swap(1, 2)
    before = node.maps(), node.disks()
    module = repair(node, maps=("mpath1",))
    assert module.failed
    assert (
        "mpath2 would have to be repaired with it, and the scope leaves that out"
        in module.result["msg"]
    )
    assert (node.maps(), node.disks()) == before
    assert repair(node, maps=("mpath3",)).result["findings"] == []
    assert repair(node, maps=("mpath1", "mpath2")).outcomes == PAIR


def test_a_swap_counts_each_of_its_maps(node: StorageNode) -> None:
    node.swap(1, 2, 3)
    untouched(node, "max_repairs is 2, and this takes 3", max_repairs=2)
    assert repair(node, max_repairs=3).outcomes[-1] == ("replace_paths", "done")


def test_a_map_healthy_in_part_whose_lun_does_not_come_back(node: StorageNode) -> None:
    """It would be gone for good, although it has a path that works."""
    node.swap(1, 2, targets=TARGETS[:1])
    node.array[TARGETS[0], 2] = 9
    untouched(node, "still serves the LUN")


def test_what_is_read_of_a_swap_right_before_it(node: StorageNode) -> None:
    """One of the maps is mounted after the plan was made: nothing is begun, not even on
    the other.
    """
    node.swap(1, 2)
    node.steps.append(
        lambda argv: node.mount("mpath2") if argv[:2] == ["dmsetup", "info"] else None
    )
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert "no longer residual: mpath2: mounted at /mnt/mpath2" in module.reasons
    assert pure_maps(node) == {**HEALTHY, "mpath1": {2}, "mpath2": {1}}


def flushed(node: StorageNode) -> int:
    return sum(command.startswith("multipath -f") for command in node.commands)


def test_a_path_that_stays_is_never_joined(node: StorageNode) -> None:
    """The kernel does not let go of one: what would join it is not scanned for, and the
    run fails.
    """
    node.swap(1, 2)
    node.stubborn.add("6:0:0:1")
    module = repair(node)
    assert module.failed
    assert "6:0:0:1 still there 15 s after it was deleted" in module.result["msg"]
    node.follow()
    # What that disk was found as is volume 1, which the number 2 has now.
    assert sorted(name for name, volumes in pure_maps(node).items() if len(volumes) > 1) == []
    assert [hctl for hctl in node.names("/sys/class/scsi_disk") if hctl.endswith(":2")] == []


def test_something_else_takes_the_wwid_in_the_middle(node: StorageNode) -> None:
    """Right before the scan, a path that does not serve what the scan brings in: nothing is
    deleted.
    """
    node.array[TARGETS[0], 1] = node.array[TARGETS[1], 1] = 4

    def turn(argv: list[str]) -> None:
        # When mpath1 is flushed, the numbers of volume 4 are given away, too.
        if argv[:2] == ["multipath", "-f"]:
            node.array[TARGETS[0], 4] = node.array[TARGETS[1], 4] = 9

    node.steps.append(turn)
    module = repair(node)
    assert module.failed
    assert f"a scan could add a disk of {wwid(4)} to" in module.result["msg"]
    assert [outcome for _action, outcome in module.outcomes] == ["done", "skipped", "skipped"]
    assert pure_maps(node)["mpath4"] == {9}


def test_the_proof_looks_at_every_map(node: StorageNode) -> None:
    """Another map reads another volume since: that the own one is gone is no proof of anything."""
    node.unmap(2)

    def turn(argv: list[str]) -> None:
        if argv[:2] == ["multipath", "-f"]:
            node.array[TARGETS[0], 4] = 9

    node.steps.append(turn)
    module = repair(node)
    assert module.failed
    assert "the repair of mpath2 is not proven: mpath4 is mixed since" in module.result["msg"]


def test_a_map_that_was_refused_is_not_held_against_the_others(node: StorageNode) -> None:
    node.array[TARGETS[0], 4] = 9
    node.unmap(2)
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.verdicts == {"mpath4": "refuse", "mpath2": "repair"}


def test_a_scan_of_a_target_waits_for_all_that_goes(node: StorageNode) -> None:
    """Volume 2 has got the number 7: its old map must be gone when the target is scanned for what
    mpath1 has hidden.
    """
    node.unmap(1)
    node.unmap(2)
    for target in TARGETS:
        node.array[target, 7] = 2
    module = repair(node, rescan_targets=True)
    assert not module.failed, module.result["msg"]
    single = [("flush_map", "done"), ("delete_path", "done"), ("delete_path", "done")]
    assert module.outcomes == [*single, *single, ("scan_target", "done"), ("scan_target", "done")]
    assert pure_maps(node) == {"mpath2": {2}, "mpath3": {3}, "mpath4": {4}}
    assert (
        f"mpath2 ({wwid(2)}) is there again, by other paths"
        in module.result["findings"][1]["evidence"]["proof"]
    )


def test_a_scan_of_a_target_may_bring_in_what_must_not_come(node: StorageNode) -> None:
    node.unmap(1)
    node.array[TARGETS[0], 3] = 9
    node.mount("mpath3")
    untouched(
        node, f"rescan_targets is set; a scan could add a disk of {wwid(3)} to", rescan_targets=True
    )
    module = repair(node)
    assert module.verdicts == {"mpath1": "repair", "mpath3": "refuse"}


def test_a_scan_that_no_longer_can_be_done_fails_the_run(node: StorageNode) -> None:
    """The second map is mounted meanwhile, so it stays, and with it the danger."""
    node.unmap(1)
    node.unmap(2)
    node.steps.append(
        lambda argv: node.mount("mpath2") if argv[:3] == ["multipath", "-f", "mpath1"] else None
    )
    module = repair(node, rescan_targets=True)
    assert module.failed
    assert (
        "mounted at /mnt/mpath2 in the mount namespace of pid 1; the targets of what was removed "
        "before were not scanned" in module.result["msg"]
    )
    assert ("scan_target", "skipped") in module.outcomes


# What is looked at again right before it is changed.

ONE_MAP = [("flush_map", "done"), ("delete_path", "done"), ("delete_path", "done")]


def dead(node: StorageNode, queues: bool = False) -> tuple[str, str]:
    """LUN 2 is unmapped; the disks of its map."""
    first, second = sorted(node.maps()["mpath2"])
    node.unmap(2)
    if queues:
        node.queueing.add("mpath2")
    return first, second


def test_a_dead_map_is_removed(node: StorageNode) -> None:
    dead(node, queues=True)
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [("disable_queueing", "done"), *ONE_MAP]
    assert "mpath2" not in node.maps()
    assert len(node.disks()) == 6
    assert node.scanned == [], "nothing has taken the numbers"


class WithoutTools(StorageNode):
    """Has none of multipath's programs, as the host of a daemon that runs in a container."""

    def run(self, argv: Sequence[str], timeout: float | None = None) -> CommandResult:
        if argv[0] in ("multipath", "multipathd"):
            return CommandResult(tuple(argv), None, "", "", 0.0, "not installed", missing=True)
        return super().run(argv, timeout)


@pytest.mark.parametrize("broken", [False, True])
def test_an_audit_without_multipaths_programs(tmp_path: Path, broken: bool) -> None:
    """A repair refuses there, and an audit tells what the disks answer."""
    node = WithoutTools(tmp_path)
    if broken:
        node.unmap(2)
    maps = pure_maps(node)
    module = repair(node)
    assert module.verdicts == {node.name: "refuse", **({"mpath2": "refuse"} if broken else {})}
    assert "multipathd cannot be asked" in module.reasons and pure_maps(node) == maps

    audit = Module()
    options = ResidualOptions(observations=2, observation_seconds=0.0)
    with pytest.raises(SystemExit):
        engine.report(
            audit, lambda: ResidualAudit(node, options), ["STOR-01", "STOR-02", "STOR-03"]
        )
    assert list(audit.result["not_assessed"]) == ["STOR-01"] and audit.failed, audit.result
    assert audit.result["not_assessed_codes"] == {"STOR-01": "evidence_unreadable"}
    assert list(audit.verdicts) == ["mpath2"] * broken
    assert list(audit.result["not_applicable"]) == ["STOR-03"]


def lose_a_path(node: StorageNode) -> None:
    leave(node, "mpath2", sorted(node.maps()["mpath2"])[0])


def leave(node: StorageNode, name: str, disk: str) -> None:
    dm = node.dm_of(name)
    (node.root / f"sys/block/{dm}/slaves/{disk}").unlink()
    (node.root / f"sys/class/scsi_disk/{node.hctl(disk)}/device/block/{disk}/holders/{dm}").unlink()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lose_a_path, "mpath2, sdc has changed since the plan"),
        (lambda node: node.serve(2, 2), "mpath2 is no longer residual: its paths serve the LUN"),
        (lambda node: node.serve(2, 9), "mpath2 is now another finding, STOR-02"),
        (lambda node: node.mount("mpath2"), "mpath2 is no longer residual: mounted at /mnt/mpath2"),
    ],
)
def test_what_changes_between_plan_and_apply(
    node: StorageNode, change: Callable[[StorageNode], object], reason: str
) -> None:
    """Nothing is begun, and it is no failure."""
    dead(node)
    # The open counts are the last thing that the plan reads.
    node.at("dmsetup info", lambda: change(node))
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.verdicts == {"mpath2": "refuse"}
    assert reason in module.reasons
    assert flushed(node) == 0
    assert len(node.disks()) == 8


def half_way(node: StorageNode, outcomes: list[str], reason: str, **options: object) -> Module:
    """The run fails for that reason, and no disk is gone."""
    module = repair(node, **options)
    assert module.failed, module.result["msg"]
    assert reason in module.result["msg"]
    assert [outcome for _action, outcome in module.outcomes] == outcomes
    assert len(node.disks()) == 8
    return module


def test_the_lun_comes_back_after_queueing_is_off(node: StorageNode) -> None:
    first, _second = dead(node, queues=True)
    node.at("multipathd disablequeueing", lambda: node.serve(2, 2))
    half_way(node, ["done", "failed", "skipped", "skipped", "done"], f"{first} now is serving")
    assert flushed(node) == 0
    assert node.queueing == {"mpath2"}


def test_the_map_is_opened_after_queueing_is_off(node: StorageNode) -> None:
    dead(node, queues=True)
    node.at("multipathd disablequeueing", lambda: node.opened.update(mpath2=1))
    half_way(
        node,
        ["done", "failed", "skipped", "skipped", "done"],
        "the map is open by a process that /proc does not name",
    )
    assert flushed(node) == 0


def test_a_partition_is_opened_after_queueing_is_off(node: StorageNode) -> None:
    part = node.partition("mpath2")
    node.opened["mpath2"] = 1
    dead(node, queues=True)
    node.at("multipathd disablequeueing", lambda: node.opened.update({part: 1}))
    half_way(node, ["done", "failed", "skipped", "skipped", "done"], "the map is open by")
    assert flushed(node) == 0


def test_an_unused_partition_goes_with_its_map(node: StorageNode) -> None:
    node.partition("mpath2")
    node.opened["mpath2"] = 1
    dead(node)
    assert repair(node).outcomes == ONE_MAP


@pytest.mark.parametrize("said", [(1, "map in use"), (0, "fail\n"), (0, "timeout\n")])
def test_commands_that_fail_whatever_their_status(node: StorageNode, said: tuple[int, str]) -> None:
    dead(node, queues=True)
    node.said["multipathd disablequeueing"] = said
    # Even where it looks as if it had worked.
    node.at("multipathd disablequeueing", node.queueing.clear)
    module = half_way(node, ["failed", "skipped", "skipped", "skipped", "done"], said[1].strip())
    assert module.outcomes[-1] == ("restore_queueing", "done")


def test_commands_that_do_nothing(node: StorageNode) -> None:
    dead(node, queues=True)
    node.said["multipathd disablequeueing"] = (0, "ok")
    half_way(node, ["failed", "skipped", "skipped", "skipped"], "the kernel still queues on it")
    node.said = {"multipath -f": (0, "")}
    node.deadline = Deadline(600)
    half_way(node, ["done", "failed", "skipped", "skipped", "done"], "the map is still there")


def test_deadlines(node: StorageNode) -> None:
    """What cannot be finished is not begun."""
    dead(node)
    node.deadline = Deadline(39)
    half_way(node, ["skipped"] * 3, "less than 40 s are left of the deadline")
    node.deadline = Deadline(600)
    node.at("multipath -f", lambda: setattr(node, "deadline", Deadline(25)))
    half_way(node, ["done", "skipped", "skipped"], "less than 30 s are left of the deadline")


def test_a_larger_repair_needs_more_time(node: StorageNode) -> None:
    """Four maps and eight paths: to be known before the first is flushed. It was known when the
    maps were gone, and ended the run for all others.
    """
    node.swap(1, 2, 3, 4)
    node.deadline = Deadline(39, lambda: 0.0)
    half_way(node, ["skipped"] * 5, "less than 60 s are left of the deadline")
    node.deadline = Deadline(59, lambda: 0.0)
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert "less than 60 s are left of the deadline" in module.reasons
    assert (module.outcomes, flushed(node)) == ([], 0)


def device(node: StorageNode, disk: str) -> str:
    return f"sys/class/scsi_disk/{node.hctl(disk)}/device"


def other_name(node: StorageNode, disk: str) -> None:
    folder = node.root / device(node, disk) / "block"
    (folder / disk).rename(folder / "sdz")


def other_address(node: StorageNode, disk: str) -> None:
    """The old address has a disk of another name now, and the name another address, with the same
    device number.
    """
    number = node.read(f"/{device(node, disk)}/block/{disk}/dev") or ""
    folder, other = (
        node.root / device(node, disk) / "block",
        node.root / device(node, "sda") / "block",
    )
    (folder / disk).rename(folder / "sdz")
    (other / "sda").rename(other / disk)
    (other / disk / "dev").write_text(number)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda node, disk: node.serve(2, 2), "{disk} now is serving"),
        (lambda node, disk: node.serve(2, 9), "{disk} now is other"),
        (lambda node, disk: node.claimed.add(disk), "{disk} is claimed exclusively"),
        (
            lambda node, disk: node.put(f"{device(node, disk)}/block/{disk}/holders/dm-80", ""),
            "still held by dm-80",
        ),
        (
            lambda node, disk: node.put(f"{device(node, disk)}/block/{disk}/dev", "65:0"),
            "6:0:0:2 is no longer {disk}",
        ),
        (other_name, "6:0:0:2 is no longer {disk}"),
        (other_address, "6:0:0:2 is no longer {disk}"),
    ],
)
def test_a_path_that_changes_after_the_flush(
    node: StorageNode, change: Callable[[StorageNode, str], object], reason: str
) -> None:
    first, _second = dead(node)
    node.at("multipath -f", lambda: change(node, first))
    half_way(node, ["done", "skipped", "skipped"], reason.format(disk=first))


def plain(node: StorageNode) -> str:
    """LUN 2 is unmapped, and its map was flushed by hand; the first of its disks."""
    first, _second = dead(node)
    node.run(["multipath", "-f", "mpath2"])
    return first


def test_plain_disks_are_removed(node: StorageNode) -> None:
    plain(node)
    module = repair(node)
    assert module.outcomes == [("delete_path", "done")] * 2
    assert len(node.disks()) == 6


def opened(node: StorageNode, disk: str) -> None:
    """Process 1 has the generic device of the disk open: here it has the number of /dev/null."""
    node.put(f"{device(node, disk)}/scsi_generic/sg0/dev", "1:3")
    (node.root / "proc/1/fd/3").symlink_to("/dev/null")
    for file, text in {
        "comm": "smartd",
        "cgroup": "0::/",
        "task/1/stat": "1 (smartd) S",
        "fdinfo/3": "pos:\t0\nflags:\t0100002\nmnt_id:\t22\n",
    }.items():
        node.put(f"proc/1/{file}", text)


def mounted(node: StorageNode, disk: str) -> None:
    node.mounts(
        _ROOT_MOUNT,
        f"23 22 {node.read(f'/{device(node, disk)}/block/{disk}/dev')} / /mnt/a rw - ext4 "
        f"/dev/{disk} rw",
    )


_ROOT_MOUNT = "22 1 254:1 / / rw - ext4 /dev/vda1 rw"


def bound(fstype: str) -> Callable[[StorageNode, str], None]:
    """A container has its device node, of the host's /dev or of a folder of its own."""
    line = f"23 22 0:6 /{{}} /var/lib/kubelet/dev/pod rw - {fstype} dev rw"
    return lambda node, disk: node.mounts(_ROOT_MOUNT, line.format(disk))


USES = [
    (bound("devtmpfs"), "its device node is bound at /var/lib/kubelet/dev/pod"),
    (bound("tmpfs"), "its device node is bound at /var/lib/kubelet/dev/pod"),
    (lambda node, disk: node.claimed.add(disk), "{disk} is claimed exclusively"),
    (opened, "opened by smartd (pid 1"),
    (mounted, "mounted at /mnt/a"),
]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(("use", "reason"), USES)
def test_a_plain_disk_that_is_used(
    node: StorageNode, use: Callable[[StorageNode, str], object], reason: str, early: bool
) -> None:
    """Before the plan, or after it: only the other one goes."""
    disk = plain(node)
    if early:
        use(node, disk)
    else:
        # Asked for after all uses have been read.
        node.at("multipathd show config", lambda: use(node, disk))
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.verdicts[disk] == "refuse"
    assert ("was not started" in module.reasons) is not early
    assert reason.format(disk=disk) in module.reasons
    assert disk in node.disks()
    assert len(node.disks()) == 7


def test_udev_that_looks_at_a_disk_is_no_user(node: StorageNode) -> None:
    disk = plain(node)
    opened(node, disk)
    (node.root / "proc/1/exe").unlink()
    (node.root / "proc/1/exe").symlink_to("/lib/systemd/systemd-udevd")
    assert repair(node).outcomes == [("delete_path", "done")] * 2


def test_a_map_that_is_claimed_has_no_reader_to_be_failed(node: StorageNode) -> None:
    dead(node)
    node.opened["mpath2"] = 1
    node.claimed.add(node.dm_of("mpath2"))
    untouched(node, "is claimed exclusively by the kernel or a process", fail_hung_readers=True)
    node.claimed.clear()
    untouched(node, "set fail_hung_readers")


def test_a_device_that_does_not_say_whether_it_is_free(node: StorageNode) -> None:
    disk = plain(node)
    node.hung.add(disk)
    module = repair(node)
    assert f"whether {disk} is free is unknown: RuntimeError: no answer" in module.reasons
    assert disk in node.disks()


def test_disks_that_cannot_be_opened_take_no_time_of_others(
    node: StorageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's LUNs whose server does not answer: one after the other, each took the time of a
    command, and nothing was left of the run's deadline.
    """
    plain(node)
    volumes = range(101, 111)
    node.tenant(*volumes)
    for lun, volume in enumerate(volumes, 1):
        del node.array[TENANT, lun]
        node.run(["multipath", "-f", f"mpath{volume}"])
    evil = [disk for disk in node.disks() if node.hctl(disk).startswith(f"{TENANT}:")]
    hanging, real = Arrivals(), node.path

    def path(name: str) -> str:
        if name.removeprefix("/dev/") in evil:
            hanging.note()
            signal.pause()
        return real(name)

    monkeypatch.setattr(node, "path", path)
    # One server has at most 8 children at a time; each has 5 s, and all together 5 more.
    clock = Steps(
        (lambda: hanging.count == 1, 1.1),
        (lambda: hanging.count == 8, 4.0),
        (lambda: hanging.count == 9, 1.1),
        (lambda: hanging.count == 10, 4.0),
    )
    node.deadline = Deadline(600, clock)
    module = repair(node)
    hanging.close()
    assert not module.failed, module.result["msg"]
    assert clock.now == pytest.approx(10.2)
    assert {module.verdicts[disk] for disk in evil} == {"refuse"}
    assert all(f"whether {disk} is free is unknown: no answer" in module.reasons for disk in evil)
    assert len(node.disks()) == 6 + len(evil)


def test_what_is_left_behind_is_no_proof(node: StorageNode) -> None:
    """multipathd still has it, though the kernel has not."""
    dead(node)
    old = node.run(["multipathd", "show", "maps", "raw", "format", "%d"]).stdout
    node.at("multipath -f", lambda: node.said.update({"multipathd show maps": (0, old)}))
    module = repair(node)
    assert module.failed
    assert (
        "the repair of mpath2 is not proven: multipathd still lists the map mpath2"
        in module.result["msg"]
    )


def test_a_lun_that_moved_to_a_number_whose_map_was_flushed(node: StorageNode) -> None:
    """The map of that LUN is dead, and disks in no map read it: all of these are asked again."""
    node.unmap(1)
    node.run(["multipath", "-f", "mpath2"])
    node.serve(2, 1)
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [("flush_map", "done"), ("replace_paths", "done")]
    assert pure_maps(node) == {"mpath1": {1}, "mpath3": {3}, "mpath4": {4}}


def test_a_map_without_paths_on_a_node_without_disks(tmp_path: Path) -> None:
    """One look at it would prove nothing, so there are as many as for any other."""
    node = StorageNode(tmp_path, volumes=1)
    for target in TARGETS:
        node.put(f"sys/class/scsi_device/{target}:1/device/delete", "1")
    node.follow()
    assert node.maps() == {"mpath1": {}}
    module = repair(node, flush_empty_maps=True)
    assert module.outcomes == [("flush_map", "done")], module.reasons


@pytest.mark.parametrize(
    ("file", "state"),
    [
        ("sys/class/scsi_disk/6:0:0:2/device/state", "blocked"),
        ("sys/class/iscsi_session/session1/state", "FAILED"),
    ],
)
def test_a_disk_that_cannot_answer_is_not_asked(node: StorageNode, file: str, state: str) -> None:
    """The question would only hang."""
    (disk,) = [disk for disk in node.maps()["mpath2"] if node.hctl(disk) == "6:0:0:2"]
    node.put(file, state)
    module = repair(node)
    assert module.verdicts["mpath2"] == "refuse"
    assert disk not in node.asked
    assert node.asked


def test_a_map_that_is_not_open_is_not_claimed_by_us(node: StorageNode) -> None:
    """Not even for a moment, in which a mount of it would fail."""
    dead(node)
    assert repair(node).outcomes == ONE_MAP
    assert [name for name in node.claims if name.startswith("dm-")] == []


def test_a_repair_that_is_not_begun_takes_no_scan_from_those_after_it(node: StorageNode) -> None:
    node.unmap(1)
    node.unmap(2)
    node.at("dmsetup info", lambda: node.serve(1, 1))
    module = repair(node, rescan_targets=True)
    assert not module.failed, module.result["msg"]
    assert module.verdicts == {"mpath1": "refuse", "mpath2": "repair"}


def test_without_a_scan_a_repair_that_is_not_begun_is_no_failure(node: StorageNode) -> None:
    node.unmap(1)
    node.unmap(2)
    node.at("multipath -f mpath1", lambda: node.mount("mpath2"))
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.verdicts == {"mpath1": "repair", "mpath2": "refuse"}


def test_a_map_that_did_not_queue_does_not_queue_afterwards(node: StorageNode) -> None:
    dead(node)
    node.said["multipath -f"] = (1, "map in use")
    half_way(node, ["failed", "skipped", "skipped"], "map in use")
    assert node.queueing == set()


def test_taking_back_has_time_of_its_own(node: StorageNode) -> None:
    dead(node, queues=True)
    spent = Deadline(0)
    node.said["multipath -f"] = (1, "map in use")
    node.at("multipath -f", lambda: setattr(node, "deadline", spent))
    half_way(node, ["done", "failed", "skipped", "skipped", "done"], "map in use")
    assert node.queueing == {"mpath2"}
    assert node.deadline is not spent


def test_queueing_that_does_not_come_back(node: StorageNode) -> None:
    dead(node, queues=True)
    node.said = {"multipath -f": (1, "map in use"), "multipathd restorequeueing": (0, "ok")}
    outcomes = ["done", "failed", "skipped", "skipped", "failed"]
    half_way(node, outcomes, "the kernel does not queue on it again")


def test_a_map_that_is_gone_is_not_told_to_queue(node: StorageNode) -> None:
    """It was flushed, and then a path of it is no longer what it was."""
    dead(node, queues=True)
    node.at("multipath -f", lambda: node.serve(2, 2))
    module = half_way(node, ["done", "done", "skipped", "skipped"], "now is serving")
    assert "taken back" not in module.result["msg"]


def test_more_paths_need_more_time(node: StorageNode) -> None:
    node.swap(1, 2)
    node.at("multipath -f mpath2", lambda: setattr(node, "deadline", Deadline(33)))
    half_way(node, ["done", "done", "skipped"], "less than 36 s are left of the deadline")


def test_a_path_that_the_kernel_removed_first_is_scanned_for(node: StorageNode) -> None:
    node.serve(2, 9)

    def remove() -> None:
        node.put("sys/class/scsi_device/6:0:0:2/device/delete", "1")
        node.follow()

    node.at("multipath -f", remove)
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [("flush_map", "done"), *[("replace_path", "done")] * 2]
    assert list(node.maps()["mpath9"].values()) == [9, 9]


def test_a_path_that_cannot_be_deleted(node: StorageNode) -> None:
    dead(node)

    def turn() -> None:
        delete = node.root / "sys/class/scsi_device/6:0:0:2/device/delete"
        delete.unlink()
        delete.mkdir()

    node.at("multipath -f", turn)
    half_way(node, ["done", "failed", "skipped"], "Is a directory")


def test_a_scan_that_does_not_find_what_took_the_number(node: StorageNode) -> None:
    """The paths after it stay: they may be the last ones."""
    node.serve(2, 9)
    node.deaf.add(TARGETS[0])
    module = repair(node)
    assert module.failed
    reason = f"after the scan 6:0:0:2 is not there as {wwid(9)}"
    assert reason in module.result["msg"]
    outcomes = [outcome for _action, outcome in module.outcomes]
    assert outcomes == ["done", "failed", "skipped"]
    assert len(node.disks()) == 7


def test_a_number_whose_path_stays_is_not_scanned(node: StorageNode) -> None:
    """The kernel may be about to let go of it, and would find a second disk there."""
    node.serve(2, 9)
    node.stubborn.add("6:0:0:2")
    half_way(node, ["done", "failed", "skipped"], "6:0:0:2 still there")
    node.follow()
    assert node.scanned == []


def test_a_scan_that_finds_something_else(node: StorageNode) -> None:
    """The array has changed its mind since the last look: whose disk that is, was not judged."""
    node.serve(2, 9)
    node.found[TARGETS[0], 2] = 5
    module = repair(node)
    assert module.failed
    assert f"after the scan 6:0:0:2 is not there as {wwid(9)}" in module.result["msg"]
    assert [outcome for _action, outcome in module.outcomes] == ["done", "failed", "skipped"]


def test_a_danger_that_arises_before_the_scan_of_a_target(node: StorageNode) -> None:
    node.unmap(1)
    node.at("multipath -f", lambda: node.array.update({(TARGETS[0], 3): 9}))
    module = repair(node, rescan_targets=True)
    assert module.failed
    assert f"a scan could add a disk of {wwid(3)} to" in module.result["msg"]
    assert node.scanned == []


# What is no proof.


def unproven(node: StorageNode, late: Callable[[], object], *doubts: str) -> None:
    module = repair(node, late)
    assert module.failed
    assert {outcome for _action, outcome in module.outcomes} == {"done"}
    for doubt in ("is not proven: ", *doubts):
        assert doubt in module.result["msg"]


def test_a_lun_that_is_back_when_it_was_removed(node: StorageNode) -> None:
    first, _second = dead(node)

    def back() -> None:
        node.array[TARGETS[0], 2] = 2
        node.put("sys/class/scsi_host/host6/scan0", "0 0 2")

    unproven(node, back, f"6:0:0:2: {first} is still there", "the map mpath2 is back")


def test_what_took_the_number_is_gone_again(node: StorageNode) -> None:
    node.serve(2, 9)
    gone = "sys/class/scsi_device/6:0:0:2/device/delete"
    doubt = f"6:0:0:2 is not there as {wwid(9)}"
    unproven(node, lambda: node.put(gone, "1"), doubt)


@pytest.mark.parametrize("what", ["maps", "paths"])
def test_multipathd_that_does_not_answer_proves_nothing(node: StorageNode, what: str) -> None:
    dead(node)
    late = {f"multipathd show {what}": (1, "error receiving packet")}
    doubt = "multipathd does not tell its paths" if what == "paths" else "error receiving packet"
    unproven(node, lambda: node.said.update(late), doubt)


def test_multipathd_still_has_a_path(node: StorageNode) -> None:
    first, _second = dead(node)
    late = {"multipathd show paths": (0, f"sda active ready\n{first} failed faulty\n")}
    unproven(node, lambda: node.said.update(late), f"multipathd still lists {first}")


def test_a_path_that_was_kept_is_in_no_map(node: StorageNode) -> None:
    node.swap(1, 2, targets=TARGETS[:1])
    (kept,) = [name for name, volume in node.maps()["mpath1"].items() if volume == 1]

    def leave() -> None:
        (node.root / f"sys/block/{node.dm_of('mpath1')}/slaves/{kept}").unlink()

    unproven(node, leave, f"the map of {wwid(1)} has not come back")


NAMED = ["dm-uuid-mpath-{wwid}", "scsi-{wwid}", "wwn-0x{naa}"]


@pytest.mark.parametrize("link", [*NAMED, "ata-x"])
def test_a_link_that_is_left(node: StorageNode, link: str) -> None:
    """It leads nowhere, and speaks of the LUN or led to its disk."""
    first, _second = dead(node)
    name = link.format(wwid=wwid(2), naa=wwid(2)[1:])
    target = first if link == "ata-x" else "sr7"
    unproven(node, lambda: node.links.update({name: target}), f"/dev/disk/by-id/{name} is left")


def test_links_of_others_are_left_alone(node: StorageNode) -> None:
    dead(node)
    node.links = {"ata-x": "sda", f"scsi-{wwid(2)}1": "sda", "ata-y": "sr7"}
    assert repair(node).outcomes == ONE_MAP


@pytest.mark.parametrize("target", ["sr0", "sda", "sdz"])
@pytest.mark.parametrize("link", NAMED)
def test_a_link_that_leads_to_a_device_of_its_own_says_nothing(
    node: StorageNode, link: str, target: str
) -> None:
    """udev makes it by what a LUN says of itself: as of a CD-ROM of a tenant's server, which
    multipathd never takes. It kept the repair of the array from being proven, and ended the run.
    """
    dead(node)
    # Neither is among the disks: a CD-ROM is none, nor what is removable.
    for name in ("sr0", "sdz"):
        (node.root / f"sys/block/{name}").mkdir()
    name = link.format(wwid=wwid(2), naa=wwid(2)[1:])
    module = repair(node, lambda: node.links.update({name: target}))
    assert not module.failed, module.result["msg"]
    assert module.outcomes == ONE_MAP


def test_a_removable_disk_that_takes_the_name_of_a_deleted_one_is_not_it(
    node: StorageNode,
) -> None:
    """The kernel gives that name to the next disk, and multipathd lists it."""
    first, _second = dead(node)

    def take() -> None:
        (node.root / f"sys/block/{first}").mkdir()
        node.links["ata-x"] = first
        node.said["multipathd show paths"] = (0, f"{first} undef undef\n")

    module = repair(node, take)
    assert not module.failed, module.result["msg"]


@pytest.mark.parametrize("device", ["disk", "map"])
def test_a_link_to_what_took_the_place_of_a_removed_device(node: StorageNode, device: str) -> None:
    """udev has not followed: whoever opens the old volume by it gets the new one."""
    node.serve(2, 9)

    def late() -> None:
        node.follow()
        (disk, _other) = node.maps()["mpath9"]
        node.links[f"scsi-{wwid(2)}"] = disk if device == "disk" else node.dm_of("mpath9")

    unproven(node, late, f"/dev/disk/by-id/scsi-{wwid(2)} is left")


def test_links_do_not_tell_what_is_half_made(node: StorageNode) -> None:
    """One that leads nowhere may be of any LUN that comes and goes."""
    dead(node)
    node.unmap(3)
    module = repair(node, lambda: node.links.update({f"scsi-{wwid(2)}": "sr7"}))
    assert module.failed and "half_made" not in module.result
    assert module.result["undone"] == ["mpath2"]


def test_a_link_to_what_took_the_name_of_a_disk(node: StorageNode) -> None:
    """The LUN is there again, by other paths."""
    dead(node)
    for target in TARGETS:
        node.array[target, 7] = 2
    module = repair(node, rescan_targets=True)
    assert not module.failed, module.result["msg"]
    assert f"scsi-{wwid(2)}" in node.names("/dev/disk/by-id")


@pytest.mark.parametrize("volume", [9, None])
def test_a_scan_of_a_target_that_mixes_a_map(node: StorageNode, volume: int | None) -> None:
    """What was removed is back by another number, beside a path that no longer serves it."""
    dead(node)
    for target in TARGETS:
        node.array[target, 7] = 2
    node.array[TARGETS[0], 8] = 2

    def turn() -> None:
        node.follow()
        if volume is None:
            del node.array[TARGETS[0], 8]
        else:
            node.array[TARGETS[0], 8] = volume

    module = repair(node, turn, rescan_targets=True)
    assert module.failed
    assert "is not proven: mpath2 is mixed since" in module.result["msg"]


@pytest.mark.parametrize(("volume", "targets"), [(9, False), (2, True)])
def test_a_disk_that_would_spoil_what_came(node: StorageNode, volume: int, targets: bool) -> None:
    """It is in no map yet, was found as what a scan has brought in, and reads another volume."""
    if targets:
        dead(node)
    else:
        node.serve(2, volume)

    def turn() -> None:
        node.array[TARGETS[0], 5] = volume
        node.put("sys/class/scsi_host/host6/scan0", "0 0 5")
        node.follow()
        name = f"mpath{volume}"
        (disk,) = [disk for disk in node.maps()[name] if node.hctl(disk) == "6:0:0:5"]
        leave(node, name, disk)
        node.array[TARGETS[0], 5] = 7

    module = repair(node, turn, rescan_targets=targets)
    assert module.failed
    assert f"is not proven: a scan could add a disk of {wwid(volume)}" in module.result["msg"]


def test_a_scan_of_a_target_and_disks_in_no_map_that_stay(node: StorageNode) -> None:
    """They read another volume and are in use: one of their own would join them."""
    node.run(["multipath", "-f", "mpath2"])
    node.serve(2, 9)
    node.unmap(1)
    disks = [disk for disk in node.disks() if node.hctl(disk).endswith(":2")]
    node.claimed.update(disks)
    module = repair(node, rescan_targets=True)
    assert set(module.verdicts.values()) == {"refuse"}
    assert f"rescan_targets is set; a scan could add a disk of {wwid(2)} to" in module.reasons


# What a tenant's own server has a part in, and what it has not.

# Its map reads another volume, which is the most severe: so its repair is the first.
TENANT_MAP = "mpath101"


def beside_a_tenant(node: StorageNode, queues: bool = False) -> None:
    """The array's LUN 2 is gone, and the LUN 1 of a tenant's server is another volume by now."""
    node.tenant(101, 102, 103)
    node.array[TENANT, 1] = 109
    node.unmap(2)
    if queues:
        node.queueing |= {TENANT_MAP, "mpath2"}


def answers(node: StorageNode, volume: int = 101, lun: int = 1) -> None:
    """What the tenant's server says from now on."""
    node.array[TENANT, lun] = volume


def contained(node: StorageNode, reason: str, late: Callable[[], object] = bool) -> Module:
    """The tenant's repair failed, which is told, and the array's was done all the same."""
    module = repair(node, late)
    assert module.failed and "half_made" not in module.result, module.result["msg"]
    assert module.result["undone"] == [TENANT_MAP]
    assert reason in module.result["msg"]
    assert (module.verdicts[TENANT_MAP], module.verdicts["mpath2"]) == ("refuse", "repair")
    assert "mpath2" not in node.maps()
    assert not [disk for disk in node.disks() if node.hctl(disk) in ("6:0:0:2", "7:0:0:2")]
    return module


def half_made(node: StorageNode, reason: str, late: Callable[[], object] = bool) -> Module:
    """The tenant's repair failed, what it left is half made, and nothing after it was done."""
    module = repair(node, late)
    assert module.failed and module.result["half_made"] is True, module.result["msg"]
    assert reason in module.result["msg"]
    assert "mpath2" in node.maps()
    return module


@pytest.mark.parametrize(
    ("command", "queues"),
    [("multipathd disablequeueing", True), ("multipath -f", True), ("multipath -f", False)],
)
def test_a_server_that_turns_ends_its_own_repair_alone(
    node: StorageNode, command: str, queues: bool
) -> None:
    """Before its map is flushed, or after it."""
    beside_a_tenant(node, queues)
    node.at(command, lambda: answers(node))
    contained(node, "now is serving")
    there = TENANT_MAP in node.maps()
    assert there is (command != "multipath -f")
    assert (TENANT_MAP in node.queueing) is there


def test_a_flush_that_fails_ends_its_own_repair_alone(node: StorageNode) -> None:
    beside_a_tenant(node, queues=True)
    node.said[f"multipath -f {TENANT_MAP}"] = (1, "map in use")
    contained(node, "map in use")
    assert TENANT_MAP in node.queueing


def test_a_path_that_is_used_after_the_flush_ends_its_own_repair_alone(node: StorageNode) -> None:
    beside_a_tenant(node)
    (disk,) = node.maps()[TENANT_MAP]
    node.at("multipath -f", lambda: node.claimed.add(disk))
    contained(node, "is claimed exclusively")


def withholds(node: StorageNode) -> None:
    node.deaf.add(TENANT)


def says_its_old_name(node: StorageNode) -> None:
    """As if the disk had not been deleted."""
    node.found[TENANT, 1] = 101


@pytest.mark.parametrize("serves", [withholds, says_its_old_name])
def test_a_server_that_serves_no_more_what_it_said_ends_its_own_repair_alone(
    node: StorageNode, serves: Callable[[StorageNode], None]
) -> None:
    """Its wrong path is deleted, and the number is free or another disk's: nothing is half made."""
    beside_a_tenant(node)
    serves(node)
    contained(node, f"9:0:0:1 is not there as {wwid(109)}")


def test_a_server_that_withholds_it_before_the_proof_ends_its_own_repair_alone(
    node: StorageNode,
) -> None:
    beside_a_tenant(node)
    # Before the proof of its own repair, which is the first.
    late = iter([lambda: node._remove(f"{TENANT}:1"), bool])

    def before_the_proof() -> None:
        next(late)()

    contained(node, f"9:0:0:1 is not there as {wwid(109)}", before_the_proof)


def test_a_map_that_lost_a_path_ends_its_own_repair_alone(node: StorageNode) -> None:
    """The kubelet deletes the disks of a pod that goes."""
    beside_a_tenant(node)
    node.said[f"multipath -f {TENANT_MAP}"] = (1, "map in use")
    (disk,) = node.maps()[TENANT_MAP]
    node.at("multipath -f", lambda: leave(node, TENANT_MAP, disk))
    contained(node, "map in use")


def test_a_server_that_turns_after_the_repair_is_no_ones_concern(node: StorageNode) -> None:
    """Another map of its own, right before the proof: nothing has joined that."""
    beside_a_tenant(node)
    contained(node, "mpath103 is mixed since", lambda: answers(node, 108, 3))


def test_the_next_repair_has_the_time_of_the_run(node: StorageNode) -> None:
    """And not the few seconds for what is taken back."""
    beside_a_tenant(node, queues=True)
    left = node.deadline
    node.at("multipathd disablequeueing", lambda: answers(node))
    seen: list[object] = []
    node.at("multipath -f mpath2", lambda: seen.append(node.deadline))
    contained(node, "now is serving")
    assert seen == [left]


def test_an_array_that_turned_is_left_alone(node: StorageNode) -> None:
    """Its other maps may be next. They are not begun."""
    beside_a_tenant(node)
    node.array[TENANT, 3] = 108
    node.at("multipath -f", lambda: answers(node))
    module = contained(node, "now is serving")
    assert module.verdicts["mpath103"] == "refuse"
    assert "a repair of the same array has failed" in module.reasons
    assert flushed(node) == 2 and "mpath103" in node.maps()


def test_repairs_of_arrays_take_turns(node: StorageNode) -> None:
    """Or the deadline may end before the last one's."""
    node.unmap(2)
    node.unmap(3)
    node.tenant(101, 102, 103)
    for lun in (1, 2):
        del node.array[TENANT, lun]
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert list(module.verdicts) == ["mpath2", "mpath101", "mpath3", "mpath102"]


def test_the_disks_of_a_server_are_asked_in_its_turns(node: StorageNode) -> None:
    """One pod's volume may list any number of portals, all of one server that answers nothing."""
    beside_a_tenant(node)
    node.put("sys/class/iscsi_connection/connection3:0/persistent_address", "web.example.com")
    node.put("sys/class/iscsi_connection/connection3:0/address", "192.0.2.66")
    node.put("sys/class/iscsi_connection/connection3:0/persistent_port", "3260")
    for number, port in ((1, "3260"), (2, "3261")):
        connection = f"sys/class/iscsi_connection/connection{number}:0"
        node.put(f"{connection}/persistent_address", "10.0.0.1")
        node.put(f"{connection}/persistent_port", port)
    asked = {node.hctl(name).rpartition(":")[0]: name for name in node.disks()}
    repair(node)
    whose = {target: node.owners[name] for target, name in asked.items()}
    assert whose == {"6:0:0": "10.0.0.1", "7:0:0": "10.0.0.1", TENANT: "192.0.2.66"}


def test_a_lun_that_claims_the_wwid_of_another_array_is_not_scanned_for(
    node: StorageNode,
) -> None:
    """Also where it begins to after the look right before the change."""
    node.tenant(101, 102, 103)
    node.array[TENANT, 1] = 109
    node.unmap(2)
    late = wwid(3)

    def claim() -> None:
        node.array[TENANT, 1] = 3
        # As it answers: by the same name as before, so nothing else of it has changed.

    node.at("multipath -f mpath101", claim)
    (disk,) = node.maps()[TENANT_MAP]
    node.answers[disk] = Answer("good", "good", "good", 0, (wwid(109), late))
    module = repair(node)
    assert module.verdicts == {TENANT_MAP: "refuse", "mpath2": "repair"}
    assert f"{disk} answers as {late}, which is a volume of another array" in module.reasons
    assert pure_maps(node)["mpath3"] == {3}


def test_a_claim_after_the_flush_is_not_scanned_for(node: StorageNode) -> None:
    """The map of what it claims was made right then, of another array's new LUN."""
    beside_a_tenant(node)

    def comes() -> None:
        for target in TARGETS:
            node.array[target, 9] = 109
            node.put(f"sys/class/scsi_host/host{target[0]}/scan0", "0 0 9")
        node.follow()

    node.at("multipath -f mpath101", comes)
    contained(node, f"answers as {wwid(109)}, which is a volume of another array")
    assert pure_maps(node)["mpath109"] == {109}
    assert len(node.maps()["mpath109"]) == 2


def test_a_swap_whose_maps_are_all_that_ties_the_portals(tmp_path: Path) -> None:
    """Once they are flushed, nothing tells that it is one array but what was seen before."""
    for targets in (TARGETS, TARGETS[:1]):
        node = StorageNode(tmp_path / targets[-1], volumes=2)
        node.swap(1, 2, targets=targets)
        module = repair(node)
        assert not module.failed, module.result["msg"]
        assert module.outcomes == PAIR
        assert pure_maps(node) == {"mpath1": {1}, "mpath2": {2}}


def test_disks_of_two_portals_that_no_map_ties(tmp_path: Path) -> None:
    """The only volume of the node went, its map was flushed, and its number has another one."""
    node = StorageNode(tmp_path, volumes=1)
    node.run(["multipath", "-f", "mpath1"])
    node.serve(1, 9)
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [("replace_path", "done")] * 2
    assert list(node.maps()["mpath9"].values()) == [9, 9]


# What is half made, and ends the run.


def test_a_path_that_stays_is_half_made(node: StorageNode) -> None:
    beside_a_tenant(node)
    node.stubborn.add(f"{TENANT}:1")
    half_made(node, "still there 15 s after it was deleted")
    beside = StorageNode(node.root / "gone")
    beside_a_tenant(beside)
    del beside.array[TENANT, 1]
    beside.unmap(3)
    beside.stubborn.add("6:0:0:2")
    module = repair(beside)
    assert module.failed and module.result["half_made"] is True
    assert {"mpath3", TENANT_MAP} <= set(beside.maps())


@pytest.mark.parametrize("late", [False, True])
def test_a_number_of_an_array_without_what_took_it_is_half_made(
    node: StorageNode, late: bool
) -> None:
    """No pod can run one that is reached by Fibre Channel, so it tells of the array."""
    shutil.rmtree(node.root / "sys/class/iscsi_session")
    node.swap(1, 2, targets=TARGETS[:1])
    node.unmap(3)

    def goes() -> None:
        node._remove("6:0:0:1")

    if not late:
        node.deaf.add(TARGETS[0])
    module = repair(node, goes if late else bool)
    assert module.failed and module.result["half_made"] is True, module.result["msg"]
    assert f"6:0:0:1 is not there as {wwid(2)}" in module.result["msg"]
    assert "mpath3" in node.maps()


def test_queueing_that_does_not_come_back_is_half_made(node: StorageNode) -> None:
    beside_a_tenant(node, queues=True)
    node.said["multipathd restorequeueing"] = (0, "ok")
    node.at("multipathd disablequeueing", lambda: answers(node))
    half_made(node, "the kernel does not queue on it again")


def test_a_map_that_gained_a_path_is_half_made(node: StorageNode) -> None:
    """Not by us, but it is not as before."""
    beside_a_tenant(node)
    node.said["multipath -f"] = (1, "map in use")

    def gains() -> None:
        (disk,) = node.maps()["mpath103"]
        leave(node, "mpath103", disk)
        node.put(f"sys/block/{node.dm_of(TENANT_MAP)}/slaves/{disk}", "")

    node.at("multipath -f", gains)
    half_made(node, "the map mpath101 has other paths than before")


def test_a_map_that_had_a_path_left_is_half_made(node: StorageNode) -> None:
    """It is gone, though it could be read by that path."""
    node.swap(1, 2, targets=TARGETS[:1])
    node.unmap(3)
    node.at("multipath -f mpath2", lambda: node.array.update({(TARGETS[0], 1): 1}))
    module = repair(node)
    assert module.failed and module.result["half_made"] is True
    assert f"the map of {wwid(1)} has not come back" in module.result["msg"]
    assert "mpath3" in node.maps()


def test_a_map_that_a_scan_has_mixed_is_half_made(node: StorageNode) -> None:
    """The number is that of another map's volume by now, whose other path reads yet another one."""
    beside_a_tenant(node)
    node.array[TENANT, 1] = 103

    def late() -> None:
        answers(node, 108, 3)

    half_made(node, "mpath103 is mixed since", late)


def test_what_multipathd_still_lists_is_half_made(node: StorageNode) -> None:
    node.unmap(2)
    node.unmap(3)
    old = node.run(["multipathd", "show", "maps", "raw", "format", "%d"]).stdout
    node.at("multipath -f", lambda: node.said.update({"multipathd show maps": (0, old)}))
    module = repair(node)
    assert module.failed and module.result["half_made"] is True
    assert "multipathd still lists the map mpath2" in module.result["msg"]
    assert "mpath3" in node.maps()


def test_a_scan_that_does_not_end_is_half_made(node: StorageNode) -> None:
    """The kernel may find disks at any time."""
    node.tenant(101, 102, 103)
    del node.array[TENANT, 1]
    node.at("multipath -f", (node.root / "sys/class/scsi_host/host9").rmdir)
    module = repair(node, rescan_targets=True)
    assert module.failed and module.result["half_made"] is True
    assert f"{TENANT} may still be scanned" in module.result["msg"]


@pytest.mark.parametrize("when", ["map", "disk", "queueing"])
def test_what_cannot_be_read_ends_its_own_repair_alone(
    node: StorageNode, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without the rights for it: before the first change of a map or a disk, or between two.
    Each repair looks for itself.
    """
    beside_a_tenant(node, queues=when == "queueing")
    if when == "disk":
        node.run(["multipath", "-f", TENANT_MAP])

    def unreadable(*_arguments: object) -> None:
        raise StorageOpsError("the open files could not be read")

    def begin() -> None:
        monkeypatch.setattr(usage, "read_openers", unreadable)
        node.opened[TENANT_MAP] = 1

    # The first is asked for after all uses have been read.
    node.at("multipathd disable" if when == "queueing" else "multipathd show config", begin)
    module = repair(node)
    assert module.failed and "half_made" not in module.result
    assert "the open files could not be read" in module.result["msg"]
    assert len(module.result["undone"]) == 2
    assert module.result["changed"] is (when == "queueing")
    assert "mpath2" in node.maps()
    assert (TENANT_MAP in node.queueing) is (when == "queueing")


def test_a_proof_that_cannot_be_read_ends_its_own_repair_alone(
    node: StorageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_a_tenant(node)
    real = ResidualPaths._links_left

    def reading(runbook: ResidualPaths, finding: Finding) -> list[str]:
        if finding.name == TENANT_MAP:
            raise StorageOpsError("the links could not be read")
        return real(runbook, finding)

    monkeypatch.setattr(ResidualPaths, "_links_left", reading)
    contained(node, "is not proven: the links could not be read")


def test_a_look_before_a_scan_that_fails_is_no_scan(
    node: StorageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for a target that may still be scanned."""
    beside_a_tenant(node)
    real = ResidualPaths._scan

    def unreadable(_runbook: ResidualPaths) -> None:
        raise StorageOpsError("the disks could not be read")

    def scanning(runbook: ResidualPaths, action: Action) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ResidualPaths, "_node_now", unreadable)
            real(runbook, action)

    monkeypatch.setattr(ResidualPaths, "_scan", scanning)
    module = repair(node, rescan_targets=True)
    assert module.failed and "half_made" not in module.result, module.result["msg"]
    assert module.result["undone"] == [TENANT_MAP, "mpath2"]
    assert "scan_target 9:0:0 failed: the disks could not be read" in module.result["msg"]


@pytest.mark.parametrize("opened", [0, 1])
def test_a_process_that_cannot_be_read_holds_back_what_it_may_have_open(
    node: StorageNode, opened: int
) -> None:
    """A tenant's with a million files open was an error of all of STOR-01 to STOR-03."""
    beside_a_tenant(node)
    node.run(["multipath", "-f", TENANT_MAP])
    node.opened["mpath2"] = opened
    node.put("proc/7/fd", "")
    node.put("proc/7/comm", "web\n")
    node.put("proc/7/cgroup", "0::/\n")
    (node.root / "proc/7/ns").mkdir()
    (node.root / "proc/7/ns/mnt").symlink_to("mnt:[7]")
    module = repair(node)
    found = {one["object"]["name"]: one for one in module.result["findings"]}
    disks = [one for one in found.values() if one["object"]["kind"] == "SCSI disk"]
    # The kernel tells of a map that nothing has it open, and of a disk nothing at all.
    refused = [*disks, *([found["mpath2"]] if opened else [])]
    assert disks and ("mpath2" in node.maps()) is bool(opened)
    assert found["mpath2"]["verdict"] == ("refuse" if opened else "repair")
    for one in refused:
        assert (one["verdict"], one["code"]) == ("refuse", "evidence_unreadable")
        assert "whether web (pid 7) (Not a directory: " in one["reason"]


@pytest.mark.parametrize("opened", [0, 1])
def test_mounts_that_cannot_be_read_hold_back_what_may_be_mounted(
    node: StorageNode, opened: int
) -> None:
    """As open files: of a mounted map the kernel tells that it is open."""
    beside_a_tenant(node)
    node.run(["multipath", "-f", TENANT_MAP])
    node.opened["mpath2"] = opened
    pod = "0a1b2c3d-1111-2222-3333-777777777777"
    node.put("proc/7/comm", "web\n")
    node.put("proc/7/cgroup", f"0::/kubepods/pod{pod}/x\n")
    # Reading it is an error.
    for name in ("ns", "fd", "mountinfo"):
        (node.root / "proc/7" / name).mkdir()
    (node.root / "proc/7/ns/mnt").symlink_to("mnt:[7]")
    module = repair(node)
    found = {one["object"]["name"]: one for one in module.result["findings"]}
    disks = [one for one in found.values() if one["object"]["kind"] == "SCSI disk"]
    assert found["mpath2"]["verdict"] == ("refuse" if opened else "repair")
    for one in [*disks, *([found["mpath2"]] if opened else [])]:
        assert (one["verdict"], one["code"]) == ("refuse", "evidence_unreadable")
        assert f"whether the mount namespace of pid 7 of pod {pod} has it" in one["reason"]
    assert disks


# Scans of whole targets.


def test_a_failure_takes_no_scan_from_another_array(node: StorageNode) -> None:
    """Whichever was to be the last."""
    node.tenant(101, 102, 103)
    del node.array[TENANT, 1]
    node.unmap(2)
    node.at("multipath -f mpath101", lambda: answers(node))
    module = repair(node, rescan_targets=True)
    assert module.result["undone"] == [TENANT_MAP] and "half_made" not in module.result
    assert module.verdicts == {"mpath2": "repair", TENANT_MAP: "refuse"}
    assert node.scanned == ["6:0:0:-", "7:0:0:-"]


def test_arrays_that_may_have_a_volume_in_common_are_scanned_together(node: StorageNode) -> None:
    """The tenant's server has a volume of the array's maker: it could join what is still to go."""
    node.tenant(5, 102)
    del node.array[TENANT, 1]
    node.unmap(2)
    module = repair(node, rescan_targets=True)
    assert not module.failed, module.result["msg"]
    verbs = [verb for verb, _outcome in module.outcomes]
    assert verbs.index("scan_target") > max(
        i for i, verb in enumerate(verbs) if verb == "flush_map"
    )


def test_a_shared_scan_makes_no_repair_of_another_array_half_made(node: StorageNode) -> None:
    """The server has maps of the array's maker, so its scan is the last step of the array's repair.
    Right then, a map of its own gains a path and reads two volumes.
    """
    node.tenant(10, 6, 7)
    # More severe than that of the array, so it is the first.
    node.array[TENANT, 1] = 11
    node.unmap(2)

    def turn() -> None:
        node.array[TENANT, 9] = 6
        node.put("sys/class/scsi_host/host9/scan0", "0 0 9")
        node.follow()
        node.array[TENANT, 2] = 8

    late = iter((bool, turn))

    def later() -> None:
        next(late)()

    module = repair(node, later, rescan_targets=True)
    assert "the repair of mpath2 is not proven: mpath6 is mixed since" in module.result["msg"]
    assert module.failed and "half_made" not in module.result
    assert (module.verdicts["mpath10"], module.result["undone"]) == ("repair", ["mpath2"])


def test_a_danger_of_its_own_keeps_a_server_from_its_scan_alone(node: StorageNode) -> None:
    beside_a_tenant(node)
    node.at(f"multipath -f {TENANT_MAP}", lambda: answers(node, 108, 3))
    module = repair(node, rescan_targets=True)
    assert module.result["undone"] == [TENANT_MAP] and "half_made" not in module.result
    assert f"a scan could add a disk of {wwid(103)} to" in module.result["msg"]
    assert module.verdicts["mpath2"] == "repair"
    assert "9:0:0:-" not in node.scanned and "6:0:0:-" in node.scanned


def test_what_is_not_begun_and_had_the_scans_of_others_is_a_failure(node: StorageNode) -> None:
    """And not half made: nothing of it was changed."""
    node.unmap(1)
    node.unmap(2)
    node.at("multipath -f mpath1", lambda: node.mount("mpath2"))
    module = repair(node, rescan_targets=True)
    assert module.failed and "half_made" not in module.result
    assert module.result["undone"] == ["mpath2"]
    assert "the targets of what was removed before were not scanned" in module.result["msg"]
    assert {out for verb, out in module.outcomes[3:]} == {"skipped"}
