# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""multipathd's and device-mapper's answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import multipath

CAPTURES = Path(__file__).parent / "fixtures" / "multipathd"


def capture(name: str) -> str:
    return (CAPTURES / f"{name}.json").read_text()


class Commands:
    """A host that answers commands from a table."""

    def __init__(self, **answers: tuple[int | None, str]) -> None:
        self.answers = answers

    def run(self, argv: list[str]) -> CommandResult:
        rc, out = self.answers["_".join(argv[:3])]
        return CommandResult(
            tuple(argv),
            rc,
            out,
            "",
            0.1,
            "" if rc is not None else "no answer within 30.0 s, abandoned as pid 1",
        )


def test_captured_maps() -> None:
    maps = multipath.parse_maps(capture("residual-queueing-before-io"))
    assert maps["360014057d411fc6acd84cc7b8ec1ff2f"] == {
        "sde": "failed faulty",
        "sdf": "failed faulty",
    }
    assert maps["36001405919eb0a2fd484e85817272b66"] == {
        "sdb": "active ready",
        "sdc": "active ready",
    }
    assert multipath.parse_maps(capture("no-maps")) == {}
    half = multipath.parse_maps(capture("one-path-failed-portal-down"))
    assert all(
        sorted(paths.values()) == ["active ready", "failed faulty"] for paths in half.values()
    )


def test_unknown_fields_are_ignored_and_an_unknown_major_version_is_not() -> None:
    answer = json.loads(capture("residual-queueing-before-io"))
    answer["minor_version"], answer["novelty"], answer["maps"][0]["novelty"] = 99, 1, [2]
    assert multipath.parse_maps(json.dumps(answer)) == multipath.parse_maps(
        capture("residual-queueing-before-io")
    )
    answer["major_version"] = 1
    with pytest.raises(StorageOpsError, match="version 1"):
        multipath.parse_maps(json.dumps(answer))


@pytest.mark.parametrize(
    "text",
    [
        "timeout\n",
        "fail\n",
        "error -1 receiving packet",
        "",
        "[]",
        "{}",
        '{"major_version": 0}',
        '{"major_version": 0, "maps": [1]}',
    ],
)
def test_answers_that_are_none(text: str) -> None:
    with pytest.raises(StorageOpsError, match="multipathd"):
        multipath.parse_maps(text)


@pytest.mark.parametrize(
    "alias",
    [r"my\x20disk", r"d\xc3\xa4ta", "my disk", "a\tb", r"a\\x20b", r"a\"b", 'my"disk', "\u00e4"],
)
def test_aliases_that_multipathd_does_not_escape(alias: str) -> None:
    """Those that libdevmapper has mangled are no JSON, nor is a quotation mark within a text."""
    known = json.loads(capture("residual-queueing-before-io"))["maps"][0]["name"]
    text = capture("residual-queueing-before-io").replace(f'"{known}"', f'"{alias}"')
    assert multipath.parse_maps(text) == multipath.parse_maps(
        capture("residual-queueing-before-io")
    )


def test_a_map_that_multipathd_has_twice() -> None:
    known = capture("residual-queueing-before-io")
    answer = json.loads(known)
    empty = [{**entry, "name": "other", "path_groups": []} for entry in answer["maps"]]
    for maps in ([*answer["maps"], *empty], [*empty, *answer["maps"]]):
        assert multipath.parse_maps(json.dumps({**answer, "maps": maps})) == multipath.parse_maps(
            known
        )


@pytest.mark.parametrize(
    "text",
    [
        'l"un',
        "lun\\",
        r"\uzzzz",
        '", "uuid" : "36001405919eb0a2fd484e85817272b66", "x": "',
        '"}]}]}],"maps":[{"uuid":"x","y":"',
    ],
)
@pytest.mark.parametrize(
    "known", ['"prod" : "lun2"', '"target_wwnn" : "iqn.2026-01.test.lab:array1"']
)
def test_no_text_of_a_target_hides_or_changes_other_maps(known: str, text: str) -> None:
    """A tenant's server had all maps of the node refused by one quotation mark."""
    whole = capture("residual-queueing-before-io")
    key = known.partition(" : ")[0]
    planted = whole.replace(known, f'{key} : "{text}"')
    assert planted != whole
    assert multipath.parse_maps(planted) == multipath.parse_maps(whole)


def test_json_that_is_none() -> None:
    with pytest.raises(StorageOpsError, match="JSON is broken near"):
        multipath.parse_maps('{"maps": [')


@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)
    ).map(json.dumps)
)
def test_maps_never_break(text: str) -> None:
    try:
        multipath.parse_maps(text)
    except StorageOpsError:
        return


def test_daemon_that_is_down_or_hangs() -> None:
    down = multipath.ask_daemon(
        Commands(multipathd_show_maps=(1, "ux_socket_connect: Connection refused"))
    )
    assert "Connection refused" in down.problem
    hung = multipath.ask_daemon(Commands(multipathd_show_maps=(None, "")))
    assert "no answer within" in hung.problem
    busy = multipath.ask_daemon(Commands(multipathd_show_maps=(0, "timeout\n")))
    assert "'timeout' instead of JSON" in busy.problem


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
