# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How programs that serve FUSE mounts are called."""

from __future__ import annotations

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import Refused
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    recipes as fuse_recipes,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.recipes import (
    RECIPES,
)

KEYS = {"access_key": "AKID", "secret_key": "s3cr3t"}
RCLONE = (
    "[storage_ops]\ntype = s3\nprovider = Other\nenv_auth = false\naccess_key_id = AKID\n"
    "secret_access_key = s3cr3t\n"
)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_no_recipe_shows_a_secret(name: str) -> None:
    recipe = RECIPES[name]
    assert not any(
        "secret_key" in word or "session_token" in word
        for word in (*recipe.argv, *recipe.at, *recipe.environment)
    )
    assert "secret_key" in recipe.credentials


@pytest.mark.parametrize(
    ("fstype", "name"),
    [
        ("fuse.s3fs", "s3fs"),
        ("fuse.rclone", "rclone"),
    ],
)
def test_found_by_the_type_of_the_mount(fstype: str, name: str) -> None:
    recipe = fuse_recipes.for_fstype(fstype)
    assert recipe and recipe.name == name


@pytest.mark.parametrize("fstype", ["fuse", "fuse.sshfs", ""])
def test_a_type_that_says_nothing(fstype: str) -> None:
    """Programs that set no subtype say no more than fuse (mount.fuse3(8))."""
    assert fuse_recipes.for_fstype(fstype) is None


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        ([], "/tmp"),
        (["tmpdir=/a"], "/a"),
        (["tmpdir=/a", "-o tmpdir=/b"], "/b"),
        (["tmpdir=/a,use_cache=/c"], "/c"),
        (["tmpdir=a", "use_cache"], "/tmp"),
    ],
)
def test_where_a_program_keeps_files(options: list[str], folder: str) -> None:
    assert fuse_recipes.folder_of(RECIPES["s3fs"], options) == folder


def test_placeholders() -> None:
    template = ["mount", "{options}", "-o", "x,{options}", "{source}:{nobody}", "{target}"]
    words = fuse_recipes.option_words(["a=1", "--cache=off"])
    assert words == ["-o", "a=1", "--cache=off"]
    filled = fuse_recipes.fill(
        template, {"source": "b", "target": "/t"}, {"options": ["a", "{target}"]}
    )
    # What was filled in is not looked at again.
    assert filled == ["mount", "a", "{target}", "-o", "x,a,{target}", "b:{nobody}", "/t"]


@pytest.mark.parametrize(
    ("name", "credentials", "text"),
    [
        ("s3fs", KEYS, "AKID:s3cr3t\n"),
        ("s3fs", {}, ""),
        ("rclone", KEYS, RCLONE),
        ("rclone", {**KEYS, "session_token": "tok"}, f"{RCLONE}session_token = tok\n"),
        (None, {"user": "u", "key": "k"}, "user=u\nkey=k\n"),
        (None, {"file": "as\nit is", "key": "k"}, "as\nit is"),
    ],
)
def test_credentials_files(name: str | None, credentials: dict[str, str], text: str) -> None:
    """Lines of what is not given are left out."""
    recipe = RECIPES[name] if name else None
    assert fuse_recipes.credentials_text(recipe, credentials, {"endpoint": ""}) == text


def test_a_secret_that_looks_like_a_placeholder() -> None:
    assert (
        fuse_recipes.credentials_text(
            RECIPES["s3fs"], {"access_key": "A", "secret_key": "{access_key}"}, {}
        )
        == "A:{access_key}\n"
    )


@pytest.mark.parametrize("name", sorted(RECIPES))
@pytest.mark.parametrize("key", ["access_key", "secret_key", "session_token", "endpoint", "region"])
def test_no_value_adds_a_line(name: str, key: str) -> None:
    """A tenant's Secret gave rclone a line that it runs as a command: bearer_token_command."""
    given = {**KEYS, "session_token": "tok", "endpoint": "https://s3", "region": "eu"}
    plain = fuse_recipes.credentials_text(RECIPES[name], given, {})
    evil = {**given, key: "x\ntype = webdav\nbearer_token_command = id"}
    if given[key] not in plain:
        assert fuse_recipes.credentials_text(RECIPES[name], evil, {}) == plain
        return
    with pytest.raises(Refused):
        fuse_recipes.credentials_text(RECIPES[name], evil, {})


@pytest.mark.parametrize(
    "place", ["source", "target", "endpoint", "region", "credentials_file", "access_key"]
)
def test_no_value_adds_an_option(place: str) -> None:
    """With "-o endpoint={region}" a region of "x,logfile=/etc/cron.d/x" had s3fs write
    that file.
    """
    for evil in ("x,logfile=/etc/cron.d/x", "-oallow_root", "x y", "x\ny"):
        for template in (f"endpoint={{{place}}}", f"{{{place}}}"):
            with pytest.raises(Refused):
                fuse_recipes.fill(["-o", template], {place: evil}, {})


def test_a_users_own_file_has_whole_words() -> None:
    for evil in ("$(id)", "a\nb", "a b", "'"):
        with pytest.raises(Refused):
            fuse_recipes.credentials_text(None, {"key": evil}, {})
