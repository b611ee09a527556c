# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A volume of a FUSE driver, and where the kubelet and a pod have it."""

from __future__ import annotations

import hashlib

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import (
    FuseVolume,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import ROOT

UID, OTHER_UID = "0a1b2c3d-1111-2222-3333-444455556666", "0a1b2c3d-1111-2222-3333-777777777777"
PV, DRIVER, HANDLE = "pvc-1", "s3.csi.example.com", "bucket-a"
DIGEST = hashlib.sha256(HANDLE.encode()).hexdigest()
STAGE_FOLDER = f"{ROOT}/plugins/kubernetes.io/csi/{DRIVER}/{DIGEST}"
STAGING = f"{STAGE_FOLDER}/globalmount"
POD_FOLDER = f"{ROOT}/pods/{UID}/volumes/kubernetes.io~csi/{PV}"
PUBLISH = f"{POD_FOLDER}/mount"
SUBPATH = f"{ROOT}/pods/{UID}/volume-subpaths/{PV}/main/0"
KEYS = {"access_key": "AKIDEXAMPLE", "secret_key": "s3cr3t-key"}
VOLUME = FuseVolume(
    volume=PV,
    driver=DRIVER,
    handle=HANDLE,
    sources=("bucket-a",),
    endpoint="https://s3",
    credentials=KEYS,
)
