# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plugin's pod of a node is killed, and s3fs with it: pods keep dead mounts, and no new one
starts. Found, repaired as a user does it, and the kubelet and the driver are at ease afterwards.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lab.kind.buckets import NAME, WITHIN, BucketDriver, UnstagedBucketDriver
from lab.kind.csi import KUBELET
from lab.kubernetes import api as k8s
from support.buckets import AUDITOR, SEEN, BucketApp, is_moved, is_remounted
from support.kind import KindCluster, counting, on, running, without_python
from support.node_pods import NodePods
from support.reattach import no_trace


def test_remounted_below_the_pods(
    cluster: KindCluster, bucket_driver: BucketDriver, tmp_path: Path
) -> None:
    app = BucketApp(cluster, bucket_driver, tmp_path)
    uid, reached, plugins = app.pod["metadata"]["uid"], app.count(), _uids(bucket_driver)
    app.dies()
    assert _uids(bucket_driver) != plugins
    plugins, dead = _uids(bucket_driver), app.mounts()
    _it_is_found(app)

    check = app.repair(check=True)
    assert check.rc == 0, check.text
    assert "planned: replace_mount" in check.text and "planned: stop_container" in check.text
    assert app.mounts() == dead

    run = app.repair()
    assert run.rc == 0, run.text
    # Only what had the dead mount was started again, and only that.
    assert app.restarts() == {"main": 1, "shares": 1, "inner": 1, "sidecar": 1, "first": 0}
    assert app.pod["metadata"]["uid"] == uid and _uids(bucket_driver) == plugins
    cluster.wait(lambda: app.count() > reached, "it goes on", 60)
    for container, folder in SEEN.items():
        assert ("count" in app.says(container, "ls", folder)) == (folder == "/web")

    again = app.repair()
    assert again.rc == 0 and '"changed": true' not in again.text, again.text
    no_trace(cluster)
    app.comes_anew()


def test_through_a_pod(
    cluster: KindCluster, bucket_driver: BucketDriver, node_pods: NodePods, tmp_path: Path
) -> None:
    """The same, of a node that has neither ssh nor Python: docs/guides/nodes_without_ssh.md."""
    app = BucketApp(cluster, bucket_driver, tmp_path)
    app.inventory = node_pods.source
    uid, reached, plugins = app.pod["metadata"]["uid"], app.count(), _uids(bucket_driver)
    with without_python(cluster.kind, app.worker):
        app.dies()
        dead = app.mounts()
        _it_is_found(app)

        check = app.repair(check=True)
        assert check.rc == 0, check.text
        assert "planned: replace_mount" in check.text and "planned: stop_container" in check.text
        assert app.mounts() == dead

        run = app.repair()
        assert run.rc == 0, run.text
        again = app.repair()
        assert again.rc == 0 and '"changed": true' not in again.text, again.text
    assert app.restarts() == {"main": 1, "shares": 1, "inner": 1, "sidecar": 1, "first": 0}
    assert app.pod["metadata"]["uid"] == uid and _uids(bucket_driver) != plugins
    cluster.wait(lambda: app.count() > reached, "it goes on", 60)
    no_trace(cluster)
    app.comes_anew()


def test_left_to_the_kubelet(
    cluster: KindCluster, bucket_driver: BucketDriver, tmp_path: Path
) -> None:
    app = BucketApp(cluster, bucket_driver, tmp_path)
    reached = app.count()
    app.dies()
    is_moved(app, reached)
    app.comes_anew()


@pytest.mark.variation
def test_remounted_with_rclone(
    cluster: KindCluster, bucket_driver: BucketDriver, tmp_path: Path
) -> None:
    app = BucketApp(cluster, bucket_driver, tmp_path, "rclone")
    # rclone uploads what was written a moment later.
    uploaded = partial(bucket_driver.gateway.get, "web/folder/begun")
    kept = cluster.wait(uploaded, "it is uploaded", 60)
    assert all(" fuse.rclone " in line for line in app.mounts())
    app.dies()
    is_remounted(app, kept)


@pytest.mark.variation
def test_remounted_where_nothing_is_staged(
    cluster: KindCluster, unstaged_bucket_driver: UnstagedBucketDriver, tmp_path: Path
) -> None:
    """The only mount is that of the pod. The bucket or a folder in it: nothing in the cluster says
    which one that is, and so the operator has to.
    """
    app = BucketApp(cluster, unstaged_bucket_driver, tmp_path)
    kept = unstaged_bucket_driver.gateway.get(f"web/{WITHIN}/folder/begun")
    assert app.mounts() and not any("/globalmount " in line for line in app.mounts())
    app.dies()
    dead = app.mounts()
    refused = app.repair(fuse_recovery_strict="true")
    assert refused.rc != 0 and app.mounts() == dead, refused.text
    assert f"more than one candidate source: 'web', 'web:/{WITHIN}': give" in refused.text
    is_remounted(
        app, kept, fuse_recovery_volumes=[{"volume": "pv-web", "sources": [f"web:/{WITHIN}"]}]
    )


