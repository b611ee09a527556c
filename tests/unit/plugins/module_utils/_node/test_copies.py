# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mounts of other mount namespaces, of which a tenant may make any number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import copies, usage
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host


def namespaces(tmp_path: Path, **texts: str) -> Host:
    """Mount namespaces by a process of each; that of the node is p1's."""
    for name, text in texts.items():
        folder = tmp_path / "proc" / name[1:]
        (folder / "ns").mkdir(parents=True)
        (folder / "mountinfo").write_text(text)
        os.symlink(f"mnt:[{name}]", folder / "ns/mnt")
        os.symlink("/", folder / "root")
    return Host(Deadline(60), 5, str(tmp_path))


def line(number: int, device: str, parent: int = 1, fstype: str = "tmpfs") -> str:
    return f"{number} {parent} {device} / /mnt/{number} rw - {fstype} x rw\n"


def test_only_what_is_needed_is_kept_of_other_namespaces(tmp_path: Path) -> None:
    """A tenant may have 100,000 mounts in a user namespace of his own: they were all kept, for 158
    MB.
    """
    crowd = "".join(line(number, f"0:{number}") for number in range(100, 3000))
    node = namespaces(
        tmp_path,
        p1=line(1, "8:1") + line(50, "0:50", fstype="fuse.s3fs"),
        p7=crowd
        + line(5000, "0:60", parent=100)
        + line(5001, "0:50", parent=5000, fstype="fuse.s3fs"),
        p8=crowd,
    )
    found, crowded, spaces = copies.other_mounts(node, ["0:50"])
    # Only those in which it is.
    assert spaces == {"1": "mnt:[p1]", "7": "mnt:[p7]"}
    assert sorted((mount.pid, mount.id) for mount in found) == [("7", 5000), ("7", 5001)]
    assert crowded == {}


def test_where_a_copy_is_may_not_be_known(tmp_path: Path) -> None:
    """The threads of its process follow each other. That one may tell its namespace a moment later,
    and was then in none that has the copy.
    """
    node = namespaces(
        tmp_path, p1=line(1, "8:1"), p7=line(1, "8:1") + line(2, "0:50", fstype="fuse.s3fs")
    )
    (tmp_path / "proc/7/task/7").mkdir(parents=True)
    (tmp_path / "proc/7/stat").write_text(f"7 (a) S 1 1 1 0 -1 0{' 0' * 10} 2 0\n")
    (tmp_path / "proc/7/ns/mnt").unlink()
    found, _crowded, spaces = copies.other_mounts(node, ["0:50"])
    assert [mount.id for mount in found if mount.device == "0:50"] == [2]
    assert spaces == {"1": "mnt:[p1]", "7": ""}


def test_of_a_crowd_the_first_are_looked_at_and_that_is_told(tmp_path: Path) -> None:
    mine = "".join(
        line(number, "0:50", fstype="fuse.s3fs") for number in range(2, copies.MOST_COPIES + 500)
    )
    node = namespaces(tmp_path, p1=line(1, "8:1"), p7=line(1, "0:9") + mine)
    found, crowded, _spaces = copies.other_mounts(node, ["0:50"])
    assert len(found) == copies.MOST_COPIES + 1
    assert crowded == {
        "0:50": "1498 mounts in the mount namespace of pid 7, of which 1000 were looked at"
    }


