# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Former in-tree volumes get the driver and handle that csi-translation-lib gives them."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import in_tree
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import pick_volume

ZONES = "topology.kubernetes.io/zone"
OLD_ZONES = "failure-domain.beta.kubernetes.io/zone"
GCE, UNSPECIFIED = "pd.csi.storage.gke.io", "projects/UNSPECIFIED"
URI = "/subscriptions/A/disks/d"


@pytest.mark.parametrize(
    ("source", "labels", "disk"),
    [
        # The cases of plugins/*_test.go of k8s.io/csi-translation-lib.
        (
            {"awsElasticBlockStore": {"volumeID": "vol-02399794d890f9375"}},
            {},
            ("ebs.csi.aws.com", "vol-02399794d890f9375"),
        ),
        (
            {"awsElasticBlockStore": {"volumeID": "aws:///vol-02399794d890f9375"}},
            {},
            ("ebs.csi.aws.com", "vol-02399794d890f9375"),
        ),
        (
            {"awsElasticBlockStore": {"volumeID": "aws://us-west-2a/vol-02399794"}},
            {},
            ("ebs.csi.aws.com", "vol-02399794"),
        ),
        (
            {"awsElasticBlockStore": {"volumeID": "aws://us-west-2a/ami-02399794"}},
            {},
            in_tree.NO_DISK,
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {ZONES: "us-a1-b"},
            (GCE, f"{UNSPECIFIED}/zones/us-a1-b/disks/d"),
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {OLD_ZONES: "us-a1-b", ZONES: "x"},
            (GCE, f"{UNSPECIFIED}/zones/us-a1-b/disks/d"),
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {ZONES: "us-a1-b__us-a1-c"},
            (GCE, f"{UNSPECIFIED}/regions/us-a1/disks/d"),
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {},
            (GCE, f"{UNSPECIFIED}/zones/UNSPECIFIED/disks/d"),
        ),
        ({"azureDisk": {"diskURI": URI, "kind": "Managed"}}, {}, ("disk.csi.azure.com", URI)),
        ({"azureDisk": {"diskURI": URI, "kind": "Dedicated"}}, {}, in_tree.NO_DISK),
        ({"cinder": {"volumeID": "c-1"}}, {}, ("cinder.csi.openstack.org", "c-1")),
        (
            {"vsphereVolume": {"volumePath": "[ds] a.vmdk"}},
            {},
            ("csi.vsphere.vmware.com", "[ds] a.vmdk"),
        ),
        ({"portworxVolume": {"volumeID": "p-1"}}, {}, ("pxd.portworx.com", "p-1")),
        (
            {
                "rbd": {
                    "monitors": ["10.70.53.126:6789"],
                    "pool": "replicapool",
                    "image": "kubernetes-dynamic-pvc-e4111eb6-4088",
                }
            },
            {},
            (
                "rbd.csi.ceph.com",
                "mig_mons-b7f67366bb43f32e07d8a261a7840da9_image-e4111eb6-4088_7265706c696361706f6f6c",
            ),
        ),
        ({"csi": {"driver": "x", "volumeHandle": "y"}}, {}, in_tree.NO_DISK),
        ({"nfs": {"server": "a", "path": "/"}}, {}, in_tree.NO_DISK),
    ],
)
def test_translation(source: dict[str, Any], labels: dict[str, str], disk: in_tree.Disk) -> None:
    assert in_tree.translate(source, {"labels": labels}) == disk
    volume = pick_volume({"metadata": {"name": "pv", "uid": "u", "labels": labels}, "spec": source})
    assert volume.disk == (("x", "y") if "csi" in source else disk)


def test_an_rbd_volume_may_name_its_handle() -> None:
    meta = {"annotations": {"rbd.csi.ceph.com/volume-handle": "0001-a"}}
    assert in_tree.translate({"rbd": {"image": "i"}}, meta) == ("rbd.csi.ceph.com", "0001-a")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            (GCE, f"{UNSPECIFIED}/zones/UNSPECIFIED/disks/d"),
            (GCE, "projects/p/zones/z/disks/d"),
            True,
        ),
        ((GCE, "projects/p/zones/z/disks/d"), (GCE, "projects/p/zones/z/disks/e"), False),
        (("disk.csi.azure.com", URI), ("disk.csi.azure.com", URI.lower()), True),
        (("ebs.csi.aws.com", "vol-A"), ("ebs.csi.aws.com", "vol-a"), False),
    ],
)
def test_spellings_of_one_disk(one: in_tree.Disk, other: in_tree.Disk, same: bool) -> None:
    assert (in_tree.same_disk(one) == in_tree.same_disk(other)) is same
