# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others wrote becomes a word, a line, a name or a text to show, or is refused."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import untrusted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import Refused

PLUGINS = Path(untrusted.__file__).resolve().parents[2]
CHECKED = ("command_line", "shown_command")
# What ends a line, an option or a word, or begins another one; or goes where it should not.
HOSTILE = (
    "x\ntype = webdav",
    "x\r\nbearer_token_command = id",
    "x,logfile=/etc/cron.d/x",
    "-oallow_root",
    "--config=/x",
    "x y",
    "x\ty",
    "x'y",
    'x"y',
    "x`id`",
    "x$(id)y;",
    "x\\",
    "x\x00y",
    "x\x1b[2Jy",
    "x\u2028y",
    "x\u202ey",
    "bucket:/../other",
    "../other",
    "a/..",
    "x" * 1_400_000,
)


@pytest.mark.parametrize("kind", ["region", "endpoint", "source", "access_key", "path"])
@pytest.mark.parametrize("text", HOSTILE)
def test_no_word(kind: str, text: str) -> None:
    with pytest.raises(Refused) as caught:
        untrusted.word(kind, text)
    said = str(caught.value)
    assert f"the {kind}" in said and said.isprintable() and len(said) < 300


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("region", "eu-central-1"),
        ("region", "default"),
        ("endpoint", "https://s3.example.com"),
        ("endpoint", "http://10.0.0.1:9000/path/"),
        ("endpoint", "https://[2001:db8::1]:8333"),
        ("endpoint", "s3.example.com:443"),
        ("source", "bucket:/folder/müller"),
        ("source", "redis://user@host:6379/1"),
        ("source", "mysql://user:@(host)/db"),
        ("source", "/srv/data"),
        ("source", "a..b/..c"),
        ("access_key", "AKIAIOSFODNN7EXAMPLE"),
        ("access_key", "user@example.com"),
        ("path", "/run/storage_ops/fuse/0a1b/mount"),
        ("option", "--name=a b,c"),
    ],
)
def test_words(kind: str, text: str) -> None:
    assert untrusted.word(kind, text) == text


def test_an_option_is_one_line() -> None:
    for text in ("a\nb", "a\x1b", "a\u2028", "x" * 5000):
        assert untrusted.problem("option", text)


def test_no_refusal_shows_a_password() -> None:
    for text in ("https://u:hid@den@h,x", f"https://u:{'hidden' * 100}@h"):
        assert "hid" not in untrusted.problem("endpoint", text)
    assert "planted" not in untrusted.problem("access_key", "planted,x")


@pytest.mark.parametrize(
    ("style", "bad"),
    [
        ("ini", ["a\nb", "a b", '"""', "`x", "'x'", "a%(secret_access_key)s", "a\\", "a#b", "a;b"]),
        ("fields", ["a:b", "a\nb", "a b", "ä"]),
        ("plain", ["$(id)", "`id`", "a;b", "a'b", 'a"b', "a\\b", "a\nb", "a b", "*", "~"]),
    ],
)
def test_no_value_of_a_file(style: str, bad: list[str]) -> None:
    for text in bad:
        with pytest.raises(Refused) as caught:
            untrusted.config_value(style, "secret_key", text)
        assert text not in str(caught.value)


def test_values_of_files() -> None:
    key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY="
    for style in ("ini", "fields", "plain"):
        assert untrusted.config_value(style, "secret_key", key) == key
    assert untrusted.config_value("ini", "k", "P@ss!$%{}~|") == "P@ss!$%{}~|"


@pytest.mark.parametrize(
    "text", [*HOSTILE, "", "A", "-a", "a-", "a..b", "a_b", "a/b", ".", "a" * 64, "a." * 130 + "a"]
)
def test_no_name(text: str) -> None:
    assert not untrusted.is_name(text)
    with pytest.raises(Refused, match="the node"):
        untrusted.name("node", text)