def test_one_pods_copies_leave_room_for_another_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may make any number of namespaces, each with as many mounts as it likes."""
    monkeypatch.setattr(copies, "MOST_COPIES", 30)
    monkeypatch.setattr(copies, "MOST_OF_ALL", 50)
    many = "".join(
        line(number, device, fstype="fuse.s3fs")
        for number, device in enumerate(["0:50", "0:51"] * 20, 2)
    )
    one = line(1, "0:9") + line(2, "0:52", fstype="fuse.s3fs")
    node = namespaces(tmp_path, p1=line(1, "8:1"), p7=many, p8=many, p9=one)
    uid = "0a1b2c3d-1111-2222-3333-444455556666"
    for pid in "78":
        (tmp_path / "proc" / pid / "cgroup").write_text(f"0::/kubepods/pod{uid}/{pid * 64}\n")
    found, crowded, _spaces = copies.other_mounts(node, ["0:50", "0:51", "0:52"])
    assert [mount.pid for mount in found if mount.device == "0:52"] == ["9"]
    assert len([mount for mount in found if mount.device != "0:9"]) == 50
    assert set(crowded) == {"0:50", "0:51"}
    assert f"40 mounts in the mount namespace of the processes of pod {uid}" in crowded["0:50"]


def test_of_a_block_device_a_few_mounts_are_kept(tmp_path: Path) -> None:
    """Of 99,000 in each of four namespaces all were kept, for 421 MiB."""
    many = "".join(line(number, "8:16", fstype="ext4") for number in range(2, 2000))
    bound = "".join(
        f"{number} 1 0:5 /null /mnt/{number} rw - devtmpfs x rw\n" for number in range(3000, 4000)
    )
    one = line(2, "8:32", fstype="ext4") + "3 1 0:5 /sdd /mnt/d rw - devtmpfs x rw\n"
    first = line(1, "8:1")
    node = namespaces(tmp_path, p1=first, p7=first + many + bound, p8=first + many + one)
    known = usage.UsesByDevice(node)
    found = known.of({"sdb": "8:16"})
    assert len(found) == 21
    assert str(found[-1]) == "mounted at 3976 more places"
    assert [str(use) for use in known.of({"sdc": "8:32"})] == [
        "mounted at /mnt/2 in the mount namespace of pid 8"
    ]
    # What comes after the many of another device is read all the same.
    assert [str(use) for use in known.of({"sdd": "8:48"})] == [
        "its device node is bound at /mnt/d in the mount namespace of pid 8"
    ]
    assert len(known.of({"null": "c1:3"})) == 21


def test_a_copy_at_a_path_without_end_counts(tmp_path: Path) -> None:
    """So does one on a mount at such a path. Neither says anything of other filesystems."""
    end = "x" * 2**20
    far = f"2 1 0:50 / /{end} rw - fuse.s3fs x rw\n"
    below = f"2 1 0:9 / /{end} rw - tmpfs x rw\n" + line(3, "0:51", parent=2, fstype="fuse.s3fs")
    node = namespaces(tmp_path, p1=line(1, "8:1"), p7=line(1, "0:9") + far, p8=below)
    found, crowded, _spaces = copies.other_mounts(node, ["0:50", "0:51", "0:52"])
    assert [mount.id for mount in found] == [3]
    assert set(crowded) == {"0:50", "0:51"}
    assert "pid 7, whose path is too long to read" in crowded["0:50"]


def test_long_paths_take_no_memory(tmp_path: Path) -> None:
    """Of 1,000 copies at paths of nearly 1 MiB all were kept, for 1 GB. They count as unread."""
    far = f"2 1 0:50 / /{'x' * 9000} rw - fuse.s3fs x rw\n"
    below = f"2 1 0:9 / /{'x' * 9000} rw - tmpfs x rw\n" + line(3, "0:51", parent=2)
    node = namespaces(tmp_path, p1=line(1, "8:1"), p7=line(1, "0:9") + far, p8=below)
    found, crowded, _spaces = copies.other_mounts(node, ["0:50", "0:51"])
    assert [mount.id for mount in found] == [3]
    assert set(crowded) == {"0:50", "0:51"}


def test_copies_at_longer_paths_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 at paths of 8,192 characters, and as many that they are on, took over 1 GB (N13)."""
    monkeypatch.setattr(copies, "MOST_OF_ALL", 50)
    far = "".join(
        f"{number} {number + 1} 0:50 / /{number}{'x' * 8000} rw - fuse.s3fs x rw\n"
        f"{number + 1} 1 0:9 / /{number}{'y' * 8000} rw - tmpfs x rw\n"
        for number in range(2, 200, 2)
    )
    few = line(1, "0:9") + line(2, "0:51", fstype="fuse.s3fs")
    node = namespaces(tmp_path, p1=line(1, "8:1"), p7=line(1, "0:8") + far, p8=few)
    found, crowded, _spaces = copies.other_mounts(node, ["0:50", "0:51"])
    assert [mount.pid for mount in found if mount.device == "0:51"] == ["8"]
    far_ones = [mount for mount in found if mount.device == "0:50"]
    assert far_ones and sum(len(mount.point) for mount in far_ones) < 50 * 512
    assert min(len(mount.point) for mount in far_ones) > 8000
    # Of what they are on, only the peer groups matter.
    assert max(len(mount.point) for mount in found if mount.device == "0:9") <= 512
    assert set(crowded) == {"0:50"}


def test_of_a_long_path_the_beginning_says_where_a_device_is_used(tmp_path: Path) -> None:
    """20 of nearly 1 MiB were kept for each device, and a tenant has 50 volumes on a node (N13)."""
    far = f"2 1 8:16 / /var/{'x' * 2**19} rw - ext4 /dev/sdb rw\n"
    node = namespaces(tmp_path, p1=line(1, "8:1"), p7=line(1, "0:9") + far)
    (reason,) = usage.UsesByDevice(node).of({"sdb": "8:16"})
    assert str(reason).startswith("mounted at /var/xxx") and len(str(reason)) < 600
    assert str(reason).endswith("in the mount namespace of pid 7")
