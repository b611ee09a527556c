# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""mountinfo, swap and what they say of a device."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random as random_module
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import mounts, usage
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import (
    MOST_LINE,
    MOST_WORD,
    Host,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    MountTable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.namespaces import (
    Namespaces,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.mountinfo import (
    parse_mountinfo,
)

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=20,
)


def escape(text: str) -> str:
    """As the kernel writes it: blanks, newlines, backslashes and # in octal."""
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in text)


def test_long_options_are_not_kept() -> None:
    """An overlay in a user namespace has 120 KB of them, and each may have others: 1000 of these
    were kept, in each process that reads mounts.
    """
    mounts._kept_words.cache_clear()
    plain = "5 1 0:9 / /x rw - overlay overlay rw,{}"
    for number in range(2000):
        parse_mountinfo(plain.format(f"lowerdir+=/{number}" * 100), "9")
    # Those of the mount itself.
    assert mounts._kept_words.cache_info().currsize == 1
    (one,) = parse_mountinfo(plain.format("lowerdir=/a\\054b,ro"), "9")
    assert one.super_options == ("rw", "lowerdir=/a,b", "ro")
    assert mounts._kept_words.cache_info().currsize == 2


@given(NAMES, NAMES, NAMES, NAMES)
def test_mountinfo_round_trip(root: str, point: str, source: str, option: str) -> None:
    # A mount point may hold any other line separator that str.splitlines knows.
    word = escape(option).replace(",", "\\054")
    line = (
        f"36 35 253:3 {escape(root)} {escape(point)} rw,noatime shared:7 master:1 new:9 "
        f"unbindable - ext4 {escape(source)} ro,x={word}"
    )
    mount = Mount(
        id=36,
        parent=35,
        device="253:3",
        root=root,
        point=point,
        options=("rw", "noatime"),
        shared=7,
        master=1,
        unbindable=True,
        fstype="ext4",
        source=source,
        super_options=("ro", f"x={option}"),
        pid="7",
    )
    assert parse_mountinfo(f"{line}\n{line}\n", "7") == [mount] * 2


def test_mountinfo_with_nothing_optional() -> None:
    """A FUSE server may give no name as source, blanks in its type, and the kernel may pass on
    options that it did not escape.
    """
    (mount,) = parse_mountinfo("40 1 0:52 / /mnt/- rw - fuse.my\\040fs  rw,fsname=a b", "1")
    assert (mount.shared, mount.master, mount.unbindable) == (0, 0, False)
    assert (mount.point, mount.fstype, mount.source, mount.super_options) == (
        "/mnt/-",
        "fuse.my fs",
        "",
        ("rw", "fsname=a b"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "36 35 253:3 / /mnt rw",
        "36 35 253:3 - ext4 x",
        "nonsense",
        "36 35 253:3 / /mnt rw - ext4 x",
        "\u0663 1 0:1 / / rw - a b rw",
    ],
)
def test_mountinfo_that_cannot_be_read(line: str) -> None:
    with pytest.raises(StorageOpsError, match="/proc/7/mountinfo"):
        parse_mountinfo(line, "7")


def words(*choices: str, max_size: int = 1) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(choices), min_size=1, max_size=max_size).map(" ".join)


# Near misses find more than noise does.
LINE = st.tuples(
    words("1", "2", "3", "x"),
    words("0", "1", "2"),
    words("0:5", "0:5", "0"),
    words("/", "-"),
    words("/", "/a", "/a\\040b", "/\\777"),
    words("rw", ""),
    words("-", "shared: -", "master:1 shared:1 -", "- -"),
    words("ext4", "", max_size=3),
    words("rw", "\r", max_size=2),
).map(" ".join)


@given(st.one_of(st.text(st.characters()), st.lists(LINE, max_size=5).map("\n".join)))
def test_any_mountinfo_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(StorageOpsError):
        found = mounts.MountTable(parse_mountinfo(text, "7"))
        for mount in found.mounts:
            assert mount not in found.on(mount)
            assert {layer.point for layer in found.layers(mount.point)} <= {mount.point}


def table(*lines: str) -> MountTable:
    """A table from "id parent point"."""
    texts = (
        "{} {} 0:{} / {} rw - fuse s rw".format(*line.split(" ")[:2], index, line.split(" ")[2])
        for index, line in enumerate(lines)
    )
    return MountTable(parse_mountinfo("\n".join(texts), "1"))


