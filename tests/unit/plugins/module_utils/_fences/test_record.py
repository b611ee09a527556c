# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a record keeps, and which texts are none."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.record import (
    MOST,
    Record,
    parse_records,
    word,
)

AT = datetime(2026, 1, 1, 3, tzinfo=timezone.utc)
RECORD = Record(
    "a", "uid-a", "machine-a", "boot-1", "f1", "192.168.7.5", ("client.7",), 2, 2, 35.0, AT
)


def item(**data: str) -> dict[str, Any]:
    return {"metadata": {"name": "storage-ops-ceph-clients"}, "data": data}


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(RECORD.text), **fields})


def test_a_record_is_read_as_it_was_written() -> None:
    found = parse_records(item(**{RECORD.key: RECORD.text}))
    assert found.of("uid-a", "f1") == RECORD and found.unreadable == {}
    assert found.of("uid-a", "f2") is None and found.of("uid-b", "f1") is None
    said = json.loads(RECORD.text)
    assert (said["at"], said["source"]) == (
        "2026-01-01T03:00:00Z",
        "watchers of images that only this node has",
    )


@pytest.mark.parametrize("missing", [None, {}, {"metadata": {}, "data": None}])
def test_nothing_is_recorded(missing: Any) -> None:
    assert parse_records(missing).found == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        "[" * 100_000,
        changed() + " " * 2_000,
        changed(version=2),
        changed(version=None),
        changed(node="a b"),
        changed(node=7),
        changed(address="127.0.0.1"),
        changed(address="0.0.0.0"),
        changed(address="10.0.0.0/8"),
        changed(address="somewhere"),
        changed(address=7),
        changed(at="2026-01-01T03:00:00"),
        changed(at="yesterday"),
        changed(clients="client.7"),
        changed(clients=["client.7\x1b[2J"]),
        changed(clients=[7]),
        changed(images="2"),
        changed(images=True),
        changed(looks=-1),
        changed(seconds=float("nan")),
        json.dumps({name: said for name, said in json.loads(RECORD.text).items() if name != "at"}),
    ],
    ids=range(25),
)
def test_a_text_that_is_no_record_hides_no_other(text: str) -> None:
    found = parse_records(item(**{RECORD.key: RECORD.text, "uid-b.f1": text}))
    assert list(found.found) == [RECORD.key] and list(found.unreadable) == ["uid-b.f1"]
    assert len(found.unreadable["uid-b.f1"]) < 300 and found.unreadable["uid-b.f1"].isprintable()


@pytest.mark.parametrize("key", ["ledger", "a.b.c", "uid-a.", ".f1", "uid a.f1"])
def test_a_key_that_is_none_of_a_node_and_a_ceph(key: str) -> None:
    assert parse_records(item(**{key: RECORD.text})).found == {}


def test_what_a_kubelet_says_of_itself_is_kept_short() -> None:
    """An object has room for thousands of nodes, and equal words stay equal."""
    for long in ("x" * 100_000, "\x1b[2J", "\udcff"):
        assert len(word(long)) < 100 and word(long).isprintable()
        assert word(long) == word(long) != word(f"{long}y")
    assert word("boot-1") == "boot-1"
    many = RECORD._replace(clients=tuple(f"client.{number}" for number in range(5)), node="n" * 253)
    assert len(many.text) < 1_000 and MOST / 300 >= 3_000


def test_the_boot_and_the_machine_by_which_it_is_of_the_present() -> None:
    assert RECORD.is_of_boot("boot-1", "machine-a")
    assert not RECORD.is_of_boot("boot-2", "machine-a")
    assert not RECORD.is_of_boot("boot-1", "machine-b")
    assert not RECORD._replace(boot_id="").is_of_boot("", "machine-a")
    long = "x" * 200
    assert RECORD._replace(boot_id=word(long)).is_of_boot(long, "machine-a")


def test_when_and_how_often_it_was_seen_is_no_other_content() -> None:
    later = RECORD._replace(at=AT + timedelta(hours=1), images=1, looks=3, seconds=40.0)
    assert RECORD.says_the_same(later)
    for other in (
        {"address": "192.168.7.6"},
        {"clients": ("client.8",)},
        {"boot_id": "boot-2"},
        {"machine": "machine-b"},
        {"node": "b"},
    ):
        assert not RECORD.says_the_same(RECORD._replace(**other))
