# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes what all modules say alike in RETURN into them, from returns.yml: returns.py [--check].

One module says all that findings and actions contain. The others refer to it, and have the keys of
which they say more. With --check nothing is written, and a module that differs is an error.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).with_name("returns.yml")
# The module that says it all.
WHOLE = "node_storage_info"
REFERENCE = "RV(storage_ops.runbooks.{module}#module:{key}) lists all keys."
# As ruff has it for Python.
WIDTH = 100
SECTION = re.compile(r'(?<=^RETURN = r""")\n.*?(?=^""")', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A key of a YAML mapping, with its lines."""

    key: str
    lines: list[str]


def main() -> int:
    """0, or 1 where a module differs."""
    check = "--check" in sys.argv[1:]
    whole = read_template()
    template = {key: referring(key, value) for key, value in whole.items()}
    differ = []
    for file in sorted((ROOT / "plugins/modules").glob("*.py")):
        text = file.read_text(encoding="utf-8")
        wanted = with_shared(text, whole if file.stem == WHOLE else template)
        if wanted == text:
            continue
        differ.append(file)
        if not check:
            file.write_text(wanted, encoding="utf-8")
    for file in differ:
        shown = file.relative_to(ROOT)
        print(f"{shown}: RETURN differs, run make format" if check else f"{shown} written")
    return 1 if check and differ else 0


def read_template() -> dict[str, Any]:
    """Key -> its description, returned, type, elements and contains."""
    loaded: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
    return loaded


def referring(key: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """A value of the template for a module that does not say all that it contains."""
    if "contains" not in value:
        return value
    reference = REFERENCE.format(module=WHOLE, key=key)
    return {**value, "description": f"{value['description']} {reference}"}


def with_shared(module: str, template: Mapping[str, Any]) -> str:
    """The source of a module, with the shared parts of its RETURN as the template has them."""
    found = SECTION.search(module)
    if not found:
        return module
    lines = found[0].strip("\n").splitlines()
    written = "\n".join(_mapping(lines, 0, template))
    # A function, as a text could have what looks like a reference to a group.
    return SECTION.sub(lambda _found: f"\n{written}\n", module, count=1)


def _mapping(lines: list[str], indent: int, template: Mapping[str, Any]) -> list[str]:
    """The lines of a mapping of return values."""
    before, blocks = _split(lines, indent)
    written = [
        _value(block.lines, indent, template[block.key]) if block.key in template else block.lines
        for block in blocks
    ]
    return [*before, *(line for lines in written for line in lines)]


def _value(lines: list[str], indent: int, template: Mapping[str, Any]) -> list[str]:
    """The lines of one return value."""
    _before, fields = _split(lines[1:], indent + 2)
    own = {field.key: field.lines for field in fields}
    order = [*own, *(key for key in template if key not in own and key != "contains")]
    written = [lines[0]]
    for key in order:
        if key == "description":
            written += _description(own.get(key, []), indent + 2, template[key])
        elif key == "contains" and key in template:
            inner = _mapping(own[key][1:], indent + 4, template[key])
            written += [own[key][0], *inner]
        elif key in template:
            written.append(f"{' ' * (indent + 2)}{key}: {template[key]}")
        else:
            written += own[key]
    return written


def _description(lines: list[str], indent: int, shared: str) -> list[str]:
    """The shared sentence, and what the module itself has behind its first item."""
    loaded = yaml.safe_load("\n".join(lines)) or {}
    own = loaded.get("description", "")
    items = [shared, *(own[1:] if isinstance(own, list) else [])]
    begin = f"{' ' * indent}description:"
    if len(items) == 1:
        return _wrapped(f"{begin} ", indent + 2, shared)
    return [
        begin,
        *(line for item in items for line in _wrapped(f"{' ' * (indent + 2)}- ", indent + 4, item)),
    ]


def _wrapped(begin: str, indent: int, text: str) -> list[str]:
    """A text of YAML, plain where it can be."""
    options = {
        "width": WIDTH,
        "subsequent_indent": " " * indent,
        "break_long_words": False,
        "break_on_hyphens": False,
    }
    plain = textwrap.wrap(text, initial_indent=begin, **options)
    try:
        loaded = yaml.safe_load(textwrap.dedent("\n".join(plain)))
    except yaml.YAMLError:
        loaded = None
    if loaded in ([text], {"description": text}):
        return plain
    return [f"{begin}>-", *textwrap.wrap(text, initial_indent=" " * indent, **options)]


def _split(lines: list[str], indent: int) -> tuple[list[str], list[Block]]:
    """What is before the first key of this indent, and the keys with their lines."""
    before: list[str] = []
    blocks: list[Block] = []
    for line in lines:
        found = re.match(rf"^ {{{indent}}}(\w+):", line)
        if found:
            blocks.append(Block(found[1], [line]))
        elif blocks:
            blocks[-1].lines.append(line)
        else:
            before.append(line)
    return before, blocks


if __name__ == "__main__":
    sys.exit(main())
