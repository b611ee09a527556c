# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""clocks.py FOLDER...: no test judges a clock. Names every assertion on the time that something
took.

A busy machine takes longer. A deadline is tested with a clock of the test's own, or by what was
done; tests/benchmarks is about speed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ELAPSED = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"}


def asks_a_clock(node: ast.AST) -> bool:
    """Whether it calls, for instance, ``time.monotonic()``."""
    calls = (found.func for found in ast.walk(node) if isinstance(found, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr in ELAPSED for call in calls)


def names(node: ast.AST) -> set[str]:
    """The variables in it."""
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


def judged(function: ast.AST) -> Iterator[int]:
    """Lines of a function's assertions on a clock, or on a variable that was made from one."""
    times: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and asks_a_clock(node.value):
            times |= {name for target in node.targets for name in names(target)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and (asks_a_clock(node.test) or names(node.test) & times):
            yield node.lineno


def main() -> int:
    """Entry point."""
    bad = {
        f"{path}:{line}"
        for folder in sys.argv[1:]
        for path in Path(folder).rglob("*.py")
        if not path.is_relative_to("tests/benchmarks") and not path.is_relative_to("tests/output")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for line in judged(function)
    }
    for place in sorted(bad):
        print(f"{place}: it asserts how long something took", file=sys.stderr)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
