# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the programs that serve FUSE mounts are started, as data. Pure: no I/O here.

No recipe has a secret on the command line, which every user of the node can read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._core import untrusted

# For a user's own command, the credentials file contains the value of this key unchanged.
FILE_KEY = "file"
# Only our own lower-case names: other braces in a user's command stay as they are.
_PLACE = re.compile(r"\{([a-z_]+)\}")
# Which kind of word (untrusted.word) a placeholder stands for, where that is not its name.
_KINDS = {"target": "path", "credentials_file": "path", "cache": "path"}
_SECRETS = ("secret_key", "session_token")
# Without these credentials a recipe's program fails late and unclearly, or tries the node's own
# identity.
NEEDED = ("access_key", "secret_key")


@dataclass(frozen=True)
class Recipe:
    """A program that stays in the foreground and reads its secrets from a file.

    ``name``: of the program, which is also the subtype of its mounts. ``argv``: a word that is
    ``{options}`` or ``{at}`` stands for any number of words; ``at`` is what ``{at}`` stands for if
    there is an endpoint. ``credentials``: text of the file; a line whose credential is not given is
    left out. ``style``: the syntax of that file, see untrusted.config_value. ``environment``:
    variables without secrets. ``long_options``: FUSE options are given as options of the program,
    with two dashes. ``names_remote``: the source in mountinfo is ``REMOTE:SOURCE``, with any name
    for the remote. ``spares``: the options that say how much of a disk stays free; the first is in
    MiB. ``keeps``: those for the folder of its files on the node; the first outranks the others.
    """

    name: str
    argv: tuple[str, ...]
    credentials: str
    style: str
    at: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    long_options: bool = False
    names_remote: bool = False
    spares: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()

    @property
    def fstype(self) -> str:
        """The type of its mounts in mountinfo."""
        return f"fuse.{self.name}"


# Only what a test on real parts mounts with the real program (tests/vm/test_fuse.py).
RECIPES = {
    recipe.name: recipe
    for recipe in (
        # s3fs(1): -f stays in the foreground; passwd_file= has ACCESS_KEY:SECRET_KEY.
        Recipe(
            "s3fs",
            (
                "-f",
                "{source}",
                "{target}",
                "-o",
                "passwd_file={credentials_file}",
                "{at}",
                "{options}",
            ),
            "{access_key}:{secret_key}\n",
            "fields",
            at=("-o", "url={endpoint}"),
            # What is open it keeps in files, without a name, until the disk has 10 MB left; since
            # 1.94 until a tenth of it is left (src/fdcache.cpp IsSafeDiskSpace, src/s3fs.cpp main).
            # It starts with one of these only, given once.
            spares=("ensure_diskfree", "free_space_ratio"),
            keeps=("use_cache", "tmpdir"),
        ),
        # The remote's name is ours, so that the source is a bucket and perhaps a folder, as for the
        # other. "rclone mount" takes FUSE options as its own flags
        # (rclone.org/commands/rclone_mount).
        Recipe(
            "rclone",
            (
                "mount",
                "--config={credentials_file}",
                "{options}",
                "storage_ops:{source}",
                "{target}",
            ),
            "[storage_ops]\ntype = s3\nprovider = Other\nenv_auth = false\n"
            "access_key_id = {access_key}\n"
            "secret_access_key = {secret_key}\nsession_token = {session_token}\n"
            "endpoint = {endpoint}\nregion = {region}\n",
            "ini",
            # A system service has no HOME. In its cache folder rclone keeps what was written and
            # has not arrived yet, by the names of the remote and the bucket, and uploads it when it
            # starts (vfs/vfscache/cache.go, New and reload). Buckets of one name on two servers
            # must not share it.
            # What it has only read must not fill the node's disk, as it does without a limit
            # (rclone.org/commands/rclone_mount, --vfs-cache-max-size). An option outranks this.
            environment=(
                "HOME=/root",
                "RCLONE_CACHE_DIR={cache}",
                "RCLONE_VFS_CACHE_MAX_SIZE=1G",
            ),
            long_options=True,
            names_remote=True,
        ),
    )
}


def for_fstype(fstype: str) -> Recipe | None:
    """The recipe for mounts of this type, if there is one."""
    return next((recipe for recipe in RECIPES.values() if recipe.fstype == fstype), None)


def option_values(options: Sequence[str]) -> dict[str, str]:
    """By name, in the kernel's spelling with underscores, the last value of each mount option in
    ``-o a,b=c`` or ``--a-b=c``; empty for none.
    """
    found = {}
    for option in options:
        text = re.sub(r"^(?:--|-o[ =]?)", "", option)
        for word in re.split(r"[,\s]+", text, flags=re.UNICODE):
            name, _equals, value = word.partition("=")
            found[name.replace("-", "_")] = value
    return found


def folder_of(recipe: Recipe, options: Sequence[str]) -> str:
    """The folder on the node in which a program with ``spares`` keeps files."""
    given = option_values(options)
    folders = (given.get(name, "") for name in recipe.keeps)
    return next((one for one in folders if one.startswith("/")), "/tmp")


def option_words(options: Sequence[str]) -> list[str]:
    """Mount options as words of a command line. One that begins with a dash is left as it is."""
    return [
        word
        for option in options
        for word in ([option] if option.startswith("-") else ["-o", option])
    ]


def fill(
    template: Sequence[str], values: Mapping[str, str], lists: Mapping[str, Sequence[str]]
) -> list[str]:
    """A command line with its placeholders filled in; unknown ones stay as they are.

    ``lists``: a placeholder that is a whole word stands for all words of its list; within a word
    they are joined by commas. Raises Refused for a value that is not one word of its kind.
    """

    def put_in(match: re.Match[str]) -> str:
        name = match[1]
        if name in lists:
            return ",".join(lists[name])
        # The user has not given a value that is empty, so there is nothing to check.
        return _word(name, values[name]) if values.get(name) else values.get(name, match[0])

    words: list[str] = []
    for word in template:
        only = _PLACE.fullmatch(word)
        if only and only[1] in lists:
            words += lists[only[1]]
        else:
            words.append(_PLACE.sub(put_in, word))
    return words


def _word(name: str, text: str) -> str:
    return untrusted.word(_KINDS.get(name, name), text)


def credentials_text(
    recipe: Recipe | None, credentials: Mapping[str, str], values: Mapping[str, str]
) -> str:
    """The text of the credentials file; empty if there are no credentials.

    Without a recipe it is the user's own text, or one line per key. Raises Refused for a value that
    the program would read as something else, such as one with a line break.
    """
    if not any(credentials.values()):
        return ""
    if recipe is None:
        return _own_text(credentials)
    given = {key: text for key, text in {**values, **credentials}.items() if text}

    def put_in(match: re.Match[str]) -> str:
        name, text = match[1], given[match[1]]
        if name in _SECRETS:
            return untrusted.config_value(recipe.style, name, text)
        return _word(name, text)

    lines = [
        line
        for line in recipe.credentials.splitlines(True)
        if set(_PLACE.findall(line)) <= set(given)
    ]
    return "".join(_PLACE.sub(put_in, line) for line in lines)


def _own_text(credentials: Mapping[str, str]) -> str:
    """The credentials file for a user's own command."""
    given = {key: text for key, text in credentials.items() if text}
    return given.get(FILE_KEY) or "".join(
        f"{key}={untrusted.config_value('plain', key, text)}\n" for key, text in given.items()
    )