def test_a_renewed_mount_is_right_though_the_driver_stages_anew(
    cluster: KindCluster, bucket_driver: BucketDriver, tmp_path: Path
) -> None:
    """Somebody has taken the dead staging mount off, so that new pods start: for the next one the
    driver mounts the bucket again. The pod before it has the same bucket, by another server.
    """
    app = BucketApp(cluster, bucket_driver, tmp_path)
    uid, here = app.pod["metadata"]["uid"], on(app.worker)
    mine = f"{KUBELET}/pods/{uid}/volumes/kubernetes.io~csi/pv-web/mount"
    app.dies()
    cluster.kind.on(app.worker, "umount", "--lazy", _staging("web"))
    run = app.repair()
    assert run.rc == 0, run.text
    reached = app.count()
    cluster.wait(lambda: app.count() > reached, "it goes on", 60)

    script = ("until cat /web/count; do sleep 1; done", "date > /web/late", "sleep 100000")
    second = running(*script, claim="web")
    cluster.api.create(k8s.pod("late", ["web"], **second, **here))
    cluster.wait(lambda: "late" in app.says("main", "ls", "/web"), "another has it, too", 90)
    servers = {_device(app, mine), _device(app, _staging("web"))}
    assert len(servers) == 2 and app.pod["metadata"]["uid"] == uid
    assert app.findings() == []

    # What is not the volume is found all the same.
    bucket_driver.add_volume("other")
    cluster.api.create(k8s.pod("other", ["other"], **counting("other"), **here))
    cluster.wait(partial(_is_ready, cluster, "other"), "another volume is there", 90)
    cluster.kind.on(app.worker, "mount", "--bind", _staging("other"), mine)
    (finding,) = app.findings()
    wrong = (finding["control"], finding["severity"], finding["object"]["name"])
    assert wrong == ("STOR-07", "critical", mine), finding
    cluster.kind.on(app.worker, "umount", mine)

    for name in ("late", "other"):
        cluster.api.delete(k8s.path("Pod", name), grace=0)
    app.comes_anew()


def _staging(handle: str) -> str:
    digest = hashlib.sha256(handle.encode()).hexdigest()
    return f"{KUBELET}/plugins/kubernetes.io/csi/{NAME}/{digest}/globalmount"


def _device(app: BucketApp, point: str) -> str:
    """Of what is mounted there."""
    return app.cluster.kind.on(app.worker, "findmnt", "--noheadings", "-o", "MAJ:MIN", point)


def _is_ready(cluster: KindCluster, name: str) -> bool:
    found = cluster.api.find("Pod", name) or {"status": {}}
    return all(one["ready"] for one in found["status"].get("containerStatuses") or [{"ready": 0}])


def _it_is_found(app: BucketApp) -> None:
    """By compliance on the node, and by triage where a new pod cannot start."""
    cluster, late = app.cluster, running("sleep 1000", claim="web")
    cluster.api.create(k8s.pod("late", ["web"], **late, **on(app.worker)))

    def stuck() -> list[dict[str, Any]]:
        found = cluster.ansible("pod_volume_info", user=AUDITOR, stuck_seconds=1).findings
        return [one for one in found if one["control"] == "STOR-05"]

    (finding,) = cluster.wait(stuck, "triage knows why", 60)
    assert finding["object"]["name"] == "late", finding
    assert "storage_ops.runbooks.recover_fuse_mounts" in finding["reason"], finding
    cluster.api.delete(k8s.path("Pod", "late"), grace=0)

    given = {"report_folder": str(app.folder), "report_controls": "STOR-05 STOR-06"}
    played = app.play("compliance", **{f"compliance_{key}": text for key, text in given.items()})
    report = json.loads((app.folder / "report.json").read_text())
    assert {found["control"] for found in report["findings"]} == {"STOR-05"}, played.text
    names = {found["object"]["name"].rpartition("/")[2] for found in report["findings"]}
    # The mounts of one server are one finding; all of its node are in the plugin's container, too.
    assert names == {"globalmount", "driver", *SEEN}, report["findings"]
    hosts = {host["name"]: host["controls"] for host in report["hosts"]}
    assert hosts[app.worker] == {"STOR-05": "fail", "STOR-06": "pass"}, hosts
    assert set(hosts[app.other].values()) == {"not_applicable"}, hosts


def _uids(driver: BucketDriver) -> set[str]:
    return {pod["metadata"]["uid"] for node in driver.nodes for pod in driver.plugins(node)}
