# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""multipathd's and device-mapper's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import multipath
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.block import DmDevice
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

WWID = "36001405919eb0a2fd484e85817272b66"
LOST = "360014057d411fc6acd84cc7b8ec1ff2f"
# As the kernel has them: a map with two paths, a residual one, one that another program has made,
# and a volume on the first.
DM = {
    "dm-0": DmDevice("dm-0", "253:0", "mpatha", f"mpath-{WWID}", False, ("sdb", "sdc"), ("dm-3",)),
    "dm-1": DmDevice("dm-1", "253:1", "my disk", f"mpath-{LOST}", False, ("sde", "sdf"), ()),
    "dm-2": DmDevice("dm-2", "253:2", "other", "mpath-3600x", False, ("sdg",), ()),
    "dm-3": DmDevice("dm-3", "253:3", "vg-lv", "LVM-x", False, ("dm-0",), ()),
}
MAPS = "dm-0\ndm-1\n"
PATHS = """sda undef undef
sdb active ready
sdc active i/o pending
sde failed faulty
sdf failed faulty
"""


class Commands:
    """A host that answers commands from a table."""

    def __init__(self, **answers: tuple[int | None, str]) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def run(self, argv: list[str]) -> CommandResult:
        self.asked.append(argv)
        rc, out = self.answers["_".join(argv[:3])]
        return CommandResult(
            tuple(argv),
            rc,
            out,
            "",
            0.1,
            "" if rc is not None else "no answer within 30.0 s, abandoned as pid 1",
        )


def daemon(
    maps: str = MAPS, paths: str = PATHS, dm: dict[str, DmDevice] | None = None
) -> multipath.Daemon:
    host = Commands(multipathd_show_maps=(0, maps), multipathd_show_paths=(0, paths))
    return multipath.ask_daemon(host, DM if dm is None else dm)


def test_the_states_of_paths() -> None:
    said = daemon()
    assert said.paths == {
        WWID: {"sdb": "active ready", "sdc": "active i/o pending"},
        LOST: {"sde": "failed faulty", "sdf": "failed faulty"},
    }
    assert (said.problem, said.known) == ("", {"dm-0", "dm-1"})


@pytest.mark.parametrize("none", ["", "\n", "ok\n"])
def test_a_daemon_without_maps(none: str) -> None:
    assert daemon(none, none) == multipath.Daemon()
    assert daemon(MAPS, none).paths == {WWID: {}, LOST: {}}


def test_maps_that_only_one_side_has() -> None:
    """One is not in the kernel yet, one is not there any more, and NVMe has maps of its own."""
    said = daemon("undef\nnvme0n1\ndm-1\ndm-9\ndm-3\n", f"{PATHS}nvme0c0n1 n/a optimized\n")
    assert said.paths == {LOST: {"sde": "failed faulty", "sdf": "failed faulty"}}
    assert said.known == {"dm-1", "dm-3", "dm-9"}


def test_no_text_of_a_target_is_asked_for() -> None:
    """A WWID may have a line break, as of a SCSI name string ``iqn.x",\n"uuid" : "3600...``, and
    multipathd writes it as it is. By that, a tenant's map looked like another.
    """
    host = Commands(multipathd_show_maps=(0, MAPS), multipathd_show_paths=(0, PATHS))
    multipath.ask_daemon(host, DM)
    multipath.known_paths(host)
    # Names that the kernel gives, and states (multipath-tools, libmultipath/print.c).
    wildcards = [word for argv in host.asked for word in argv[5].split()]
    assert all(argv[3:5] == ["raw", "format"] for argv in host.asked)
    assert set(wildcards) == {"%d", "%t", "%T"}


@pytest.mark.parametrize("text", ["timeout\n", "fail\n", "error -1 receiving packet", "dm-0\nfail"])
def test_answers_that_are_none(text: str) -> None:
    said = daemon(text)
    assert "instead of its maps and paths" in said.problem
    assert (said.paths, said.known) == ({}, frozenset())
    assert "instead of its maps and paths" in daemon(MAPS, text).problem
    assert multipath.known_paths(Commands(multipathd_show_paths=(0, text))) is None


@pytest.mark.parametrize(("rc", "out"), [(None, ""), (1, "error"), (0, "timeout\n")])
def test_the_disks_that_it_knows(rc: int | None, out: str) -> None:
    known = multipath.known_paths(Commands(multipathd_show_paths=(0, PATHS)))
    assert known == {"sda", "sdb", "sdc", "sde", "sdf"}
    assert multipath.known_paths(Commands(multipathd_show_paths=(rc, out))) is None


@given(st.text(max_size=200), st.text(max_size=200))
def test_answers_never_break(maps: str, paths: str) -> None:
    said = daemon(maps, paths)
    assert set(said.paths) <= {WWID, LOST, "3600x"}


def test_daemon_that_is_down_or_hangs() -> None:
    down = multipath.ask_daemon(
        Commands(multipathd_show_maps=(1, "ux_socket_connect: Connection refused")), DM
    )
    assert "Connection refused" in down.problem
    hung = multipath.ask_daemon(Commands(multipathd_show_maps=(None, "")), DM)
    assert "no answer within" in hung.problem
    half = Commands(multipathd_show_maps=(0, MAPS), multipathd_show_paths=(None, ""))
    assert "no answer within" in multipath.ask_daemon(half, DM).problem


