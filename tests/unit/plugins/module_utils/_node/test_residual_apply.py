# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done to a node, what is looked at right before it, and what is taken for a proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.tests.unit.plugins.module_utils._node.storage_node import (
    TARGETS,
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
    assert module.outcomes == [("flush_map", "done"), ("replace_path", "done"), ("replace_path", "done")]
    assert pure_maps(node)["mpath1"] == {1}
    assert len(node.maps()["mpath1"]) == 4


def test_disks_of_a_swap_without_their_maps(node: StorageNode) -> None:
    """As a killed run leaves them: multipathd would make maps of them together with what a scan brings."""
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
    assert "mpath2 would have to be repaired with it, and the scope leaves that out" in module.result["msg"]
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
    """One of the maps is mounted after the plan was made: nothing is begun, not even on the other."""
    node.swap(1, 2)
    node.steps.append(lambda argv: node.mount("mpath2") if argv[:2] == ["dmsetup", "info"] else None)
    module = repair(node)
    assert not module.failed, module.result["msg"]
    assert "no longer residual: mpath2: mounted at /mnt/mpath2" in module.reasons
    assert pure_maps(node) == {**HEALTHY, "mpath1": {2}, "mpath2": {1}}


def flushed(node: StorageNode) -> int:
    return sum(command.startswith("multipath -f") for command in node.commands)


def test_a_path_that_stays_is_never_joined(node: StorageNode) -> None:
    """The kernel does not let go of one: what would join it is not scanned for, and the run fails."""
    node.swap(1, 2)
    node.stubborn.add("6:0:0:1")
    module = repair(node)
    assert module.failed
    assert "6:0:0:1 still there 15 s after it was deleted" in module.result["msg"]
    # What that disk was found as is volume 1, which the number 2 has now.
    assert sorted(name for name, volumes in pure_maps(node).items() if len(volumes) > 1) == []
    assert [hctl for hctl in node.names("/sys/class/scsi_disk") if hctl.endswith(":2")] == []


def test_something_else_takes_the_wwid_in_the_middle(node: StorageNode) -> None:
    """Right before the scan, a path that does not serve what the scan brings in: nothing is deleted."""
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
    """Volume 2 has got the number 7: its old map must be gone when the target is scanned for what mpath1 has hidden."""
    node.unmap(1)
    node.unmap(2)
    for target in TARGETS:
        node.array[target, 7] = 2
    module = repair(node, rescan_targets=True)
    assert not module.failed, module.result["msg"]
    single = [("flush_map", "done"), ("delete_path", "done"), ("delete_path", "done")]
    assert module.outcomes == [*single, *single, ("scan_target", "done"), ("scan_target", "done")]
    assert pure_maps(node) == {"mpath2": {2}, "mpath3": {3}, "mpath4": {4}}
    assert f"mpath2 ({wwid(2)}) is there again, by other paths" in module.result["findings"][1]["evidence"]["proof"]


def test_a_scan_of_a_target_may_bring_in_what_must_not_come(node: StorageNode) -> None:
    node.unmap(1)
    node.array[TARGETS[0], 3] = 9
    node.mount("mpath3")
    untouched(node, f"rescan_targets is set; a scan could add a disk of {wwid(3)} to", rescan_targets=True)
    module = repair(node)
    assert module.verdicts == {"mpath1": "repair", "mpath3": "refuse"}


def test_a_scan_that_no_longer_can_be_done_fails_the_run(node: StorageNode) -> None:
    """The second map is mounted meanwhile, so it stays, and with it the danger."""
    node.unmap(1)
    node.unmap(2)
    node.steps.append(lambda argv: node.mount("mpath2") if argv[:3] == ["multipath", "-f", "mpath1"] else None)
    module = repair(node, rescan_targets=True)
    assert module.failed
    assert (
        "mounted at /mnt/mpath2 in the mount namespace of pid 1; the targets of what was removed before were not scanned"
        in module.result["msg"]
    )
    assert ("scan_target", "skipped") in module.outcomes
