# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What drivers are known to do."""

from __future__ import annotations

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import drivers


@pytest.mark.parametrize(
    ("driver", "given", "place"),
    [
        ("rbd.csi.ceph.com", {}, "staging"),
        # Rook's, and those that are called nearly so.
        ("rook-ceph.rbd.csi.ceph.com", {}, "staging"),
        ("xrbd.csi.ceph.com", {}, ""),
        ("rbd.csi.ceph.com.example.com", {}, ""),
        ("ch.ctrox.csi.s3-driver", {}, "elsewhere"),
        ("csi.example.com", {}, ""),
        ("", {}, ""),
        ("csi.example.com", {"csi.example.com": "staging"}, "staging"),
        ("rbd.csi.ceph.com", {"rbd.csi.ceph.com": "elsewhere"}, "elsewhere"),
        ("a.csi.example.com", {"csi.example.com": "staging"}, ""),
    ],
)
def test_where_the_mounts_of_pods_come_from(driver: str, given: dict[str, str], place: str) -> None:
    assert drivers.publishes(driver, given) == place


def test_the_table_has_a_source_for_each() -> None:
    assert len({known.name for known in drivers.KNOWN}) == len(drivers.KNOWN)
    for known in drivers.KNOWN:
        assert known.publishes in (drivers.STAGING, drivers.ELSEWHERE)
        for source in (known.source, *(each.source for each in known.options)):
            assert source.count("/") > 1


@pytest.mark.parametrize(
    ("driver", "program", "region", "words"),
    [
        ("ru.yandex.s3.csi", "s3fs", "", ["use_path_request_style", "mp_umask=000"]),
        (
            "ru.yandex.s3.csi",
            "s3fs",
            "eu",
            ["use_path_request_style", "mp_umask=000", "endpoint=eu"],
        ),
        ("ru.yandex.s3.csi", "rclone", "eu", ["--vfs-cache-mode=writes"]),
        ("ch.ctrox.csi.s3-driver", "rclone", "", ["--vfs-cache-mode=writes"]),
        ("ru.yandex.s3.csi", "geesefs", "eu", []),
        ("csi.example.com", "s3fs", "eu", []),
        # A comma would begin another option. The volume is refused where the region is checked.
        ("ru.yandex.s3.csi", "s3fs", "x,credlib=/e", ["use_path_request_style", "mp_umask=000"]),
    ],
)
def test_options_that_a_driver_always_gives(
    driver: str, program: str, region: str, words: list[str]
) -> None:
    assert drivers.options(driver, program, region) == words
