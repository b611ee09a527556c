# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many maps at once, and a node that lacks what others have."""

from __future__ import annotations

import pytest
from support.node import Node

# More than these, and a busy machine without KVM needs minutes only to make them; 4 more are always
# there.
MORE = 8
MAPS = MORE + 4


@pytest.mark.variation
def test_many_hung_maps_cost_about_one_time_out(node: Node) -> None:
    """Both portals are silent, and nothing has noticed yet: 24 questions hang at once, longer than
    the deadline if asked one by one.
    """
    node.labctl(f"lun many {MORE}", timeout=500)
    node.wait(
        lambda: sum(len(entry["paths"]) == 2 for entry in node.state()["maps"].values()) == MAPS,
        f"{MAPS} maps",
        300,
    )
    for portal in ("127.0.0.1", "127.0.0.2"):
        node.labctl(f"portal down {portal}")
    outcome = node.residual(probe_timeout=12, deadline=240, observation_seconds=3)
    assert not outcome.failed, outcome.msg
    assert len(outcome.findings) == MAPS
    assert {finding["verdict"] for finding in outcome.findings} == {"refuse"}
    assert not outcome.changed
    assert len(node.state()["maps"]) == MAPS


@pytest.mark.variation
def test_node_without_multipath_and_iscsi(node: Node) -> None:
    """Clear words, no traceback."""
    node.guarded = False
    node.labctl("logout")
    node.sh(
        "multipath -F; dpkg --purge --no-triggers --force-depends multipath-tools kpartx "
        "open-iscsi dmsetup",
        check=False,
        timeout=200,
    )
    assert "not found" in node.sh("multipath -ll 2>&1", check=False)
    outcome = node.residual()
    assert not outcome.failed
    assert outcome.msg == "nothing to do: 0 multipath maps and 0 SCSI disks, no residual among them"
    ready = node.ansible("iscsi_module_check")
    summaries = " ".join(f"{finding['summary']}: {finding['reason']}" for finding in ready.findings)
    assert "iscsid is not installed" in summaries
    assert "install open-iscsi" in summaries
    assert "/etc/iscsi/initiatorname.iscsi is missing" in summaries


@pytest.mark.variation
def test_maps_without_the_tools(node: Node) -> None:
    """Maps stand in the kernel, and nothing is there to ask about them: refused by name."""
    node.unmap(2)
    name, _wwid = node.map_of(2)
    node.sh("mkdir /root/away && mv /usr/sbin/multipath /usr/sbin/multipathd /root/away")
    outcome = node.residual()
    assert "multipathd show maps raw format %d: not installed" in outcome.finding(name)["reason"]
    node.sh("mv /usr/sbin/dmsetup /root/away")
    failed = node.residual()
    assert failed.failed
    assert "dmsetup" in failed.msg
    assert "not installed" in failed.msg
    node.sh("mv /root/away/* /usr/sbin/")


@pytest.mark.variation
def test_without_root(node: Node) -> None:
    node.sh("useradd -m -s /bin/sh ops && cp -r /root/.ssh /home/ops/ && chown -R ops: /home/ops")
    for module in ("multipath_residual", "iscsi_module_check", "node_storage_info"):
        outcome = node.ansible(module, user="ops")
        assert outcome.failed
        assert "run it as root (become: true)" in outcome.msg


@pytest.mark.variation
def test_bad_options(node: Node) -> None:
    for options, text in (
        ({"observations": 0}, "observations is 0; give at least 1"),
        ({"deadline": 5}, "deadline is 5; give at least 20"),
        ({"maps": [""]}, "maps has an empty name"),
        ({"command_timeout": 0}, "command_timeout is 0; give more than 0"),
    ):
        outcome = node.residual(**options)
        assert outcome.failed
        assert text in outcome.msg
