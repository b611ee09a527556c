# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of csi_mount_repair, and of the audit that has fewer of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.renewed import (
    NOTES,
    Renewed,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.model import (
    PodMountOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.runbook import (
    PodMounts,
    pod_mount_options,
)


def test_options() -> None:
    given: dict[str, Any] = {}
    given |= {
        "paths": ["/a b "],
        "volumes": [" pv-a "],
        "probe_timeout": 1.5,
        "max_repairs": 0,
        "accept_majority": True,
    }
    given["publish_from"] = {"csi.example.com": "staging", "s3.example.com": "elsewhere"}
    said = given["publish_from"]
    wanted = PodMountOptions(("/a b ",), ("pv-a",), "/data/kubelet", 1.5, 0, True, said)
    assert (
        pod_mount_options({**given, "kubelet_root": "/data/kubelet", "deadline": 300.0}) == wanted
    )


def test_an_audit_has_no_limit_and_takes_no_risk() -> None:
    assert pod_mount_options({"probe_timeout": 2.0}) == PodMountOptions(
        probe_timeout=2.0, max_repairs=1_000_000
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"paths": [""]}, "paths has an empty name"),
        ({"volumes": ["pv-a", " "]}, "volumes has an empty name"),
        ({"probe_timeout": 0.0}, "probe_timeout is 0"),
        ({"probe_timeout": float("nan")}, "probe_timeout is nan"),
        ({"max_repairs": -1}, "max_repairs is -1"),
        ({"publish_from": {"csi.example.com": "stagin"}}, "publish_from has 'stagin' for csi"),
        ({"publish_from": {"csi.example.com": ""}}, "publish_from has '' for csi"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], said: str) -> None:
    with pytest.raises(StorageOpsError, match=said):
        pod_mount_options(given)


def test_the_mounts_that_were_renewed_are_read(tmp_path: Path) -> None:
    noted = Renewed("/var/lib/kubelet/pods/uid/mount", "0:60", "/", "fuse.s3fs", "s3fs")
    (tmp_path / NOTES[1:]).parent.mkdir(parents=True)
    (tmp_path / NOTES[1:]).write_text(json.dumps([noted]))
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/mnt").symlink_to("mnt:[1]")
    (tmp_path / "proc/self/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda rw")
    host = Host(Deadline(60), 10, str(tmp_path))
    state = PodMounts(host, PodMountOptions())._mounts("/var/lib/kubelet")
    assert state.renewed == {noted}


def test_the_note_of_an_old_staging_folder_is_read(tmp_path: Path) -> None:
    """Its path has only a name, so without the note no layer could be told from the volume."""
    root = "/var/lib/kubelet"
    folders = {
        f"{root}/plugins/kubernetes.io/csi/pv/pv-a": "globalmount",
        f"{root}/pods/0a1b2c3d-1111-2222-3333-444455556666/volumes/kubernetes.io~csi/pv-a": "mount",
    }
    lines = ["1 0 8:1 / / rw - ext4 /dev/sda rw"]
    for number, (folder, name) in enumerate(folders.items(), 2):
        (tmp_path / folder[1:]).mkdir(parents=True)
        note = {"driverName": "d", "volumeHandle": "h"}
        (tmp_path / folder[1:] / "vol_data.json").write_text(json.dumps(note))
        lines.append(f"{number} 1 8:16 / {folder}/{name} rw - ext4 /dev/sdb rw")
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/mnt").symlink_to("mnt:[1]")
    (tmp_path / "proc/self/mountinfo").write_text("\n".join(lines))
    state = PodMounts(Host(Deadline(60), 10, str(tmp_path)), PodMountOptions())._mounts(root)
    assert sorted(state.notes) == sorted(f"{folder}/vol_data.json" for folder in folders)