def ids(found: list[Mount]) -> list[int]:
    return [mount.id for mount in found]


def test_what_is_on_top_is_told_by_the_parents() -> None:
    """Numbers are used again, so the top one may have the smaller, and a mount put beneath another
    comes last.
    """
    stacked = table("1 0 /", "90 1 /mnt", "20 90 /mnt", "50 20 /mnt", "60 50 /mnt/inside")
    assert ids(stacked.layers("/mnt")) == [90, 20, 50]
    assert ids(stacked.layers("/mnt/inside")) == [60]
    assert stacked.layers("/mn") == stacked.layers("/mnt/inside/deeper") == []
    assert ids(
        [mount for mount in map(stacked.holding, ("/", "/mnt/x", "/mnt/inside/x")) if mount]
    ) == [1, 50, 60]
    assert ids(stacked.on(stacked.mounts[2])) == [50, 60]


def test_what_is_hidden_is_no_layer() -> None:
    hidden = table("1 0 /", "2 1 /a/b", "3 1 /a", "4 3 /a/b")
    assert ids(hidden.layers("/a/b")) == [4]
    assert hidden.holding("/a/c") == hidden.mounts[2]
    assert table("1 0 /", "2 1 /a/b", "3 1 /a").layers("/a/b") == []


def test_the_root_of_a_process() -> None:
    assert ids(table("1 1 /", "2 1 /a").layers("/a")) == [2]
    assert ids(table("1 1 /", "2 1 /a").layers("/")) == [1]
    # In a chroot the mount with the root is not listed.
    assert ids(table("5 1 /a", "6 1 /b", "7 5 /a").layers("/a")) == [5, 7]
    assert table("5 1 /a").holding("/b") is None
    # What was mounted over the root later is not what a process begins its lookups in.
    assert ids(table("1 0 /", "2 1 /", "3 1 /a").layers("/a")) == [3]


