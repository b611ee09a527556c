# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Residual maps and disks that must be found, cleaned and proven."""

from __future__ import annotations

from typing import Any

import pytest
from support.node import Node

CLEANED = [("flush_map", "done"), ("delete_path", "done"), ("delete_path", "done")]


def four_ways(node: Node, lun: int, **options: Any) -> None:
    """check, run, run again, check again."""
    name, _wwid = node.map_of(lun)
    before = node.shape()
    check = node.residual(check=True, **options)
    assert check.changed
    assert check.finding(name)["verdict"] == "repair", check.finding(name)
    assert {outcome for _action, outcome in check.outcomes} == {"planned"}
    assert node.shape() == before
    run = node.residual(**options)
    assert run.changed
    assert not run.failed, run.msg
    assert [action for action, _outcome in run.outcomes] == [
        action for action, _outcome in check.outcomes
    ]
    assert {outcome for _action, outcome in run.outcomes} == {"done"}
    assert any(
        "gone from sysfs, from multipathd and from /dev/disk/by-id" in proof
        for proof in run.finding(name)["evidence"]["proof"]
    )
    node.gone(lun)
    again = node.residual(**options)
    assert not again.changed
    assert again.findings == []
    check_again = node.residual(check=True, **options)
    assert not check_again.changed
    assert check_again.findings == []


# The scenario residual_paths of molecule goes the same four ways each time.
@pytest.mark.variation
def test_dead_map(node: Node) -> None:
    node.unmap(2)
    four_ways(node, 2)


@pytest.mark.variation
def test_dead_map_that_queues(node: Node) -> None:
    node.queue()
    node.unmap(2)
    four_ways(node, 2)


# test_survey_strings of tests/vm has the same, by the playbook, each time.
@pytest.mark.variation
def test_hung_reader_on_a_queueing_map(node: Node) -> None:
    """Refused without fail_hung_readers; with it the reader ends and the map goes."""
    node.queue()
    node.unmap(2)
    name, _wwid = node.map_of(2)
    pid = node.hung_reader(f"/dev/mapper/{name}")
    finding = node.refused(name, "dd", str(pid), "hung in D state", "fail_hung_readers")
    assert finding["evidence"]["queueing"] is True
    assert node.process_state(pid) == "D"
    run = node.residual(fail_hung_readers=True)
    assert not run.failed, run.msg
    assert run.outcomes == [("disable_queueing", "done"), *CLEANED]
    node.gone(2)
    node.wait(lambda: node.process_state(pid) == "", "the hung dd ends", 10)
    assert node.residual(fail_hung_readers=True).findings == []


# As a virtual machine has its disk: the process lives, opened it long ago, and one thread writes.
MACHINE = """
import mmap, os, sys, threading, time
disk = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
def write():
    try:
        os.pwrite(disk, mmap.mmap(-1, 4096), 8192)
    except OSError as error:
        open("/run/machine", "w").write(error.strerror)
threading.Thread(target=write, daemon=True).start()
time.sleep(900)
"""


@pytest.mark.variation
def test_writer_on_a_queueing_map(node: Node) -> None:
    """Its data is lost when its I/O fails, and it keeps the map all the same: refused, and it hangs
    on.
    """
    node.queue()
    node.unmap(2)
    name, _wwid = node.map_of(2)
    node.vm.run("cat > /run/machine.py", stdin=MACHINE)
    node.sh(f"setsid python3 /run/machine.py /dev/mapper/{name} > /dev/null 2>&1 < /dev/null &")
    threads = "ps -eLo state=,args= | grep '[m]achine.py'"
    node.wait(lambda: "D python3" in node.sh(threads, check=False), "a thread hangs")
    for accepted in (False, True):
        finding = node.refused(name, "opened by python3 (pid ", fail_hung_readers=accepted)
        assert "may write, hung in D state)" in finding["reason"]
    assert node.sh("cat /run/machine", check=False) == "", "it got an error"


@pytest.mark.variation
def test_reader_of_a_map_that_does_not_queue(node: Node) -> None:
    """no_path_retry is fail, but the kernel was told to queue: dd hangs until multipathd takes that
    back, then nothing is in the way.
    """
    name, _wwid = node.map_of(2)
    node.unmap(2)
    node.sh(f"dmsetup message {name} 0 queue_if_no_path")
    pid = int(node.labctl(f"read /dev/mapper/{name}"))
    node.wait(lambda: node.process_state(pid) == "", "dd ends with an error by itself", 60)
    run = node.residual()
    assert not run.failed, run.msg
    assert run.outcomes == CLEANED
    node.gone(2)


@pytest.mark.variation
def test_unused_partitions_go_with_the_map(node: Node) -> None:
    assert len(node.partition(2, count=2)) == 2
    node.unmap(2)
    run = node.residual()
    assert not run.failed, run.msg
    assert run.outcomes == CLEANED
    node.gone(2)
    assert "part" not in node.sh("dmsetup info -c --noheadings -o uuid")


