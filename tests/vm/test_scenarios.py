# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An audit of a node in one call, and the lowest ansible-core."""

from __future__ import annotations

import pytest
from faults.test_nfs_limit import unlimited
from support.mounts import Kubelet, bindfs, die, mounts
from support.node import QUICK, Node
from support.selection import lowest


@pytest.mark.smoke
def test_audit_sees_the_same_and_changes_nothing(node: Node) -> None:
    """Every control in one call, whether in check mode or not."""
    node.unmap(2)
    name, _wwid = node.map_of(2)
    before = node.shape()
    for check in (False, True):
        audit = node.ansible("node_storage_info", check, **QUICK)
        assert not audit.changed
        assert audit.outcomes == []
        assert {finding["control"] for finding in audit.findings} == {"STOR-01", "STOR-04"}
    planned = node.residual(check=True)
    assert audit.finding(name)["repair"] == planned.finding(name)["repair"]
    assert node.shape() == before
    only = node.ansible("node_storage_info", controls=["STOR-04"])
    assert {finding["control"] for finding in only.findings} == {"STOR-04"}


def test_audit_of_a_node_whose_mounts_lie(node: Node) -> None:
    """A dead FUSE mount, a hung one, a pod mount that is there twice, an NFS server that does not
    answer: one call, one deadline.
    """
    kubelet = Kubelet(node)
    dead, hung, twice = (kubelet.volume(name) for name in ("pvc-dead", "pvc-hung", "pvc-twice"))
    servers = {
        volume.name: bindfs(node, volume.stage(), source=f"/srv/{volume.name}")
        for volume in (dead, hung)
    }
    points = {volume.name: volume.publish() for volume in (dead, hung)}
    node.sh(f"mkdir -p /srv/twice && mount --bind /srv/twice {twice.stage()}")
    points["pvc-twice"] = twice.publish()
    node.sh(f"mount --bind {twice.staging} {points['pvc-twice']}")
    die(node, servers["pvc-dead"])
    node.sh(f"kill -STOP {servers['pvc-hung']}")
    node.sh(
        "nft add table inet lab; nft 'add chain inet lab in { type filter hook input priority 0; }'"
    )
    node.sh("nft add rule inet lab in ip daddr 127.0.0.9 drop")
    unlimited(node)
    before = mounts(node)
    audit = node.ansible("node_storage_info", probe_timeout=10, shares=["127.0.0.9:/data"], **QUICK)
    found = {(finding["control"], finding["object"]["name"]) for finding in audit.findings}
    assert {
        ("STOR-05", dead.staging),
        ("STOR-06", hung.staging),
        ("STOR-07", points["pvc-twice"]),
    } <= found
    assert {"STOR-09", "STOR-10"} <= {control for control, name in found}
    assert "STOR-08" not in {control for control, name in found}
    assert not audit.changed
    assert mounts(node) == before
    some = node.ansible("node_storage_info", controls=["STOR-07", "STOR-10"])
    assert {finding["control"] for finding in some.findings} == {"STOR-07", "STOR-10"}
    node.sh(f"kill -CONT {servers['pvc-hung']}")


@pytest.mark.smoke
def test_lowest_ansible_core(node: Node) -> None:
    """What meta/runtime.yml claims to be enough."""
    node.program = lowest("ansible")
    node.unmap(2)
    run = node.residual()
    assert not run.failed, run.msg
    node.gone(2)
    assert {
        finding["control"] for finding in node.ansible("node_storage_info", **QUICK).findings
    } == {"STOR-04"}
