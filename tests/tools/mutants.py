# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drop each refusal of the collection, one at a time: a unit test must turn red.

``mutants.py [--share=all|K] [FILE...]``: a refusal is a condition under which a Reason is
made. A mutant has that condition, and never what follows from it. So has one for each condition
that keeps a control from being not applicable, or what was seen from being evidence. Prints what
survives, and exits 1 where that is not in EQUAL.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("plugins/module_utils")
TESTS = Path("tests/unit")
# As of the tests that CI takes in turn (tests/conftest.py), so that one number repeats both.
SHARES = 30
# A mutant that hangs is seen, too.
DEADLINE = 600.0
# What makes a Reason: the class itself, and the guards of _core/guards.py.
MAKERS = ("Reason", "majority", "too_many")
# Functions whose conditions say that a control has something to look at, or nothing. One that holds
# too often would hide what is there.
APPLICABILITY = ("not_applicable", "signs")
# Functions that tell evidence from what is none: without a condition of theirs more would be
# believed.
EVIDENCE = (
    *("client_of", "sources_of", "watchers_of"),
    *("alone_on", "only_node", "seen_now", "shown_at"),
    *("is_after_silence", "lost_since", "_tainted_since"),
    *("shown_unattached", "shown_mounted"),
    # What is named of a lost node, since no fence reaches it.
    *("_unreached", "_why_unreached", "_attached_alone"),
    # A client of Ceph may be at an address of either family.
    *("judged_before", "judged_by", "known_by_record", "named_by_user", "noted_here"),
    "tells_family",
    # What tells that a repair that failed concerns no other one.
    "_left_half_made",
)
# What no test can tell apart, and why: (file, function, condition) -> reason.
EQUAL: dict[tuple[str, str, str], str] = {}


@dataclass(frozen=True)
class Mutant:
    """A condition (its place in the text) that is never true any more, or always."""

    file: Path
    function: str
    condition: str
    line: int
    text: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is called; a line would change with every edit."""
        return str(self.file.relative_to(FOLDER)), self.function, self.condition

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.condition}"


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Every refusal of a file of the collection."""
    text = (ROOT / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    # The parts of a line are counted in bytes.
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    never = [(function, test, b"and False") for function, test in _refusals(tree, "module")]
    for function, test, changed in [*never, *_absences(tree)]:
        first, last = test.lineno - 1, (test.end_lineno or 0) - 1
        begin = sum(map(len, lines[:first])) + test.col_offset
        end = sum(map(len, lines[:last])) + (test.end_col_offset or 0)
        whole = b"".join(lines)
        # Evaluated all the same, since a name may be bound in it.
        mutated = b"%s((%s) %s)%s" % (whole[:begin], whole[begin:end], changed, whole[end:])
        yield Mutant(file, function, ast.unparse(test), test.lineno, mutated.decode())


def _absences(tree: ast.AST) -> Iterator[tuple[str, ast.expr, bytes]]:
    """(function, part of a condition, what makes more controls not applicable)."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in (*APPLICABILITY, *EVIDENCE)
    ]
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.If):
                # "return {}" keeps a control applicable, as every sign does; "return None" believes
                # nothing.
                stays = ast.unparse(node.body[0]) in ("return {}", "return None")
                keeps = function.name == "signs" or stays
                change = b"and False" if keeps else b"or True"
                yield from ((function.name, part, change) for part in _parts(node.test))
            elif isinstance(node, ast.comprehension):
                yield from ((function.name, test, b"and False") for test in node.ifs)


def _parts(test: ast.expr) -> list[ast.expr]:
    if isinstance(test, ast.BoolOp):
        return [part for value in test.values for part in _parts(value)]
    return [test]


def _refusals(node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr]]:
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else function
        if _is_refusal(child):
            yield inside, child.test
        elif isinstance(child, (ast.ListComp, ast.GeneratorExp)) and _makes_reason(child.elt):
            yield from ((inside, test) for part in child.generators for test in part.ifs)
        yield from _refusals(child, inside)


def _is_refusal(node: ast.AST) -> TypeGuard[ast.If | ast.IfExp]:
    return (isinstance(node, ast.If) and any(_refuses(step) for step in node.body)) or (
        isinstance(node, ast.IfExp) and _makes_reason(node.body)
    )


def _refuses(step: ast.stmt) -> bool:
    """A statement of its own that makes a reason; what has conditions of its own is another."""
    return not isinstance(step, (ast.If, ast.For, ast.While, ast.With, ast.Try)) and _makes_reason(
        step
    )


def _makes_reason(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in MAKERS
        for part in ast.walk(node)
    )


def tests_of(file: Path) -> list[str]:
    """The unit tests of a file: those of its folder, then those that import it, since the first
    failure ends a run.
    """
    module = ".".join(file.relative_to(FOLDER).with_suffix("").parts)
    found = []
    for test in sorted((ROOT / TESTS).rglob("test_*.py")):
        text = test.read_text(encoding="utf-8")
        package, _dot, name = module.rpartition(".")
        if (
            test.parent.name == file.parent.name
            or f"{module} import" in text
            or (f"{package} import" in text and name in text)
        ):
            found.append(test)
    # A test of the very file comes first of all.
    found.sort(
        key=lambda test: (test.parent.name != file.parent.name, file.stem not in test.stem, test)
    )
    return [str(test.relative_to(ROOT)) for test in found]


def survives(mutant: Mutant) -> bool:
    """Whether all unit tests pass with it."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "mutant.py")
        text.write_text(mutant.text, encoding="utf-8")
        environment = {
            **os.environ,
            "MUTANT_FILE": str(ROOT / mutant.file),
            "MUTANT_TEXT": str(text),
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no"]
        command += ["-p", "no:cacheprovider", "-p", "tools.mutant_loader", *tests_of(mutant.file)]
        try:
            answer = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=DEADLINE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
    if answer.returncode not in (0, 1):
        raise RuntimeError(f"{mutant}: pytest ended with {answer.returncode}: {answer.stdout}")
    return answer.returncode == 0


def chosen(mutants: Sequence[Mutant], share: str) -> list[Mutant]:
    """Those of a share; a mutant belongs to one for good."""
    if share == "all":
        return list(mutants)
    number = int(share)
    print(f"share {number} of {SHARES}; --share={number} repeats it")
    return [
        mutant for mutant in mutants if zlib.crc32(repr(mutant.key).encode()) % SHARES == number
    ]


def main() -> int:
    """1 where a refusal can be dropped and no test says so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", default="all", help=f"all, or 0 to {SHARES - 1}")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    options = parser.parse_args()
    files = options.files or sorted((ROOT / FOLDER).rglob("*.py"))
    every = [
        mutant
        for file in files
        for mutant in mutants_of(file.resolve().relative_to(ROOT) if file.is_absolute() else file)
    ]
    some = chosen(every, options.share)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        lives = list(pool.map(survives, some))
    alive = [mutant for mutant, left in zip(some, lives, strict=True) if left]
    unknown = [mutant for mutant in alive if mutant.key not in EQUAL]
    for mutant in unknown:
        print(f"survived: {mutant}")
    print(f"{len(some)} of {len(every)} conditions changed, {len(unknown)} survived")
    return int(bool(unknown) or not every)


if __name__ == "__main__":
    sys.exit(main())
