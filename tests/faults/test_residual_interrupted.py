# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run is killed after each action, or the world changes under it: a second run converges and
nothing is lost.
"""

from __future__ import annotations

import pytest
from support.node import Node
from support.selection import variation

# The parent of the command is the module itself.
KILL = "kill -9 $PPID"


def kill_after_command(node: Node, program: str, argument: str) -> None:
    node.wrap(program, after=f'[ "$1" = {argument} ] && {KILL}')


def kill_after_delete(node: Node, hctl: str) -> None:
    """As soon as the kernel has let go of the path, kill the module; its child that does the
    deleting is not the module.
    """
    module = "pgrep -o -f '^/usr/bin/python3 .*AnsiballZ_multipath_residual'"
    watch = (
        f"while [ -e /sys/class/scsi_device/{hctl} ]; do :; done; "
        f"kill -9 $({module}); touch /run/killed"
    )
    node.sh(f"setsid sh -c {node.quote(watch)} >/dev/null 2>&1 </dev/null &")


def hctl_of(node: Node, path: str) -> str:
    return str(node.state()["disks"][path]["hctl"])


@pytest.mark.parametrize(
    "after", [variation("disable_queueing"), "flush_map", variation("first delete_path")]
)
def test_killed_while_removing_a_dead_map(node: Node, after: str) -> None:
    node.queue()
    hctls = [hctl_of(node, path) for path in node.paths_of(2)]
    node.unmap(2)
    if after == "disable_queueing":
        kill_after_command(node, "multipathd", "disablequeueing")
    elif after == "flush_map":
        kill_after_command(node, "multipath", "-f")
    else:
        kill_after_delete(node, hctls[0])
    node.killed()
    node.sh("rm -f /usr/local/sbin/multipathd /usr/local/sbin/multipath")
    run = node.residual()
    assert not run.failed, run.msg
    assert {outcome for _action, outcome in run.outcomes} <= {"done"}
    node.gone(2)
    again = node.residual()
    assert again.findings == []


@pytest.mark.parametrize("after", ["flush_map", variation("first replace_path")])
def test_killed_while_replacing_a_reused_lun(node: Node, after: str) -> None:
    hctls = [hctl_of(node, path) for path in node.paths_of(2)]
    other = node.labctl("lun new victim 48 VICTIM-DATA").split()[-1]
    node.labctl("lun unmap 2")
    node.labctl("lun map 2 victim")
    if after == "flush_map":
        kill_after_command(node, "multipath", "-f")
    else:
        kill_after_delete(node, hctls[0])
    node.killed()
    node.sh("rm -f /usr/local/sbin/multipath")
    run = node.residual()
    assert not run.failed, run.msg
    node.wait(
        lambda: len(node.state()["maps"].get(other, {}).get("paths", [])) == 2,
        "the new LUN has a map with both paths",
    )
    assert node.map_of(2)[1] not in node.state()["maps"]
    assert node.residual().findings == []


@pytest.mark.variation
@pytest.mark.parametrize("when", ["after queueing is off", "while it is flushed"])
def test_somebody_opens_the_map_in_the_middle(node: Node, when: str) -> None:
    """The flush fails: no path is deleted, queueing is as it was, and the failure names
    who it was.
    """
    node.queue()
    node.unmap(2)
    name, _wwid = node.map_of(2)
    hold = f"labctl hold /dev/mapper/{name} > /run/holder"
    if when == "after queueing is off":
        node.wrap("multipathd", after=f'[ "$1" = disablequeueing ] && {hold}')
    else:
        node.wrap("multipath", before=f'[ "$1" = -f ] && {hold}')
    before = node.shape()
    assert before["maps"][node.map_of(2)[1]][2] is True
    run = node.residual()
    assert run.failed
    assert run.outcomes == [
        ("disable_queueing", "done"),
        ("flush_map", "failed"),
        ("delete_path", "skipped"),
        ("delete_path", "skipped"),
        ("restore_queueing", "done"),
    ]
    assert run.changed
    assert f"flush_map {name} failed" in run.msg
    assert run.result["undone"] == [name] and "half_made" not in run.result
    if when == "after queueing is off":
        assert f"(pid {node.sh('cat /run/holder')}" in run.msg
    assert node.shape() == before


def test_somebody_opens_the_map_between_plan_and_apply(node: Node) -> None:
    """Looked at once more right before the first action: nothing is begun."""
    node.queue()
    node.unmap(2)
    name, _wwid = node.map_of(2)
    # The open counts are the last thing that the plan reads.
    once = f'[ "$1" = info ] && mkdir /run/once 2>/dev/null && labctl hold /dev/mapper/{name}'
    node.wrap("dmsetup", after=f"({once}) >/dev/null 2>&1")
    before = node.shape()
    run = node.residual()
    assert not run.failed
    assert not run.changed
    assert "no longer residual: opened by" in run.msg
    assert run.outcomes == []
    assert node.shape() == before


def test_the_lun_comes_back_between_plan_and_apply(node: Node) -> None:
    node.unmap(2)
    name, wwid = node.map_of(2)
    once = '[ "$1" = info ] && mkdir /run/once 2>/dev/null && labctl lun map 2'
    node.wrap("dmsetup", after=f"({once}) >/dev/null 2>&1")
    run = node.residual()
    assert not run.failed
    assert not run.changed
    assert "no longer residual" in run.msg
    assert len(node.state()["maps"][wwid]["paths"]) == 2
