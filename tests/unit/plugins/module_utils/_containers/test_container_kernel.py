# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What containers have of the node's mounts, and do with them: on this kernel."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers.mounters import (
    MOST_GONE,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    DEAD,
    ERROR,
    HUNG,
    OK,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support import container_kernel, own_kernel

# CI has what it takes, so there a missing part is a failure.
pytestmark = pytest.mark.skipif(
    not os.environ.get("CI") and (os.geteuid() != 0 or not os.path.exists("/dev/fuse")),
    reason="only root mounts FUSE",
)
UNKNOWN = ("STOR-05", "minor", "evidence_unreadable")


def look(scenario: str) -> tuple[list[str], list[dict[str, Any]]]:
    """(mount points of the volumes, what a run finds in each container)."""
    points, found = own_kernel.become(container_kernel.__name__, scenario)
    return points, found


def said(found: dict[str, Any]) -> tuple[str, str, str]:
    return found["control"], found["severity"], found["code"]


def test_a_mount_that_the_node_has_no_more_is_found_dead() -> None:
    """Pods with hostUsers: false kept their dead mounts, and every run called them well."""
    (point,), (usual, alone) = look("gone")
    assert usual["asked"] == alone["asked"] == [[point, DEAD]]
    assert usual["control"] == alone["control"] == "STOR-05"
    assert usual["severity"] == alone["severity"] == "major"


@pytest.mark.parametrize(
    ("scenario", "why"),
    [
        ("gone, of root", "its user namespace has the user who mounts volumes on the node"),
        ("gone, without fusectl", "the kernel does not tell who mounted it"),
    ],
)
def test_what_may_be_a_volume_or_its_own_is_not_known(scenario: str, why: str) -> None:
    """It is not asked, since its server may be a tenant's; and it is never well."""
    _points, found = look(scenario)
    assert (found[-1]["asked"], said(found[-1])) == ([], UNKNOWN)
    assert why in found[-1]["reason"]


def test_of_many_that_the_node_has_no_more_some_are_asked() -> None:
    """The others are not known, should those come to life again."""
    points, (found,) = look("many are gone")
    assert len(points) > MOST_GONE and len(found["asked"]) == MOST_GONE
    assert {answer for _point, answer in found["asked"]} == {DEAD}


def test_what_a_container_has_mounted_itself_is_not_asked() -> None:
    """Its servers hang; so many more children would wait for them after each run."""
    points, (found,) = look("own")
    assert found == {"asked": [[points[0], OK]]}


def test_a_users_own_mounts_are_not_asked_where_they_may_be_the_nodes() -> None:
    points, (found,) = look("own, of root")
    assert (found["asked"], said(found)) == ([[points[0], OK]], UNKNOWN)
    assert "2 of its FUSE filesystems (as 0:" in found["reason"]


def test_a_way_that_hangs_in_one_container_says_nothing_of_the_mount() -> None:
    """A tenant puts its copy below a server of its own. Another tenant's dead mount was hung then,
    and was never repaired.
    """
    (point,), (evil, victim) = look("shared")
    assert evil["asked"] == [["/mnt/own/sub", HUNG]]
    assert victim["asked"] == [[point, DEAD]]


def test_children_that_wait_on_such_a_way_keep_no_other_from_an_answer() -> None:
    """Each run leaves one. When they are too many, that tenant is not asked any more."""
    (point,), (evil, victim) = look("shared, often")
    assert evil["asked"] == [["/mnt/own/sub", ERROR]] and said(evil) == UNKNOWN
    assert victim["asked"] == [[point, DEAD]]
