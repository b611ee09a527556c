# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists of Kubernetes objects, and changes of a watch, read one by one while their bytes arrive.

A list of 50,000 pods is 180 MB of text and 3 GB as Python objects. Here only one chunk of text and
one item exist at a time; what the caller picks from an item is all that stays.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Callable, TypeVar

from .._core import untrusted

T = TypeVar("T")

# Characters to wait for at least. An API server sends a list in pieces of the size of an object or
# less, and a try to parse what is incomplete costs as much as parsing it.
_BATCH = 1 << 16
# The types of events of a watch (k8s.io/apimachinery/pkg/watch/watch.go).
_KINDS = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"}

_skip_space = re.compile(r"[ \t\n\r]*").match


class BrokenList(ValueError):
    """The text is not one whole list: it ended early, goes on after its end, or is not JSON."""


def read_list(
    chunks: Iterable[bytes], pick: Callable[[Any], T | None]
) -> tuple[list[T], dict[str, Any]]:
    """What ``pick`` returns for every item, leaving out None, and the other fields of the list
    (``kind``, ``metadata``).

    Raises BrokenList; what was picked by then is dropped, so that a part is never taken for the
    whole.
    """
    # An empty list has "items": []; without that field it is another object, or a part of a list.
    text = _Text(chunks)
    picked: list[T] = []
    fields: dict[str, Any] = {}
    has_items = False
    text.expect("{")
    if text.accept("}"):
        raise BrokenList("it has no items")
    while True:
        key = text.value()
        if not isinstance(key, str):
            raise BrokenList(f"{key!r} where a field's name should be")
        text.expect(":")
        if key == "items":
            has_items = True
            text.expect("[")
            for item in text.items():
                kept = pick(item)
                if kept is not None:
                    picked.append(kept)
        else:
            fields[key] = text.value()
        if not text.accept(","):
            break
    text.expect("}")
    text.end()
    if not has_items:
        raise BrokenList("it has no items")
    return picked, fields


def read_changes(chunks: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Type and object of each change of a watch, as soon as its line is there.

    Every object has a version, except in an ERROR, which has a Status. Raises BrokenList.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _change(line)
    # A connection that is cut may end within a line, and what is left of it is no change.
    if rest:
        raise BrokenList("it ended in the middle of a change")


def _change(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        change = untrusted.read_object(line)
        kind, item = change["type"], change["object"]
        if kind != "ERROR":
            # A watch that begins again needs the version of the last change.
            int(item["metadata"]["resourceVersion"])
    except (ValueError, TypeError, KeyError) as error:
        raise BrokenList(f"it is not a change: {error!r}") from None
    if kind not in _KINDS or not isinstance(item, dict):
        raise BrokenList(f"{kind!r} is not a type of change")
    return kind, item


class _Text:
    """The text that has arrived and is not used up."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        # Chunks end anywhere, also within a character of several bytes.
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False

    def items(self) -> Iterator[Any]:
        """The items of an array whose bracket was just read, up to and with its closing one."""
        if self.accept("]"):
            return
        while True:
            yield self.value()
            if not self.accept(","):
                self.expect("]")
                return

    def value(self) -> Any:
        """The next value, whole."""
        self._peek()
        while True:
            try:
                value, end = untrusted.read_value(self._text, self._at)
            except json.JSONDecodeError as error:
                # More text may complete it. Each try waits for twice as much, so that the cost of a
                # huge item stays linear.
                if not self._more(len(self._text) - self._at):
                    raise BrokenList(f"it ended early or is not JSON: {error}") from None
                continue
            # A number may continue in the next chunk, and in a list something always follows it.
            if end < len(self._text) and (
                isinstance(value, (dict, list, str)) or self._text[end] in " \t\n\r,]}"
            ):
                self._at = end
                return value
            if not self._more(1):
                raise BrokenList("it ended early")

    def accept(self, char: str) -> bool:
        """Whether ``char`` comes next; if so it is used up."""
        found = self._peek() == char
        self._at += found
        return found

    def expect(self, char: str) -> None:
        """Use up ``char``, which must come next."""
        if not self.accept(char):
            raise BrokenList(
                f"{self._peek()!r} where {char!r} should be" if self._peek() else "it ended early"
            )

    def end(self) -> None:
        """Nothing but white space may follow."""
        if self._peek():
            raise BrokenList(
                f"it goes on after its end with {self._text[self._at : self._at + 20]!r}"
            )

    def _peek(self) -> str:
        """The next character that is no white space, or nothing at the end."""
        while True:
            if self._at < len(self._text):
                char = self._text[self._at]
                if char not in " \t\n\r":
                    return char
                self._at = _skip_space(self._text, self._at).end()  # type: ignore[union-attr]
            elif not self._more(1):
                return ""

    def _more(self, characters: int) -> bool:
        """Wait for that many more characters, or the end; whether any came."""
        parts = [self._text[self._at :]]
        missing = max(_BATCH, characters)
        while missing > 0 and not self._ended:
            chunk = next(self._chunks, None)
            self._ended = chunk is None
            try:
                part = self._utf8.decode(chunk or b"", final=self._ended)
            except UnicodeDecodeError as error:
                raise BrokenList(f"it is not UTF-8: {error}") from None
            parts.append(part)
            missing -= len(part)
        self._text, self._at = "".join(parts), 0
        return len(parts) > 1 and any(parts[1:])