@pytest.mark.parametrize(
    ("became", "not_asked"),
    [
        ({"problem": "not installed", "missing": True}, True),
        # As of a program that a policy of SELinux does not let us run.
        ({"problem": "cannot be started: Permission denied"}, True),
        # These were asked, and a daemon that does not answer them makes no path fail over.
        ({"problem": "no answer within 5.0 s, abandoned as pid 1", "timed_out": True}, False),
        ({"rc": 1, "stderr": "error -104 receiving packet"}, False),
        ({"rc": 0, "stdout": "timeout"}, False),
    ],
)
def test_a_daemon_that_was_not_asked_is_none_that_does_not_answer(
    became: dict[str, Any], not_asked: bool
) -> None:
    class Node(Host):
        def run(self, argv: Sequence[str], timeout: float | None = None) -> CommandResult:
            return replace(CommandResult(tuple(argv), None, "", "", 0.1), **became)

    said = multipath.ask_daemon(Node(Deadline(60), 5, "/"), DM)
    assert said.problem and said.not_asked == not_asked
    assert ("cannot be asked" in said.problem) == not_asked


def test_kernel_tables_and_open_counts() -> None:
    table = (
        "mpatha: 0 131072 multipath 1 queue_if_no_path 1 alua 1 1 "
        "service-time 0 2 2 8:16 1 1 8:32 1 1 \n"
    )
    odd = (
        "a\\x20b\\x0a: 0 1 multipath 0 1 alua 0 0\nd\\xc3\\xa4ta: 0 1 multipath 1 "
        "queue_if_no_path 0 0 0\n"
    )
    assert multipath.queueing(Commands(**{"dmsetup_table_--manglename": (0, table + odd)})) == {
        "mpatha": True,
        "a b\n": False,
        "d\u00e4ta": True,
    }
    counts = Commands(**{"dmsetup_info_-c": (0, "253:0:1\n253:12:0\n")})
    assert multipath.open_counts(counts) == {"253:0": 1, "253:12": 0}
    assert multipath.open_counts(Commands(**{"dmsetup_info_-c": (0, "No devices found\n")})) == {}
    with pytest.raises(StorageOpsError, match="open counts"):
        multipath.open_counts(Commands(**{"dmsetup_info_-c": (None, "")}))


def test_a_name_with_separators_of_unicode_makes_no_line_of_its_own() -> None:
    """libdevmapper mangles these; whoever makes a map without it need not."""
    table = (
        "1EVIL\u2028mpatha: 0 1 multipath 1 queue_if_no_path 0 0 0\n"
        "mpatha: 0 1 multipath 0 1 alua 0 0\n"
        "mpathb: 0 1 multipath 0\u2003queue_if_no_path\u2003x\n"
    )
    found = multipath.queueing(Commands(**{"dmsetup_table_--manglename": (0, table)}))
    assert found == {"1EVIL\u2028mpatha": True, "mpatha": False, "mpathb": False}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"mpathb {LOST}", {"mpathb": LOST}),
        (f" mpathb\t {LOST} ", {"mpathb": LOST}),
        # The first binding of an alias is the one that multipath uses.
        (f"mpatha {LOST}", {}),
        # A name that a LUN gave itself (T10), which udev leaves as it is.
        (f"mpathb 1EVIL\u2028mpatha\u2003{LOST}", {}),
        (f"mpathb 1EVIL\x85mpathc {LOST}", {}),
        (f"mpathb\u2003{LOST}", {}),
        (f"mpathb {LOST}\u2003", {}),
        # To multipath, a comment begins here.
        (f"mpathb {LOST}#1", {}),
        (f"# mpathb {LOST}", {}),
        ("mpathb", {}),
        ("", {}),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_no_name_of_a_lun_makes_an_alias_mean_another_volume(
    tmp_path: Path, line: str, found: dict[str, str], first: bool
) -> None:
    given = ["# alias wwid", f"mpatha {WWID}", line]
    if first and not line.startswith("mpatha"):
        given.reverse()
    (tmp_path / "etc/multipath").mkdir(parents=True)
    (tmp_path / "etc/multipath/bindings").write_text("\n".join([*given, ""]))
    host = Host(Deadline(60), 10, str(tmp_path))
    assert multipath.aliases(host) == {"mpatha": WWID, **found}


def test_checker_interval() -> None:
    config = "defaults {\n\tpolling_interval 2\n\tmax_polling_interval 8\n}\n"
    assert multipath.checker_interval(Commands(multipathd_show_config=(0, config))) == 8
    assert (
        multipath.checker_interval(
            Commands(multipathd_show_config=(0, 'defaults {\n max_polling_interval "20"\n}'))
        )
        == 20
    )
    assert (
        multipath.checker_interval(Commands(multipathd_show_config=(None, "")))
        == multipath.DEFAULT_CHECKER_INTERVAL
    )
