# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No text of a kernel, a program or a stranger is taken apart at characters of Unicode.

Python ends a line at U+2028, separates words at U+2003, and calls ``²`` a digit, which int() then
refuses. Where such a text is read, _core/texts.py is used, and patterns have re.ASCII. Where
Unicode is meant, a pattern says re.UNICODE.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
PATTERNS = {"compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
METHODS = {"splitlines", "isdigit", "isdecimal", "isnumeric", "isspace"}
# The classes that have more characters in Unicode, and those that ignore the case of more.
CLASSES = re.compile(r"\\[dDwWsSbB]")
FLAGS = {"ASCII", "UNICODE", "A", "U"}
# Files in which one of METHODS, or split(), is right, and why.
ALLOWED = {
    "action/compliance_report.py": "an error about the operator's own YAML",
    "action/on_node.py": "as Ansible makes stdout_lines; and numbers of this machine's kernel",
    "callback/findings.py": "wraps a text that is shown",
    "module_utils/_compliance/selection.py": "an error about the operator's own expression",
    "module_utils/_core/answers.py": "what a person has written into a survey",
    "module_utils/_core/texts.py": "the functions that all others use",
    "module_utils/_csi_volumes/secrets.py": "with more blanks, more is hidden",
    "module_utils/_fuse_mounts/recipes.py": "a template of ours",
    "modules/node_storage_info.py": "a list of ours",
}


def names_of(node: ast.expr, known: dict[str, str]) -> str:
    """A pattern as it is written, with the constants of its module that it names."""
    text = ast.unparse(node).replace("\\\\", "\\")
    parts = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return text + "".join(known.get(part, "") for part in parts)


def unmarked(tree: ast.Module) -> Iterator[int]:
    """The lines of patterns that have a class of Unicode, and do not say whether it is meant."""
    known = {
        target.id: ast.unparse(node.value).replace("\\\\", "\\")
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func.value) == "re"
            and node.func.attr in PATTERNS
        ):
            continue
        flags = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
        pattern = names_of(node.args[0], known)
        is_bytes = any(
            isinstance(one, ast.Constant) and isinstance(one.value, bytes)
            for one in ast.walk(node.args[0])
        )
        ignores = flags & {"IGNORECASE", "I"}
        if (CLASSES.search(pattern) or ignores) and not (flags & FLAGS or is_bytes):
            yield node.lineno


def split_at_unicode(tree: ast.Module) -> Iterator[int]:
    """The lines with a method that takes characters of Unicode for blanks or digits.

    `` " ".join(text.split())`` makes one line of a text that is shown.
    """
    shown = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "' '.join"
        for inner in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield node.lineno
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("split", "rsplit")
            and (not node.args or ast.unparse(node.args[0]) == "None")
            and id(node) not in shown
        ):
            yield node.lineno


def found(text: str) -> list[int]:
    tree = ast.parse(text)
    return sorted({*unmarked(tree), *split_at_unicode(tree)})


def test_what_is_found() -> None:
    bad = [
        r"re.compile(r'\d+')",
        r"re.search(rf'{X}\S', t, re.MULTILINE)",
        r"re.compile('a', re.IGNORECASE)",
        "t.splitlines()",
        "t.split()",
        "t.split(None, 5)",
        "map(str.isdigit, t)",
        "' '.join(w for w in t.split())",
    ]
    good = [
        r"re.compile(r'\d+', re.ASCII)",
        r"re.compile(rb'\d+')",
        r"re.compile('[0-9]\n')",
        r"re.compile(r'\w', re.IGNORECASE | re.UNICODE)",
        "t.split('\\n')",
        "' '.join(t.split())",
    ]
    assert [text for text in [*bad, *good] if found(text)] == bad
    assert found("X = r'\\s'\nre.compile(f'{X}a')") == [2]


def test_texts_of_others_are_taken_apart_at_ascii() -> None:
    texts = {
        str(file.relative_to(PLUGINS)): file.read_text() for file in sorted(PLUGINS.rglob("*.py"))
    }
    where = {name: lines for name, text in texts.items() for lines in [found(text)] if lines}
    assert {name: lines for name, lines in where.items() if name not in ALLOWED} == {}
    assert sorted(where) == sorted(ALLOWED)
