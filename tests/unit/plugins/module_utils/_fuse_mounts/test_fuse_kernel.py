# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The numbers of mounts and filesystems that are gone belong to others at once: on this kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.tests.unit.support import fuse_kernel

# CI has what it takes, so there a missing part is a failure.
pytestmark = pytest.mark.skipif(
    not os.environ.get("CI") and (os.geteuid() != 0 or not os.path.exists("/dev/fuse")),
    reason="only root mounts FUSE",
)


def become(scenario: str) -> Any:
    """What became of a scenario."""
    command = ["unshare", "-mpf", "--mount-proc", sys.executable, "-m", fuse_kernel.__name__]
    # ansible-test finds collections by a hook, which another process does not have.
    found = Path(fuse_kernel.__file__).parents[6]
    places = [str(found), *filter(None, [os.environ.get("PYTHONPATH")])]
    for _attempt in range(50):
        run = subprocess.run(
            [*command, scenario],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        )
        # Another program was quicker to mount something.
        if run.returncode != os.EX_TEMPFAIL:
            break
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_dead_mount_without_pods_is_taken_off() -> None:
    assert become("dead") == {"error": "", "code": "", "there": [], "answer": "ok"}


def test_the_dead_mounts_of_a_pod_are_taken_off() -> None:
    found = become("of a pod")
    assert (found["error"], found["there"], found["proof"]) == ("", [], 5)
    assert found["verbs"] == ["wait_for_containers", *["unmount"] * 4, "wait_unstaged"]


def test_a_fresh_mount_with_the_numbers_of_the_dead_one_stays() -> None:
    """The driver mounted again, and the kernel gave it the same numbers: pods of the volume wrote
    to the node's disk after it was unmounted.
    """
    found = become("mounted again")
    assert (found["there"], found["answer"]) == (["fuse.s3fs"], "ok")
    assert found["code"] == "world_changed" and "answers now" in found["error"]


def test_a_dead_mount_that_a_pod_wants_by_now_stays() -> None:
    found = become("wanted")
    assert (found["there"], found["code"]) == (["fuse.s3fs"], "pods_wanted")
    assert found["error"].startswith("NotStarted: ") and fuse_kernel.UID in found["error"]


@pytest.mark.parametrize(
    ("scenario", "there"), [("on a healthy one", ["fuse.s3fs"]), ("on dead ones", [])]
)
def test_what_lies_below_a_dead_mount_is_asked(scenario: str, there: list[str]) -> None:
    """In a copy of the mount namespace, where it has another number."""
    assert become(scenario) == {"error": "", "code": "", "there": there, "answer": "ok"}


def test_a_dead_mount_is_replaced() -> None:
    assert become("replace") == {"error": "", "code": "", "there": ["fuse.s3fs"], "answer": "ok"}


def test_a_fresh_mount_is_not_replaced() -> None:
    """Two servers for one volume, each with what it has not written yet."""
    found = become("replace what was mounted again")
    assert found["there"] == ["fuse.s3fs"] and "answers now" in found["error"]


def test_only_what_was_proven_replaces_a_dead_mount() -> None:
    """Without its mount the folder is one of the node's memory, and pods wrote to that."""
    found = become("replace by what was swept")
    assert (found["there"], found["answer"]) == (["fuse.s3fs"], "dead")
    assert "NotStarted: " in found["error"] and "not on the new mount" in found["error"]


def test_a_connection_that_hangs_is_cut() -> None:
    found = become("abort")
    assert (found["error"], found["answer"], found["other"]) == ("", "dead", "ok")


def test_the_connection_of_another_is_never_cut() -> None:
    """It had the device by then, and what hung at the point had the number of what hung before."""
    found = become("abort another")
    assert (found["other"], found["answer"]) == ("ok", "hung")
    assert "NotStarted: " in found["error"]


# one tenant's volume, and another's


@pytest.mark.parametrize(
    ("scenario", "subpath"), [("a file", "dead"), ("a file for a bare point", "bare")]
)
def test_a_file_where_a_folder_was_concerns_its_own_volume(scenario: str, subpath: str) -> None:
    """The kernel mounts no file on a folder. The dead mount was taken off first: the pod wrote to
    the node's disk from then on, and no other tenant's volume was repaired on the node any more.
    """
    for run in become(scenario):
        assert (run["ended"], run["half made"]) == ("", {})
        assert "is a file in the new mount, but a folder was mounted" in str(run["failed"])
        assert run["answers"] == [["dead", "dead", subpath], ["ok", "ok", "ok"]]


def test_a_pod_that_is_deleted_meanwhile_ends_no_other_repair() -> None:
    (run,) = become("deleted")
    assert (run["ended"], run["half made"], run["failed"], run["refused"]) == ("", {}, [], [])
    assert run["answers"] == [["ok", "bare", "ok"], ["ok", "ok", "ok"]]
