# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The 68-character collision: which names, which versions, and the prefix that prevents it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import names

UNITY = "csi-unity.dellemc.com"


def handle(length: int, driver: str = UNITY) -> str:
    """A handle that makes the name so many bytes long."""
    return "v" * (length - len(driver) - 1)


@pytest.mark.parametrize(("length", "collides"), [(67, False), (68, True), (69, False)])
def test_only_one_length_collides(length: int, collides: bool) -> None:
    assert names.length(UNITY, handle(length)) == length
    assert names.collides(UNITY, handle(length)) is collides


def test_other_drivers_never_do() -> None:
    assert not names.collides("unity.dellemc.com", handle(68, "unity.dellemc.com"))
    assert not names.collides("csi.huawei.com", handle(68, "csi.huawei.com"))


def test_bytes_count_not_characters() -> None:
    assert names.collides(UNITY, handle(66) + "ü")
    assert not names.collides(UNITY, handle(67) + "ü")


@pytest.mark.parametrize(
    ("ending", "length", "grows"),
    [
        ("_9", 67, True),
        ("_9", 65, True),
        ("_9", 64, False),
        ("_9", 68, False),
        ("_99", 66, True),
        ("_x", 67, False),
    ],
)
def test_numbers_that_grow_into_it(ending: str, length: int, grows: bool) -> None:
    assert names.grows_into(UNITY, handle(length - len(ending)) + ending) is grows


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ((1, 20, 2), "yes"),
        ((1, 21, 14), "yes"),
        ((1, 22, 13), "yes"),
        ((1, 22, 14), "unknown"),
        ((1, 23, 10), "yes"),
        ((1, 23, 11), "unknown"),
        ((1, 24, 0), "unknown"),
        ((1, 24, 17), "unknown"),
        ((1, 25, 0), "no"),
        ((1, 36, 3), "no"),
        ((2, 0, 0), "no"),
    ],
)
def test_versions(version: tuple[int, int, int], answer: str) -> None:
    assert names.affected(version) == answer


def test_prefix_is_lengthened_by_what_is_missing() -> None:
    volume = "csivol-c6b8f2c16a-iSCSI-fnm00153800463-sv_99"
    assert names.length(UNITY, volume) == 66
    # With one digit it has 65 bytes, and has to have 69.
    assert names.safe_prefix(UNITY, [volume], "csivol") == "csivolxxxx"


def test_prefix_that_is_safe_or_useless_stays() -> None:
    assert names.safe_prefix(UNITY, ["pvc-" + handle(69)], "pvc") == "pvc"
    assert names.safe_prefix("csi.huawei.com", [], "pvc") == "pvc"
    assert names.safe_prefix("csi.huawei.com", ["no prefix in it"], "pvc") == "pvc"


@pytest.mark.parametrize(
    ("handles", "prefix", "error"),
    [
        (["vol-1"], "pvc", "does not contain the prefix 'pvc'"),
        (["pvc-1", "vol-1"], "pvc", "'vol-1' does not contain"),
        ([], "pvc", "no volume handle"),
        (["pvc-1"], "PVC", "not a DNS label"),
        (["pvc-1"], "pvc-", "not a DNS label"),
        (["pvc-1"], "", "not a DNS label"),
    ],
)
def test_what_is_refused(handles: list[str], prefix: str, error: str) -> None:
    with pytest.raises(StorageOpsError, match=error):
        names.safe_prefix(UNITY, handles, prefix)


HANDLES = st.lists(
    st.from_regex(r"[a-z0-9]{0,20}pvc[a-z0-9_-]{0,40}", fullmatch=True), min_size=1, max_size=5
)
# The provisioner makes PREFIX-UID (makeVolumeName in external-provisioner's controller.go), so no
# filler follows a prefix by itself.
MADE = st.lists(
    st.from_regex(r"[a-uw-z0-9]{0,20}pvc-[a-uw-z0-9_-]{0,40}", fullmatch=True),
    min_size=1,
    max_size=5,
)
DRIVERS = st.from_regex(r"csi-[a-z]{10,30}", fullmatch=True)


@given(driver=DRIVERS, handles=HANDLES, number=st.integers(0, 10**6))
def test_no_volume_can_collide_any_more(driver: str, handles: list[str], number: int) -> None:
    prefix = names.safe_prefix(driver, handles, "pvc")
    assert prefix.startswith("pvc") and len(prefix) <= 63
    for item in handles:
        volume = names._NUMBER.sub(str(number), item.replace("pvc", prefix, 1))
        assert names.length(driver, volume) > names.COLLISION
    if prefix != "pvc":
        shorter = [names._NUMBER.sub("0", item.replace("pvc", prefix[:-1], 1)) for item in handles]
        assert any(names.length(driver, volume) <= names.COLLISION for volume in shorter)


@given(driver=DRIVERS, handles=HANDLES)
def test_a_handle_that_looks_like_an_earlier_answer_only_makes_it_longer(
    driver: str, handles: list[str]
) -> None:
    prefix = names.safe_prefix(driver, handles, "pvc")
    assert len(names.safe_prefix(driver, handles, prefix)) >= len(prefix)


@given(driver=DRIVERS, handles=MADE)
def test_the_answer_is_its_own_answer(driver: str, handles: list[str]) -> None:
    """When the provisioner has the new prefix, the volumes of before and after give the same answer
    again.
    """
    prefix = names.safe_prefix(driver, handles, "pvc")
    assert names.safe_prefix(driver, handles, prefix) == prefix
    assert (
        names.safe_prefix(driver, [item.replace("pvc", prefix, 1) for item in handles], prefix)
        == prefix
    )
