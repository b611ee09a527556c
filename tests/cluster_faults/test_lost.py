# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A kubelet that lies about since when its node is silent, to a real controller manager."""

from __future__ import annotations

import pytest
from lab.kubernetes import faults
from lab.kubernetes.api import now, path
from support.cluster import Cluster
from support.identities import as_kubelet, restricted

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import client, objects


@pytest.mark.parametrize("since", ["2099-01-01T00:00:00Z", "2001-01-01T00:00:00Z"])
def test_the_time_of_the_taint_is_no_kubelets(control_plane_current: Cluster, since: str) -> None:
    """It can make its own condition Unknown, with any time, and that stays; but not the taint."""
    cluster, api = control_plane_current, control_plane_current.api
    api.add_node("n1", faults.DRIVER)
    faults.attach(api, "db", faults.DRIVER, "vol-db", "n1")
    ready = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastHeartbeatTime": now(),
        "lastTransitionTime": since,
    }
    with restricted(cluster.plane):
        kubelet = as_kubelet(cluster, "n1")
        kubelet.patch(f"{path('Node', 'n1')}/status", {"status": {"conditions": [ready]}})
        cluster.wait(lambda: api.taints("n1"), "a taint on n1", 60)
        for taints in ([], [{"key": "mine", "effect": "NoExecute", "timeAdded": since}]):
            with pytest.raises(client.Forbidden):
                kubelet.patch(path("Node", "n1"), {"spec": {"taints": taints}})

    def audited() -> bool:
        answer = cluster.ansible("node_fence_info", grace_seconds=2)
        return [found["control"] for found in answer.findings] == ["STOR-16"]

    cluster.wait(audited, "STOR-16 for n1", 60)
    item = api.call("GET", path("Node", "n1"))
    (condition,) = [one for one in item["status"]["conditions"] if one["type"] == "Ready"]
    assert (condition["status"], condition["lastTransitionTime"]) == ("Unknown", since)
    node = objects.pick_node(item)
    assert node.tainted_since and node.created and node.tainted_since >= node.created
    # The volume was attached before the node went silent.
    (found,) = map(objects.pick_attachment, api.all("VolumeAttachment"))
    assert not objects.is_after_silence(found.created, node)