@pytest.mark.variation
def test_scope_and_limit(node: Node) -> None:
    """Only what is in scope goes, and only max_repairs of it."""
    node.unmap(2, 3)
    second, wwid = node.map_of(2)
    third, _wwid = node.map_of(3)
    assert node.residual(vendor="OTHER").findings == []
    assert node.residual(wwids=[wwid[:-1]]).findings == [], "a part of a WWID is no WWID"
    limited = node.residual(max_repairs=1, vendor="lio-org")
    assert sorted(finding["verdict"] for finding in limited.findings) == ["refuse", "repair"]
    assert limited.outcomes == CLEANED
    left = (
        second
        if second
        in [
            finding["object"]["name"]
            for finding in limited.findings
            if finding["verdict"] == "refuse"
        ]
        else third
    )
    run = node.residual(maps=[left])
    assert not run.failed, run.msg
    assert run.outcomes == CLEANED
    node.gone(2)
    node.gone(3)


@pytest.mark.variation
def test_disks_left_without_a_map(node: Node) -> None:
    """Somebody flushed the map by hand and forgot the disks (STOR-03)."""
    node.unmap(2)
    name, _wwid = node.map_of(2)
    node.sh(f"multipath -f {name}")
    check = node.residual(check=True)
    assert {finding["control"] for finding in check.findings} == {"STOR-03"}
    run = node.residual(maps=[name])
    assert not run.failed, run.msg
    assert run.outcomes == [("delete_path", "done")] * 2
    node.gone(2)
    assert node.residual().findings == []


@pytest.mark.variation
def test_lun_0(node: Node) -> None:
    """LUN 0 is what the target itself answers on, also after it is unmapped."""
    node.labctl("lun new zero 32")
    wwid = node.labctl("lun map 0 zero").split()[-1]
    node.labctl("rescan")
    node.wait(
        lambda: len(node.state()["maps"].get(wwid, {}).get("paths", [])) == 2, "the map of LUN 0"
    )
    name = node.state()["maps"][wwid]["name"]
    node.labctl("lun unmap 0")
    # TEST UNIT READY succeeds there, so multipathd never notices.
    assert node.sh(f"multipathd show map {name} topology").count("active ready running") == 2
    run = node.residual()
    assert not run.failed, run.msg
    assert run.finding(name)["verdict"] == "repair", run.finding(name)
    assert wwid not in node.state()["maps"]
    assert node.residual().findings == []


@pytest.mark.variation
def test_map_without_paths(node: Node) -> None:
    """Its disks were deleted under it: flushed only when that is allowed."""
    node.queue()
    node.unmap(2)
    name, _wwid = node.map_of(2)
    # multipathd drops a map with its last path, unless somebody has it open just then.
    holder = node.labctl(f"hold /dev/mapper/{name}")
    for path in node.paths_of(2):
        node.sh(f"echo 1 > /sys/block/{path}/device/delete")
    node.wait(
        lambda: (
            node.sh(f"ls /sys/block/$(basename $(readlink -f /dev/mapper/{name}))/slaves") == ""
        ),
        "the map has no path left",
    )
    node.sh(f"kill {holder}")
    node.refused(name, "flush_empty_maps")
    node.labctl("portal down 127.0.0.2")
    node.wait(
        lambda: "FAILED" in node.sh("cat /sys/class/iscsi_session/*/state"), "the session failed"
    )
    node.refused(name, "transport outage", flush_empty_maps=True)
    node.labctl("portal up 127.0.0.2")
    node.wait(
        lambda: set(node.sh("cat /sys/class/iscsi_session/*/state").split()) == {"LOGGED_IN"},
        "the session is back",
        120,
    )
    node.wait(
        lambda: set(node.sh("cat /sys/block/sd*/device/state").split()) == {"running"},
        "the disks are back",
    )
    run = node.residual(flush_empty_maps=True)
    assert not run.failed, run.msg
    assert run.outcomes == [("disable_queueing", "done"), ("flush_map", "done")]
    node.gone(2)
    assert node.residual(flush_empty_maps=True).findings == []


@pytest.mark.variation
def test_node_that_rebooted_while_the_lun_was_unmapped(node: Node) -> None:
    """What was unmapped before the boot is not there; what is unmapped after it is found and
    cleaned.
    """
    node.labctl("lun unmap 2")
    node.vm.reboot()
    node.wait(lambda: len(node.state()["maps"]) == 3, "the other maps are back", 120)
    node.wait(
        lambda: all(len(entry["paths"]) == 2 for entry in node.state()["maps"].values()),
        "with all their paths",
        120,
    )
    assert node.residual().findings == []
    node.labctl("lun unmap 3")
    wwid = node.map_of(3)[1]
    name = node.state()["maps"][wwid]["name"]
    node.wait_for_failed_paths(name)
    run = node.residual()
    assert not run.failed, run.msg
    assert run.outcomes == CLEANED
    assert wwid not in node.state()["maps"]
    # sdX and host numbers are new after a boot, so the neighbours are compared by WWID alone.
    node.guarded = False
    assert set(node.state()["maps"]) == {node.map_of(lun)[1] for lun in (1, 4)}


@pytest.mark.variation
def test_the_module_ends_by_its_deadline(node: Node) -> None:
    """Less time than the observation needs: an error that says so, and nothing done."""
    node.unmap(2)
    before = node.shape()
    outcome = node.residual(deadline=20, observation_seconds=60)
    assert outcome.failed
    assert "deadline" in outcome.msg
    assert not outcome.changed
    assert node.shape() == before
