# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drivers whose FUSE servers live elsewhere than in the plugin's container, or under another
filesystem: what serves them ends, and is found and repaired as far as that can be done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.kind.buckets import PRIVATE, UNITS, MountPodDriver, UnitBucketDriver, UnstagedBucketDriver
from support.buckets import BucketApp, is_moved, is_remounted
from support.kind import KindCluster


@pytest.mark.variation
def test_a_unit_of_systemd(
    cluster: KindCluster, unit_bucket_driver: UnitBucketDriver, tmp_path: Path
) -> None:
    """It outlives the plugin. When it ends itself, it takes the staging mount with it."""
    driver = unit_bucket_driver
    app = BucketApp(cluster, driver, tmp_path)
    kept = driver.gateway.get("web/folder/begun")
    mounts, reached = app.mounts(), app.count()
    driver.kill(app.worker)
    cluster.wait(lambda: app.count() > reached, "it goes on", 60)
    assert app.mounts() == mounts and set(app.restarts().values()) == {0}

    unit = driver.unit("web")
    app.dies(lambda: cluster.kind.on(app.worker, "systemctl", "kill", "--signal=KILL", unit))
    assert not any("/globalmount " in line for line in app.mounts())
    # Nobody else knows what this driver says to s3fs.
    known = {UNITS: {"options": ["use_path_request_style", "mp_umask=000"]}}
    is_remounted(app, kept, fuse_recovery_drivers=json.dumps(known))


@pytest.fixture
def mount_pods(mount_pod_driver: MountPodDriver) -> Iterator[MountPodDriver]:
    """The driver for one test: its mount pods end with that."""
    yield mount_pod_driver
    mount_pod_driver.remove_volume("web")


@pytest.mark.variation
def test_a_pod_for_each_volume(
    cluster: KindCluster, mount_pods: MountPodDriver, tmp_path: Path
) -> None:
    app = BucketApp(cluster, mount_pods, tmp_path)
    kept = mount_pods.gateway.get("web/folder/begun")
    reached = app.count()
    mount_pods.kill(app.worker)
    cluster.wait(lambda: app.count() > reached, "it goes on without the plugin", 60)

    app.dies(lambda: mount_pods.end_on(app.worker, "web"))
    dead = app.mounts()
    for strategy in ("remount", "kubelet"):
        refused = app.repair(fuse_recovery_strategy=strategy)
        assert refused.rc != 0 and app.mounts() == dead, refused.text
        assert f"the driver's own mount at {PRIVATE}/web" in refused.text, refused.text
    mount_pods.serve_on(app.worker, "web")
    assert app.mounts() == dead
    # Which of the driver's own mounts is of which volume, only the driver knows.
    is_moved(app)
    assert app.says("main", "cat", "/web/folder/begun").startswith(kept)
    app.comes_anew()


@pytest.mark.variation
def test_a_filesystem_in_a_file_of_a_bucket(
    cluster: KindCluster, unstaged_bucket_driver: UnstagedBucketDriver, tmp_path: Path
) -> None:
    """A pod has a loop device on that file. It keeps the file of the server that has ended."""
    app = BucketApp(cluster, unstaged_bucket_driver, tmp_path, looped=True)
    before = _loop(app)
    unstaged_bucket_driver.kill(app.worker)
    cluster.wait(lambda: app.says("main", "touch", "/web/new"), "it fails", 90)
    dead = app.mounts()
    controls = {finding["control"] for finding in app.findings()}
    assert controls == {"STOR-05", "STOR-08"}

    # Only the bucket tells which folder is meant, so the operator does.
    known = [{"volume": "pv-web", "sources": ["web"]}]
    for check in (True, False):
        given = {"fuse_recovery_volumes": known, "fuse_recovery_strict": True}
        refused = app.repair(check, **given)
        assert refused.rc != 0 and "loop device" in refused.text, refused.text
        assert app.mounts() == dead and _loop(app) == before

    is_moved(app)
    assert app.findings() == []
    app.comes_anew()


def _loop(app: BucketApp) -> list[list[str]]:
    """The device and the point of the pod's mount on its node."""
    lines = app.cluster.kind.on(app.worker, "cat", "/proc/mounts").splitlines()
    return [line.split()[:2] for line in lines if "/pv-web/mount " in line]
