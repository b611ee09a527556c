# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The registry of codes: each code that is used is in it, and each one in it is used."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import CODES, Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
    Refused,
    StorageOpsError,
    code_of,
    words,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import client

ROOT = Path(__file__).parents[5]
PLUGINS = ROOT / "plugins"
REGISTRY = PLUGINS / "module_utils" / "_core" / "codes.py"
SOURCES = sorted(path for path in PLUGINS.rglob("*.py") if path != REGISTRY)
# Classes of errors whose second argument is the code.
ERRORS = {"StorageOpsError", "ActionFailed", "NotStarted", "Prevented", "Ended", "Unread"}


def texts(node: ast.AST) -> Iterator[str]:
    """The literal texts in an expression, as of both ways of a condition; not what a call gets."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value
    if not isinstance(node, (ast.Call, ast.Compare)):
        for part in ast.iter_child_nodes(node):
            yield from texts(part)


def used(tree: ast.AST) -> Iterator[str]:
    """Every literal that is written where a code belongs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name == "Reason":
                yield from texts(node.args[0])
            if name in ERRORS and len(node.args) > 1:
                yield from texts(node.args[1])
            for keyword in node.keywords:
                if keyword.arg == "code":
                    yield from texts(keyword.value)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {getattr(target, "id", getattr(target, "attr", "")) for target in targets}
            if names & {"code", "_CODES"} and node.value:
                yield from texts(node.value)


def test_each_code_that_is_used_is_registered() -> None:
    unknown = {
        f"{path.relative_to(ROOT)}: {code}"
        for path in SOURCES
        for code in used(ast.parse(path.read_text("utf-8")))
        if code not in CODES
    }
    assert unknown == set()


@pytest.mark.parametrize(
    "text",
    [
        "Reason('odd', 'text')",
        "raise NotStarted('text', code='odd')",
        "raise NotStarted('text', 'odd')",
        "Reason('bad_option' if x else 'odd', 'text')",
        "class E(Exception):\n    code = 'odd'",
        "class E:\n    code: str = 'odd'",
        "_CODES = {404: 'odd'}",
    ],
)
def test_a_code_is_found_wherever_it_is_written(text: str) -> None:
    assert "odd" in set(used(ast.parse(text)))


def test_each_registered_code_is_used() -> None:
    written = {code for path in SOURCES for code in used(ast.parse(path.read_text("utf-8")))}
    assert set(CODES) - written == set()


def test_no_finding_is_made_refused() -> None:
    """Without refuse, it would have no code."""
    for path in sorted((PLUGINS / "module_utils").rglob("plan.py")):
        assert '"refuse"' not in path.read_text("utf-8").replace('verdict == "refuse"', ""), path


def test_findings_are_built_by_keyword() -> None:
    """Of nine texts in a row two are soon exchanged."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                assert not node.args, f"{path}:{node.lineno}"


@pytest.mark.parametrize("name", sorted(CODES))
def test_a_code_is_a_word_and_its_sentences_are_short(name: str) -> None:
    code = CODES[name]
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name) and len(name) <= 24
    for text in (code.cause, code.next_step):
        assert text[0].isupper() and text[-1] == "." and len(text) <= 140
        assert "|" not in text and text.isprintable()


def test_the_guide_has_the_registry_and_nothing_else() -> None:
    guide = (ROOT / "docs" / "guides" / "codes.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| `([a-z_]+)` \| (.+) \| (.+) \|$", guide)
    assert rows == [tuple(code) for code in CODES.values()]


def test_a_reason_is_a_text_with_a_code() -> None:
    reason = Reason("lease_held", "another run is at work")
    assert (reason, reason.code) == ("another run is at work", "lease_held")
    assert f"{reason}, and {reason.upper()}" == "another run is at work, and ANOTHER RUN IS AT WORK"
    more = reason.with_text(f"node-1: {reason}")
    assert (more, more.code) == ("node-1: another run is at work", "lease_held")
    for same in (copy.deepcopy(reason), pickle.loads(pickle.dumps(reason))):
        assert (same, same.code) == (reason, reason.code)


def test_the_code_of_an_error_is_its_own_or_that_of_its_class() -> None:
    assert code_of(StorageOpsError("no")) == "evidence_unreadable"
    assert code_of(StorageOpsError("no", code="deadline_passed")) == "deadline_passed"
    assert StorageOpsError.code == "evidence_unreadable"
    assert (code_of(BadOption("no")), code_of(Refused("no"))) == ("bad_option", "value_refused")
    assert code_of(KeyError("sda")) == "unexpected_error"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StorageOpsError("no answer"), "no answer"),
        (KeyError("uuid"), "'uuid' is missing"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (PermissionError(13, "Permission denied", "/x"), "Permission denied: /x"),
        (OSError("odd"), "odd"),
        (ValueError("not a number"), "not a number"),
        # These say too little alone.
        (ValueError(), "ValueError: "),
        (TypeError("'int' object is not iterable"), "TypeError: 'int' object is not iterable"),
    ],
)
def test_an_error_is_told_without_its_class(error: Exception, said: str) -> None:
    assert words(error) == said


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (0, "api_unreachable"),
        (400, "api_rejected"),
        (401, "api_forbidden"),
        (403, "api_forbidden"),
        (404, "api_not_found"),
        (409, "api_conflict"),
        (410, "api_error"),
        (422, "api_rejected"),
        (429, "api_busy"),
        (500, "api_error"),
        (503, "api_error"),
    ],
)
def test_an_error_of_the_api_has_the_code_of_its_status(status: int, code: str) -> None:
    assert client.KubeError("no", status).code == code
    assert client._ERRORS.get(status, client.KubeError)("no", status).code == code
    assert client.KubeError("no", status, code="api_login").code == "api_login"
