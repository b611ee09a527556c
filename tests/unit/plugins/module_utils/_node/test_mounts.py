# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""mountinfo, swap and what they say of a device."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import mounts, usage
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import Mount

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


def escape(text: str) -> str:
    """As the kernel writes it: blanks, newlines, backslashes and # in octal."""
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in text)


@given(NAMES, NAMES, NAMES)
def test_mountinfo_round_trip(root: str, point: str, source: str) -> None:
    # A mount point may hold any other line separator that str.splitlines knows.
    line = f"36 35 253:3 {escape(root)} {escape(point)} rw,noatime master:1 - ext4 {escape(source)} rw"
    assert mounts.parse_mountinfo(f"{line}\n{line}\n", "7") == [Mount("253:3", root, point, "ext4", source, "7")] * 2


@pytest.mark.parametrize("line", ["36 35 253:3 / /mnt rw", "36 35 253:3 - ext4 x", "nonsense"])
def test_mountinfo_that_cannot_be_read(line: str) -> None:
    with pytest.raises(StorageOpsError, match="/proc/7/mountinfo"):
        mounts.parse_mountinfo(line, "7")


def tree(root: Path, files: dict[str, str], links: dict[str, str]) -> Host:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    return Host(Deadline(60), 10, str(root))


def test_every_mount_namespace_is_read_once(tmp_path: Path) -> None:
    host = tree(
        tmp_path,
        {
            "proc/1/mountinfo": "1 0 254:0 / / rw - ext4 /dev/vda rw\n",
            "proc/2/mountinfo": "must not be read, since 1 lives in the same namespace",
            "proc/30/mountinfo": "9 8 253:3 / /data rw - xfs /dev/mapper/mpathb rw\n",
            "proc/self/mountinfo": "no process",
        },
        {"proc/1/ns/mnt": "mnt:[1]", "proc/2/ns/mnt": "mnt:[1]", "proc/30/ns/mnt": "mnt:[2]", "proc/31/ns/mnt": "mnt:[3]"},
    )
    assert [(mount.point, mount.pid) for mount in mounts.all_mounts(host)] == [("/", "1"), ("/data", "30")]


def test_no_readable_namespace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageOpsError, match="root"):
        mounts.all_mounts(Host(Deadline(60), 10, str(tmp_path)))


def test_a_process_in_a_chroot_does_not_hide_the_mounts_of_its_namespace(tmp_path: Path) -> None:
    host = tree(
        tmp_path,
        {
            "proc/1/mountinfo": "1 0 254:0 / / rw - ext4 /dev/vda rw\n",
            "proc/2/mountinfo": "9 8 253:3 / /data rw - xfs /dev/mapper/mpathb rw\n",
        },
        {"proc/1/ns/mnt": "mnt:[1]", "proc/1/root": "/srv/jail", "proc/2/ns/mnt": "mnt:[1]", "proc/2/root": "/"},
    )
    assert [mount.point for mount in mounts.all_mounts(host)] == ["/", "/data"]


def test_mounts_swap_and_loops_of_a_device(tmp_path: Path) -> None:
    lines = [
        "1 0 253:3 / /mnt/a rw - ext4 /dev/anything rw",
        "2 0 0:44 / /mnt/btrfs rw - btrfs /dev/mapper/mpathb rw",
        "3 0 0:6 /dm-3 /var/lib/kubelet/x/dev/pod rw - devtmpfs udev rw",
        "4 0 253:30 / /mnt/other rw - ext4 /dev/dm-30 rw",
    ]
    host = tree(
        tmp_path,
        {
            "proc/1/mountinfo": "\n".join(lines) + "\n",
            "proc/swaps": "Filename Type Size Used Priority\n/dev/dm-4 partition 1 0 -2\n/swapfile file 1 0 -3\n",
            "sys/block/loop0/loop/backing_file": "/dev/mapper/mpathb\n",
            "sys/block/loop1/loop/backing_file": "/var/image\n",
            "dev/dm-3": "",
        },
        {"proc/1/ns/mnt": "mnt:[1]", "dev/mapper/mpathb": "../dm-3"},
    )
    assert mounts.swap_devices(host) == ["/dev/dm-4", "/swapfile"]
    uses = usage.UsesByDevice(host)
    assert uses.of({"dm-3": "253:3", "dm-4": "253:4"}) == [
        "mounted at /mnt/a in the mount namespace of pid 1",
        "mounted at /mnt/btrfs in the mount namespace of pid 1",
        "its device node is bound at /var/lib/kubelet/x/dev/pod in the mount namespace of pid 1",
        "behind loop0",
        "/dev/dm-4 is swap",
    ]
    assert uses.of({"dm-300": "253:300"}) == []
