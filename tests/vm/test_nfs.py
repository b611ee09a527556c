# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS that will not mount, for several reasons at once; each by itself is in tests/faults."""

from __future__ import annotations

import pytest
from faults.test_nfs_limit import HUGE, unlimited
from faults.test_nfs_mounts import SHARE, left_behind, nfs, serve, states
from support.node import Node

__all__ = ["nfs"]


@pytest.mark.smoke
def test_causes_in_one_call(nfs: Node) -> None:
    """A version that is not offered, a portal that a firewall drops, and a limit that is too large;
    check mode says the same.
    """
    node, dropped = nfs, "192.0.2.11:/srv/share"
    serve(node, "-N 4.2")
    node.sh("nft 'add table inet t; add chain inet t in { type filter hook input priority 0; };'")
    node.sh("nft add rule inet t in ip daddr 192.0.2.11 tcp dport 2049 drop")
    unlimited(node)
    node.sh("systemctl start containerd", timeout=120)
    for check in (False, True):
        outcome = node.ansible(
            "nfs_mount_check", check=check, shares=[SHARE, dropped], wanted_version="4.2"
        )
        assert not outcome.changed
        assert {finding["control"] for finding in outcome.findings} == {"STOR-09", "STOR-10"}
        assert outcome.finding(SHARE)["summary"] == f"{SHARE}: the server does not offer NFS 4.2"
        assert (
            "set mountOptions [nfsvers=4.1] in the StorageClass" in outcome.finding(SHARE)["reason"]
        )
        assert outcome.finding(dropped)["summary"].endswith(
            "TCP 2049 of 192.0.2.11 does not answer"
        )
        assert f"may open {HUGE} files each" in outcome.finding("containerd")["summary"]
        assert states(outcome) == {"3": "ok", "4.0": "ok", "4.1": "ok", "4.2": "not offered"}
    assert left_behind(node) == ""