def test_a_stack_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may stack 50,000 mounts at a point, and have as many on it. Each walk took all of
    them: minutes, without a look at the deadline.
    """
    number = 3000
    lines = ["1 0 /", "2 1 /a", *(f"{n} {n - 1} /a" for n in range(3, number))]
    lines += [f"{number + n} {number - 1} /a/{n}" for n in range(number)]
    tall = table(*lines)

    class Counted(dict[tuple[int, str], Mount]):
        looks = 0

        def __getitem__(self, place: tuple[int, str]) -> Mount:
            self.looks += 1
            return super().__getitem__(place)

    tall._at = counted = Counted(tall._at)
    for n in range(number):
        assert ids(tall.layers(f"/a/{n}")) == [number + n]
    assert counted.looks < 3 * number
    assert len(tall.layers("/a")) == number - 2
    assert len(tall.on(tall.mounts[0])) == 2 * number - 2


def test_what_cannot_be_told_is_an_error() -> None:
    for lines in (("1 0 /", "1 0 /a"), ("1 0 /", "5 4 /a"), ("2 3 /", "3 2 /")):
        with pytest.raises(StorageOpsError, match="cannot be told|part of them"):
            table(*lines)
    beside = table("1 0 /", "2 1 /a", "3 1 /a", "4 1 /b")
    assert ids(beside.layers("/b")) == [4]
    with pytest.raises(StorageOpsError, match="side by side at '/a'"):
        beside.layers("/a")


@given(st.lists(st.sampled_from(["/a", "/a/b", "/a/b/c", "/d"]), max_size=8), st.randoms())
def test_layers_are_those_that_were_mounted(
    points: list[str], random: random_module.Random
) -> None:
    """Mounted one by one on what a path led to then; numbers and order in the file are any."""
    numbers = random.sample(range(2, 99), len(points))
    made = [(1, 0, "/")]
    stacks: dict[str, list[int]] = {}
    for number, point in zip(numbers, points):
        # A new mount hides what was mounted below that point.
        above = max(
            (other for other in stacks if f"{point}/".startswith(f"{other}/")), key=len, default=""
        )
        made.append((number, stacks[above][-1] if above else 1, point))
        stacks = {
            other: stack for other, stack in stacks.items() if not other.startswith(f"{point}/")
        }
        stacks.setdefault(point, []).append(number)
    random.shuffle(made)
    found = table(*(f"{number} {parent} {point}" for number, parent, point in made))
    assert {point: ids(found.layers(point)) for point in points} == {
        point: stacks.get(point, []) for point in points
    }


def test_a_table_is_read_until_it_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = tree(tmp_path, {}, {})
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/mountinfo").write_bytes(
        b"1 0 0:1 / / rw - a b rw\n2 1 0:2 / /\xff\\134 rw - a b rw\n"
    )
    assert os.fsencode(mounts.read_table(host, "7").mounts[1].point) == b"/\xff\\"
    one, other = b"1 0 0:1 / / rw - a b rw", b"2 1 0:2 / /x rw - a b rw"
    texts = iter([[one], [one, other], [one, other]])
    monkeypatch.setattr(Host, "lines", lambda *_args: next(texts))
    assert len(mounts.read_table(host, "7").mounts) == 2
    changing = itertools.count(1)
    monkeypatch.setattr(
        Host, "lines", lambda *_args: [b"%d 0 0:1 / / rw - a b rw" % next(changing)]
    )
    with pytest.raises(StorageOpsError, match="different each"):
        mounts.read_table(host, "7")
    # Whose pods are in the way is said: theirs are the mounts that change, and the long paths.
    monkeypatch.setattr(
        Host,
        "lines",
        lambda *_args: [
            one,
            b"2 1 0:2 /%s /k/pods/deep/x rw - a b rw" % (b"x" * 5000),
            *(b"%d 1 0:3 / /k/pods/jobs/%d rw - a b rw" % (next(changing), n) for n in range(9)),
        ],
    )
    with pytest.raises(StorageOpsError, match="different each") as raised:
        mounts.read_table(host, "7")
    assert (
        ". These came or went the last time: /k/pods/jobs/0, /k/pods/jobs/1, /k/pods/jobs/2 and 6 "
        "more. These have a long path: /k/pods/deep/x"
    ) in str(raised.value)
    assert "x" * 300 not in str(raised.value) and raised.value.code == "device_changing"
    # A tenant renames folders of its volume as often as it likes.
    monkeypatch.setattr(
        Host, "lines", lambda *_args: [one, b"2 1 0:2 /%d /x rw - a b rw" % next(changing)]
    )
    assert len(mounts.read_table(host, "7").mounts) == 2

    def failing(*_args: Any) -> Iterator[bytes]:
        yield one
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(Host, "lines", failing)
    with pytest.raises(StorageOpsError, match="longer than the kernel has memory for") as long:
        mounts.read_table(host, "7")
    assert long.value.code == "evidence_unreadable"
    monkeypatch.undo()
    (tmp_path / "proc/7/mountinfo").unlink()
    with pytest.raises(StorageOpsError, match="cannot be read: the process is gone"):
        mounts.read_table(host, "7")


def test_any_number_of_long_roots_is_read_and_little_of_them_kept(tmp_path: Path) -> None:
    """Each subPath of a pod is a mount of the node, and the pod's tenant chose the path of its
    root: one pod had 17 MB of them, and no control was assessed.
    """
    long = "/".join(["\\040" * 250] * 15)
    lines = ["1 0 0:1 / / rw - ext4 /dev/vda rw"]
    lines += [
        f"{number} 1 0:2 /{long}/{number} /{number} rw - ext4 x rw" for number in range(2, 1200)
    ]
    lines += [f"1200 1 0:2 /{long}//deleted /d rw - ext4 x rw"]
    text = "\n".join(lines)
    assert len(text) > 2**24
    host = tree(tmp_path, {"proc/1/mountinfo": text}, {})
    table = mounts.read_table(host, "1")
    roots = [mount.root for mount in table.mounts]
    assert len(set(roots)) == 1200 and max(map(len, roots)) < 2000
    assert all(root.startswith("/" + " " * 250) for root in roots[1:])
    assert roots[-1].endswith("//deleted") and not roots[-2].endswith("//deleted")


def test_the_table_of_this_process() -> None:
    """What this kernel writes hangs together, and a path leads to the mount that the
    kernel names.
    """
    found = mounts.read_table(Host(Deadline(60), 10), "self")
    descriptor = os.open("/proc", os.O_PATH)
    info = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    os.close(descriptor)
    assert f"mnt_id:\t{found.layers('/proc')[-1].id}\n" in info


def tree(root: Path, files: dict[str, str], links: dict[str, str]) -> Host:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    return Host(Deadline(60), 10, str(root))


def all_mounts(host: Host, too_long: Callable[[Mount], object] | None = None) -> list[Mount]:
    return [mount for _namespace, mount in Namespaces(host).mounts(too_long=too_long)]


def test_every_mount_namespace_is_read_once(tmp_path: Path) -> None:
    host = tree(
        tmp_path,
        {
            "proc/1/mountinfo": "1 0 254:0 / / rw - ext4 /dev/vda rw\n",
            "proc/2/mountinfo": "must not be read, since 1 lives in the same namespace",
            "proc/30/mountinfo": "9 8 253:3 / /data rw - xfs /dev/mapper/mpathb rw\n",
            "proc/self/mountinfo": "no process",
        },
        {
            "proc/1/ns/mnt": "mnt:[1]",
            "proc/2/ns/mnt": "mnt:[1]",
            "proc/30/ns/mnt": "mnt:[2]",
            "proc/31/ns/mnt": "mnt:[3]",
        },
    )
    assert [(mount.point, mount.pid) for mount in all_mounts(host)] == [
        ("/", "1"),
        ("/data", "30"),
    ]


def long_line(number: int, device: str, characters: int = MOST_LINE) -> str:
    return f"{number} 1 {device} / /{'x' * characters} rw - ext4 /dev/x rw\n"


def test_of_a_line_without_end_little_is_kept(tmp_path: Path) -> None:
    """The words after a long path, each cut; so that many of them do not take memory either."""
    (tmp_path / "mountinfo").write_text(f"{'x' * 3 * MOST_LINE} {'y' * MOST_LINE} - {'z ' * 2**17}")
    (line,) = Host(Deadline(60), 10, str(tmp_path)).lines("/mountinfo")
    kept = line[MOST_LINE:].decode()
    assert kept.startswith(f"{'x' * MOST_WORD} {'y' * MOST_WORD} - z z ")
    assert len(kept) == 2**16


def test_of_a_path_without_end_the_device_is_known(tmp_path: Path) -> None:
    """A path in mountinfo may have any length. Its mount is in use, and others are read."""
    first = "1 0 254:0 / / rw - ext4 /dev/vda rw\n"
    text = first + long_line(2, "8:16") + long_line(3, "8:32", 500_000) + "4 1 8:48 / /b rw - a b c"
    host = tree(tmp_path, {"proc/1/mountinfo": text}, {"proc/1/ns/mnt": "mnt:[1]"})
    told: list[mounts.Mount] = []
    found = all_mounts(host, told.append)
    assert [mount.id for mount in found] == [1, 3, 4]
    # The words after the path are read whole.
    (long,) = told
    assert (long.device, long.fstype, long.source) == ("8:16", "ext4", "/dev/x")
    with pytest.raises(StorageOpsError, match="line of more than"):
        all_mounts(host)
    uses = usage.UsesByDevice(host)
    for device, said in (("8:16", "too long to read"), ("8:48", "mounted at /b")):
        (use,) = uses.of({"sdx": device})
        assert said in use
    assert uses.of({"sdx": "8:64"}) == []


@pytest.mark.parametrize("by", ["root", "point"])
@pytest.mark.parametrize(
    ("mount", "code"),
    [
        # The words behind a path are whole, so they tell as much as behind a short one.
        ("btrfs /dev/sdx", "in_use_mounted"),
        ("btrfs /dev/x", ""),
        # A folder of a volume can be renamed to any depth, and is on no disk of this node.
        ("nfs4 server:/export", ""),
        ("ceph 192.0.2.1:/volumes/csi", ""),
        # Those that a container can mount in a user namespace of its own are on none.
        ("overlay /dev/sdx", ""),
        ("fuse.btrfs /dev/sdx", ""),
        ("tmpfs tmpfs", ""),
    ],
)
def test_a_containers_path_without_end_hides_no_use_of_a_disk(
    tmp_path: Path, mount: str, code: str, by: str
) -> None:
    """Nor does it hold up what it cannot use."""
    text = "1 0 254:0 / / rw - ext4 /dev/vda rw\n"
    deep = "x" * MOST_LINE
    path = f"/{deep} /a" if by == "root" else f"/ /{deep}"
    files = {"proc/1/mountinfo": text, "proc/7/mountinfo": f"{text}2 1 0:99 {path} rw - {mount} rw"}
    links = {"proc/1/ns/mnt": "mnt:[1]", "proc/7/ns/mnt": "mnt:[7]"}
    uses = usage.UsesByDevice(tree(tmp_path, files, links)).of({"sdx": "8:64"})
    assert [use.code for use in uses] == [code] * bool(code)


@pytest.mark.parametrize(
    ("fstype", "root", "code"),
    [
        ("tmpfs", f"/{'x' * MOST_LINE} /a", "evidence_unreadable"),
        ("devtmpfs", f"/{'x' * MOST_LINE} /a", "evidence_unreadable"),
        ("tmpfs", f"/sdx /{'x' * MOST_LINE}", "in_use_mounted"),
        ("devtmpfs", f"/sdx /{'x' * MOST_LINE}", "in_use_mounted"),
        ("devtmpfs", f"/null /{'x' * MOST_LINE}", ""),
    ],
)
def test_a_filesystem_with_device_nodes_may_have_one_at_a_path_without_end(
    tmp_path: Path, fstype: str, root: str, code: str
) -> None:
    text = f"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:99 / /dev rw - {fstype} udev rw\n"
    long = f"3 1 0:99 {root} rw - {fstype} udev rw\n"
    host = tree(tmp_path, {"proc/1/mountinfo": text + long}, {"proc/1/ns/mnt": "mnt:[1]"})
    uses = usage.UsesByDevice(host).of({"sdx": "8:64"})
    assert [use.code for use in uses] == [code] * bool(code)


@pytest.mark.parametrize(
    ("bound", "code"),
    [
        # As CRI-O and ip-netns(8) bind it.
        ("netns", ""),
        ("a_file", ""),
        # Not there by now, so it may have been one.
        ("gone", "in_use_mounted"),
        # At this path there is now what is of another filesystem.
        ("covered", "in_use_mounted"),
    ],
)
def test_a_folder_on_the_nodes_own_tmpfs_is_no_disk(tmp_path: Path, bound: str, code: str) -> None:
    """CRI-O gives a container a writable folder of the node's /run. There, and in a user namespace
    of its own, it makes a folder that is called like any disk, and binds it on itself.
    """
    (tmp_path / "run/netns").mkdir(parents=True)
    (tmp_path / "run/a_file").write_text("")
    (tmp_path / "run/covered").symlink_to("/proc")
    there = os.stat(tmp_path / "run").st_dev
    device = "0:99" if bound == "covered" else f"{os.major(there)}:{os.minor(there)}"
    text = f"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 {device} / /run rw - tmpfs tmpfs rw\n"
    node = f"{text}3 2 {device} /{bound} /run/{bound} rw - tmpfs tmpfs rw\n"
    pod = f"{text}4 1 {device} /containers/x/sdx /run/secrets/sdx rw - tmpfs tmpfs rw\n"
    files = {"proc/1/mountinfo": node, "proc/7/mountinfo": pod}
    host = tree(tmp_path, files, {"proc/1/ns/mnt": "mnt:[1]", "proc/7/ns/mnt": "mnt:[7]"})
    uses = usage.UsesByDevice(host).of({"sdx": "8:64"})
    assert [use.code for use in uses] == [code] * bool(code)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [(stat.S_IFBLK, True), (stat.S_IFCHR, False), (stat.S_IFDIR, False), (stat.S_IFREG, False)],
)
def test_what_may_be_a_node_of_a_disk(mode: int, wanted: bool) -> None:
    found = os.stat_result((mode | 0o600, 1, os.makedev(0, 99), 1, 0, 0, 0, 0, 0, 0))
    assert usage.may_be_node(found, "0:99") is wanted
    assert usage.may_be_node(found, "0:98") is True


def test_a_subpath_of_any_length_does_not_hide_the_mounts_of_the_node(tmp_path: Path) -> None:
    """A container may rename a folder of its volume to any depth, above the subPath that it has.
    That is a mount of the node, and no reason to read none of the others.
    """
    first = "1 0 254:0 / / rw - ext4 /dev/vda rw\n"
    deep = "/d" * MOST_LINE

    def read(*lines: str) -> mounts.MountTable:
        text = "".join(f"{line}\n" for line in lines)
        text = f"{first}{text}9 1 8:48 / /b rw - ext4 /dev/sdd rw\n"
        return mounts.read_table(tree(tmp_path, {"proc/1/mountinfo": text}, {}), "1")

    point = "/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volume-subpaths/data/app/0"
    behind = f"{point} rw,relatime shared:5 - ext4 /dev/sdc rw,stripe=4"
    # Also where what is kept whole ends anywhere behind it.
    for number in (len(deep), *(MOST_LINE - less for less in (8, 9, 10, 60, 120))):
        found = {mount.id: mount for mount in read(f"2 1 8:32 {deep[:number]} {behind}").mounts}
        assert list(found) == [1, 2, 9]
        long = found[2]
        assert (long.point, long.device, long.shared) == (point, "8:32", 5)
        assert (long.fstype, long.source, long.super_options) == (
            "ext4",
            "/dev/sdc",
            ("rw", "stripe=4"),
        )
        assert mounts.is_shortened(long.root)
    # A mount point of that length could be any, and so could one that is cut behind the root.
    for line in (
        f"2 1 8:32 / {deep} rw - ext4 /dev/sdc rw",
        f"2 1 8:32 {deep} {deep} rw - ext4 /dev/sdc rw",
        f"2 1 8:32 {deep} /{'p' * MOST_WORD} rw - ext4 /dev/sdc rw",
        f"2 1 8:32 / /a rw - ext4 /dev/sdc {deep}",
    ):
        with pytest.raises(StorageOpsError, match="has a longer line than are read"):
            read(line)


def test_no_length_of_a_mountinfo_outlasts_the_deadline(tmp_path: Path) -> None:
    """Nor does it fill the memory: only one line is kept."""
    tree(tmp_path, {"proc/1/mountinfo": ""}, {"proc/1/ns/mnt": "mnt:[1]"})
    with (tmp_path / "proc/1/mountinfo").open("wb") as file:
        file.write(b"1 0 254:0 / /")
        file.truncate(2**40)
    ticks = itertools.count()
    host = Host(Deadline(1000, lambda: float(next(ticks))), 10, str(tmp_path))
    with pytest.raises(StorageOpsError, match="the deadline passed while"):
        all_mounts(host)
    host = Host(Deadline(1000, lambda: float(next(ticks))), 10, str(tmp_path))
    with pytest.raises(StorageOpsError, match="the deadline passed while"):
        mounts.read_table(host, "1")


def test_no_readable_namespace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageOpsError, match="root"):
        all_mounts(Host(Deadline(60), 10, str(tmp_path)))


def test_a_process_in_a_chroot_does_not_hide_the_mounts_of_its_namespace(tmp_path: Path) -> None:
    host = tree(
        tmp_path,
        {
            "proc/1/mountinfo": "1 0 254:0 / / rw - ext4 /dev/vda rw\n",
            "proc/2/mountinfo": "9 8 253:3 / /data rw - xfs /dev/mapper/mpathb rw\n",
        },
        {
            "proc/1/ns/mnt": "mnt:[1]",
            "proc/1/root": "/srv/jail",
            "proc/2/ns/mnt": "mnt:[1]",
            "proc/2/root": "/",
        },
    )
    assert [mount.point for mount in all_mounts(host)] == ["/", "/data"]


def test_mounts_and_swap_of_a_device(tmp_path: Path) -> None:
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
            "proc/swaps": "Filename Type Size Used Priority\n/dev/dm-4 partition 1 0 -2\n/swapfile "
            "file 1 0 -3\n",
            "sys/block/loop0/size": "0\n",
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
        "/dev/dm-4 is swap",
    ]
    assert uses.of({"dm-300": "253:300"}) == []


def test_a_loop_device_that_does_not_say_what_is_behind_it(tmp_path: Path) -> None:
    """The path of its backing file is no answer: it may be one of another mount namespace, or lead
    elsewhere by now.
    """
    files = {
        "sys/block/loop0/loop/backing_file": "/var/image\n",
        "dev/loop0": "a file, which knows no LOOP_GET_STATUS64",
    }
    host = tree(
        tmp_path,
        {"proc/1/mountinfo": "1 0 254:1 / / rw - ext4 /dev/vda1 rw\n", **files},
        {"proc/1/ns/mnt": "mnt:[1]"},
    )
    (unknown,) = usage.UsesByDevice(host).of({"dm-3": "253:3"})
    assert unknown.startswith("whether loop0 is on it is unknown: Inappropriate ioctl")