@pytest.mark.parametrize(
    "text", [*HOSTILE, "", "-a", "a/b", ".", "a" * 254, "a';id;'", "a&", "*", "~", "a b", "a,b"]
)
def test_no_part_of_a_command(text: str) -> None:
    assert untrusted.shown_command("run -e node={node}", node=text) == untrusted.NO_COMMAND
    assert untrusted.command_line("run -e node={node}", node=text) == ""
    assert untrusted.command_line("run -e node={node}", node=["a", text]) == ""


def test_commands() -> None:
    assert untrusted.name("node", "ip-10-0-0-1.eu.internal") == "ip-10-0-0-1.eu.internal"
    line = untrusted.command_line(
        "run -a 'namespace={space} claims={claims}' {other}", space="shop", claims=["a", "b"]
    )
    assert line == "run -a 'namespace=shop claims=a,b' {other}"
    assert untrusted.command_line("run {claims}", claims=[]) == ""
    for entry in ("10.0.0.1:0/123", "[2001:db8::1]:0/123", "2001:db8::/64", "10.0.0.0/24", "::1"):
        assert untrusted.shown_command("rm {entry}", entry=entry) == f"rm {entry}"


def test_nothing_else_builds_a_command_to_be_copied() -> None:
    """Each goes through command_line, by which no name in it can be anything else."""
    begins = re.compile(
        r"ansible-playbook |ansible localhost|kubectl |ceph osd blocklist | -e \w+=(?=[\0{])"
    )
    found = []
    for file in sorted(PLUGINS.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        checked = {
            id(inner)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in CHECKED
            for inner in ast.walk(call)
        }
        pieces = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        for node in ast.walk(tree):
            if id(node) in checked | pieces:
                continue
            begun = begins.search(_text(node))
            if begun and re.search(r"[\0{]", _text(node)[begun.start() :]):
                found.append(f"{file.parent.name}/{file.name}:{node.lineno}")
    # Their texts are filled in by controls.command, and by _fill of triage, with plain names only.
    filled = ("_core/controls.py:", "_triage/catalogue.py:")
    assert [place for place in found if not place.startswith(filled)] == []


def _text(node: ast.AST) -> str:
    """A text of the code; NUL stands for what is put in, as braces do in a text for format()."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values
        )
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.parametrize("text", ["", "x", "[" * 100_000, '{"a":' * 100_000])
def test_no_json(text: str) -> None:
    with pytest.raises(ValueError, match="Expecting value|nested too deep"):
        untrusted.from_json(text)


@pytest.mark.parametrize("depth", [1, 99, 5_000])
def test_of_an_object_what_is_nested_too_deep_is_left_out(depth: int) -> None:
    text = f'{{"a": {"[" * depth}"]"{"]" * depth}, "b": 1}}'
    value = untrusted.read_object(text.encode())
    assert value["b"] == 1
    assert ('"]"' in json.dumps(value)) == (depth < 100)
    assert untrusted.read_value(f"  {text} ...", 2) == (value, len(text) + 2)
    for wrong in (text[:-1], f"{text}]", text[: len(text) // 2]):
        with pytest.raises(ValueError, match="Expecting|Extra data|not whole"):
            untrusted.read_object(wrong.encode())


def test_few() -> None:
    assert untrusted.few("") == ""
    assert untrusted.few("121345") == "1, 2, 3, 4, 5"
    assert untrusted.few(iter("123456"), "; ") == "1; 2; 3; 4; 5 (+1 more)"


def test_shown() -> None:
    assert untrusted.shown("plain ü") == "plain ü"
    assert (
        untrusted.shown("a\x1b[2J\x07\n\u2028\u202e\ud800\x85")
        == "a\\x1b[2J\\x07\\n\\u2028\\u202e\\ud800\\x85"
    )
    assert untrusted.shown("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"
    assert untrusted.shown("x" * 10, most=4) == "xxxx (+6 characters)"
    assert untrusted.clean({"a\x1b": ["b\x1b", 1, None, ("c\x07",)]}) == {
        "a\\x1b": ["b\\x1b", 1, None, ["c\\x07"]]
    }
