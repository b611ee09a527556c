# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which image is behind a PersistentVolume."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.images import (
    Target,
    image_of,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)

UUID = "5a4b2e4c-0242-11ec-a251-0242ac110002"
HANDLE = f"0001-0024-7635de36-ab1f-4a70-98a2-a1bd80ba77c4-0000000000000006-{UUID}"


def csi(
    driver: str = "rbd.csi.ceph.com", handle: str = HANDLE, **attributes: str
) -> dict[str, Any]:
    return {
        "metadata": {"name": "pv"},
        "spec": {"csi": {"driver": driver, "volumeHandle": handle, "volumeAttributes": attributes}},
    }


@pytest.mark.parametrize(
    ("volume", "image"),
    [
        (csi(clusterID="c", pool="p", imageName="i"), ("p", "", "i")),
        (
            csi(
                "openshift-storage.rbd.csi.ceph.com",
                clusterID="c",
                pool="p",
                imageName="i",
                radosNamespace="n",
            ),
            ("p", "n", "i"),
        ),
        (csi("storage.example.com", clusterID="c", pool="p", imageName="i"), ("p", "", "i")),
        (csi("storage.example.com", pool="p", journalPool="j", imageName="i"), ("p", "", "i")),
        (csi(handle="data", clusterID="c", pool="p", staticVolume="true"), ("p", "", "data")),
        # of a release that did not write the name
        (csi(clusterID="c", pool="p"), ("p", "", f"csi-vol-{UUID}")),
        (
            {"metadata": {"name": "pv"}, "spec": {"rbd": {"image": "i", "monitors": []}}},
            ("rbd", "", "i"),
        ),
        (
            {
                "metadata": {"name": "pv"},
                "spec": {"rbd": {"image": "i", "pool": "p", "monitors": []}},
            },
            ("p", "", "i"),
        ),
    ],
)
def test_the_image_of_a_volume(volume: dict[str, Any], image: tuple[str, str, str]) -> None:
    assert image_of(volume, {}) == Target("pv", *image)


@pytest.mark.parametrize(
    "volume",
    [
        csi("cephfs.csi.ceph.com", clusterID="c", fsName="f", subvolumeName="s"),
        csi("csi.example.com", pool="p"),
        csi("csi.example.com", clusterID="c", imageName="i"),
        {"metadata": {"name": "pv"}, "spec": {"nfs": {"server": "s", "path": "/"}}},
    ],
)
def test_volumes_of_others(volume: dict[str, Any]) -> None:
    assert image_of(volume, {}) is None


@pytest.mark.parametrize(
    "volume",
    [
        csi(handle="odd", clusterID="c", pool="p"),
        csi(clusterID="c"),
        {"metadata": {"name": "pv"}, "spec": {"rbd": {"pool": "p"}}},
        # The image is RBD by its attributes, but not in that pool.
        csi("storage.example.com", handle="h", journalPool="j", imageName="i"),
    ],
)
def test_volumes_that_do_not_say(volume: dict[str, Any]) -> None:
    target = image_of(volume, {})
    assert (
        target is not None
        and "does not say" in target.problem
        and target.title in ("pv", "i", f"csi-vol-{UUID}")
    )


@pytest.mark.parametrize(
    ("volume", "namespace"),
    [
        (csi(clusterID="c", pool="p", imageName="i"), "of-c"),
        (csi(clusterID="c", pool="p", imageName="i", radosNamespace="own"), "own"),
        (csi(clusterID="d", pool="p", imageName="i"), ""),
        (csi(pool="p", imageName="i"), ""),
        ({"metadata": {"name": "pv"}, "spec": {"rbd": {"image": "i"}}}, ""),
    ],
)
def test_the_namespace_that_only_ceph_csi_knows(volume: dict[str, Any], namespace: str) -> None:
    target = image_of(volume, {"c": "of-c", "": "none"})
    assert target is not None and target.namespace == namespace


@pytest.mark.parametrize(
    "volume",
    [
        {},
        {"metadata": {"name": "pv"}},
        {"metadata": {}, "spec": {}},
        {"metadata": None, "spec": {"csi": {}}},
    ],
)
def test_what_is_no_volume(volume: dict[str, Any]) -> None:
    with pytest.raises(StorageOpsError, match="not a PersistentVolume"):
        image_of(volume, {})


@given(
    st.dictionaries(
        st.sampled_from(["clusterID", "pool", "imageName", "staticVolume", "radosNamespace"]),
        st.text(max_size=5),
    ),
    st.text(max_size=80),
)
def test_an_image_is_whole_or_has_a_problem(attributes: dict[str, str], handle: str) -> None:
    target = image_of(csi(handle=handle, **attributes), {})
    assert target is not None and bool(target.problem) == (not (target.pool and target.image))
