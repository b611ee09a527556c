# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import untrusted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import stream
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.stream import (
    BrokenList,
    read_changes,
    read_list,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.dictionaries(st.text().filter(lambda key: key != "items"), VALUES, max_size=3)


def pieces(text: bytes, sizes: list[int]) -> list[bytes]:
    """The text in chunks of these sizes, over and over; 0 is an empty chunk."""
    chunks, at, turn = [], 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)] if sizes else len(text)
        chunks.append(text[at : at + size])
        at, turn = at + size, turn + 1
    return chunks


@st.composite
def documents(draw: Any) -> tuple[bytes, list[Any], dict[str, Any]]:
    """A list as some server may write it, with what is in it."""
    items, fields = draw(st.lists(VALUES, max_size=6)), draw(FIELDS)
    order = draw(st.permutations([*fields, "items"]))
    whole = {**fields, "items": items}
    text = json.dumps(
        {key: whole[key] for key in order},
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 2])),
    )
    return (
        text.encode("utf-8", "surrogatepass") + draw(st.sampled_from([b"", b"\n"])),
        items,
        fields,
    )


@given(
    documents(),
    st.lists(st.integers(0, 7), max_size=4).filter(lambda sizes: not sizes or any(sizes)),
)
def test_any_list_cut_anywhere_into_chunks_is_read(document: Any, sizes: list[int]) -> None:
    text, items, fields = document
    picked, others = read_list(pieces(text, sizes), lambda item: [item])
    assert [item for (item,) in picked] == items
    assert others == fields


@given(documents(), st.data())
def test_a_list_that_ends_early_is_an_error(document: Any, data: Any) -> None:
    text = document[0].rstrip()
    end = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(BrokenList):
        read_list([text[:end]], lambda item: [item])


@given(documents(), st.sampled_from([b"}", b"{}", b",", b"x", b"0", b"\xff"]))
def test_a_list_that_goes_on_after_its_end_is_an_error(document: Any, more: bytes) -> None:
    with pytest.raises(BrokenList):
        read_list([document[0] + more], lambda item: [item])


def test_no_items() -> None:
    text = b'{"items":[],"kind":"PodList"}'
    assert read_list([text], lambda item: item) == ([], {"kind": "PodList"})


@pytest.mark.parametrize("text", ["{}", '{"kind":"PodList"}', '{"kind":"PodList","items":null}'])
def test_a_list_that_does_not_say_that_it_is_empty_is_an_error(text: str) -> None:
    """What a cluster has none of is written as an empty array, by Kubernetes 1.20.2 and 1.36.3."""
    with pytest.raises(BrokenList, match="items|where"):
        read_list([text.encode()], lambda item: item)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "<html>",
        '{"items":{}}',
        '{"items":3}',
        '{"items":[1 2]}',
        '{"items":[1,]}',
        '{"items":[1]',
        '{"items":[1}]',
        "{1:2}",
        '{"a" 1}',
    ],
)
def test_what_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(BrokenList):
        read_list([text.encode()], lambda item: item)


def test_what_pick_does_not_want_is_left_out() -> None:
    assert read_list([b'{"items":[1,2,3,4]}'], lambda item: item if item % 2 else None) == (
        [1, 3],
        {},
    )


def test_only_what_was_picked_stays_in_memory() -> None:
    alive = [0, 0]

    def chunks() -> Any:
        yield b'{"items":['
        for number in range(2000):
            yield b"%s%s" % (b"," if number else b"", json.dumps({"name": "x" * 1000}).encode())
            alive[0] += 1
        yield b"]}"

    def pick(item: Any) -> int:
        # It is handed over before much more has been read: no more than one batch.
        alive[1] += 1
        assert alive[0] - alive[1] < 5 + stream._BATCH // 1000
        return 1

    assert len(read_list(chunks(), pick)[0]) == 2000


def test_a_huge_item_is_not_tried_anew_with_every_chunk(monkeypatch: Any) -> None:
    tried = []
    read = untrusted.read_value
    monkeypatch.setattr(
        untrusted, "read_value", lambda text, at: tried.append(at) or read(text, at)
    )
    text = json.dumps({"items": ["x" * 1_000_000]}).encode()
    picked, _fields = read_list(pieces(text, [512]), len)
    assert picked == [1_000_000]
    assert len(tried) < 20


def deep_item(depth: int) -> bytes:
    """An object whose owner has nested its managedFields so deep."""
    fields = b'{"f:[\\"a]":[' * depth + b"]}" * depth
    return (
        b'{"metadata":{"name":"evil","resourceVersion":"7","managedFields":[{"fieldsV1":'
        + fields
        + b'}]},"spec":{"nodeName":"w1"}}'
    )


@pytest.mark.parametrize("depth", [10, 470, 5_000])
@pytest.mark.parametrize("size", [7, 512, 1 << 20])
def test_an_item_that_is_nested_deep_is_read_as_all_others(depth: int, size: int) -> None:
    text = b'{"items":[{"metadata":{"name":"a"}},%s,{"metadata":{"name":"b"}}],"kind":"PodList"}'
    picked, fields = read_list(
        pieces(text % deep_item(depth), [size]),
        lambda item: (item["metadata"]["name"], item.get("spec")),
    )
    assert picked == [("a", None), ("evil", {"nodeName": "w1"}), ("b", None)]
    assert fields == {"kind": "PodList"}
    change = b'{"type":"ADDED","object":%s}\n' % deep_item(depth)
    ((kind, item),) = read_changes(pieces(change, [size]))
    assert (kind, item["spec"]) == ("ADDED", {"nodeName": "w1"})


@pytest.mark.parametrize("end", [b"", b'"', b'"x', b'{"a":', b"]", b"}"])
def test_what_is_nested_deep_and_ends_early_is_an_error(end: bytes) -> None:
    for depth in (100, 5_000):
        with pytest.raises(BrokenList, match=r"ended early|where|end"):
            read_list([b'{"items":[' + b'{"a":[' * depth + end], lambda item: item)
