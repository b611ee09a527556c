# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No account that is shipped may do what no playbook does: for each right a test on a real API
server shows its use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rights import FILES, Right, granted, refusals, unused

TESTS = Path(__file__).resolve().parents[2]
MANIFESTS = sorted(found.name for found in FILES.glob("rbac-*.yml"))


def shown() -> Iterator[tuple[str, str]]:
    """Manifest and right of each call of Cluster.used in a test."""
    for file in sorted(TESTS.glob("*/test_*.py")):
        for test in ast.parse(file.read_text()).body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                yield from _called(test, file)


def _called(test: ast.FunctionDef, file: Path) -> Iterator[tuple[str, str]]:
    for call in ast.walk(test):
        function = call.func if isinstance(call, ast.Call) else None
        if (
            isinstance(call, ast.Call)
            and isinstance(function, ast.Attribute)
            and function.attr == "used"
        ):
            words = [found.value for found in call.args if isinstance(found, ast.Constant)]
            assert len(words) == len(call.args), (
                f"{file}:{call.lineno}: only plain words can be compared"
            )
            yield from ((str(words[0]), str(right)) for right in words[1:])


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_every_right_is_used_in_some_test(manifest: str) -> None:
    assert {right for known, right in shown() if known == manifest} == set(granted(manifest))


def test_no_manifest_is_missed() -> None:
    assert {manifest for manifest, _right in shown()} == set(MANIFESTS)
    assert len(MANIFESTS) > 6


def event(verb: str, resource: str, code: int = 200, **more: str) -> dict[str, object]:
    """A line of an audit log, as far as it matters."""
    status = {"code": code}
    return {
        "verb": verb,
        "requestURI": "/x",
        "objectRef": {"resource": resource, **more},
        "responseStatus": status,
    }


@pytest.mark.parametrize(
    "asked",
    [
        event("list", "pods", namespace="shop", name="web"),
        event("get", "nodes", namespace="shop", name="web"),
        event("get", "pods", namespace="shop", name="web", subresource="log"),
        event("get", "pods", namespace="shop", name="web", apiGroup="apps"),
        event("get", "pods", namespace="bank", name="web"),
        event("get", "pods", namespace="shop", name="other"),
        event("get", "pods", namespace="shop"),
        {"verb": "get", "requestURI": "/version"},
    ],
    ids=str,
)
def test_what_is_another_request_uses_no_right(asked: dict[str, object]) -> None:
    right = Right("get", "", "pods", "shop", "web")
    assert unused([right], [asked]) == ["get pods shop/web"]
    assert unused([right], [asked, event("get", "pods", namespace="shop", name="web")]) == []


def test_a_path_that_is_no_object() -> None:
    asked = {"verb": "get", "requestURI": "/apis?timeout=1s"}
    assert unused([Right("get", "", "/apis")], [asked]) == []
    assert unused([Right("get", "", "/apis/*"), Right("get", "", "/version")], [asked]) == [
        "get /apis/*",
        "get /version",
    ]


def test_a_right_everywhere_is_used_anywhere() -> None:
    assert (
        unused(
            [Right("create", "", "pods/eviction")],
            [event("create", "pods", subresource="eviction", name="x")],
        )
        == []
    )


def test_refusals() -> None:
    assert refusals(
        [event("list", "pods"), event("get", "nodes", 404), event("watch", "pods", 403)]
    ) == ["watch /x"]
