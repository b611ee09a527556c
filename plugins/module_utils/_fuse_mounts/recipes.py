# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""How the programs that serve FUSE mounts are started, as data. Pure: no I/O here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import untrusted

# The credentials file of a command of the user's own holds the value of this key as it is.
FILE_KEY = "file"
_PLACE = re.compile(r"\{([a-z_]+)\}")
# What is put in for a placeholder, as a kind of word; of what is not named here, the name is the
# kind.
_KINDS = {"target": "path", "credentials_file": "path", "bucket": "source"}
_SECRETS = ("secret_key", "session_token")


@dataclass(frozen=True)
class Recipe:
    """A program, in the foreground, that is told its secrets by a file.

    ``fstypes``: what mountinfo calls its mounts. ``argv``: a word that is ``{options}`` or ``{at}``
    stands for any number of words; ``at`` is what they are when there is an endpoint.
    ``credentials``: text of the file, each line left out whose credential is not given.
    ``needed``: keys of the credentials that it cannot do without. ``environment``: variables that
    hold no secret. ``secret_environment``: the credentials file is one of variables, which systemd
    reads. ``long_options``: options of the kernel's are its own, with two dashes.
    ``names_remote``: mountinfo calls its mounts ``REMOTE:SOURCE``, with any name for the remote.
    ``style``: how the file of the credentials is read, see untrusted.config_value.
    """

    name: str
    program: str
    fstypes: tuple[str, ...]
    argv: tuple[str, ...]
    at: tuple[str, ...] = ()
    credentials: str = ""
    needed: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    secret_environment: bool = False
    long_options: bool = False
    names_remote: bool = False
    style: str = "ini"


_S3FS_LIKE = (
    "-f",
    "{source}",
    "{target}",
    "-o",
    "passwd_file={credentials_file}",
    "{at}",
    "{options}",
)
_KEYS = ("access_key", "secret_key")
_AWS = (
    "[default]\naws_access_key_id = {access_key}\naws_secret_access_key = "
    "{secret_key}\naws_session_token = {session_token}\n"
)
_AWS_FILE = ("AWS_SHARED_CREDENTIALS_FILE={credentials_file}",)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "s3fs",
            "s3fs",
            ("fuse.s3fs",),
            _S3FS_LIKE,
            ("-o", "url={endpoint}"),
            "{access_key}:{secret_key}\n",
            _KEYS,
            style="fields",
        ),
        Recipe(
            "ossfs",
            "ossfs",
            ("fuse.ossfs",),
            _S3FS_LIKE,
            ("-o", "url={endpoint}"),
            "{bucket}:{access_key}:{secret_key}\n",
            _KEYS,
            style="fields",
        ),
        Recipe(
            "obsfs",
            "obsfs",
            ("fuse.obsfs",),
            _S3FS_LIKE,
            ("-o", "url={endpoint}"),
            "{access_key}:{secret_key}\n",
            _KEYS,
            style="fields",
        ),
        Recipe(
            "geesefs",
            "geesefs",
            ("fuse.geesefs",),
            ("-f", "{at}", "{options}", "{source}", "{target}"),
            ("--endpoint", "{endpoint}"),
            _AWS,
            _KEYS,
            _AWS_FILE,
        ),
        Recipe(
            "goofys",
            "goofys",
            ("fuse",),
            ("-f", "{at}", "{options}", "{source}", "{target}"),
            ("--endpoint", "{endpoint}"),
            _AWS,
            _KEYS,
            _AWS_FILE,
        ),
        # The remote is made up here, so that the source is a bucket and perhaps a folder in it, as
        # for the others.
        Recipe(
            "rclone",
            "rclone",
            ("fuse.rclone",),
            (
                "mount",
                "--config={credentials_file}",
                "{options}",
                "storage_ops:{source}",
                "{target}",
            ),
            (),
            "[storage_ops]\ntype = s3\nprovider = Other\nenv_auth = false\n"
            "access_key_id = {access_key}\n"
            "secret_access_key = {secret_key}\nsession_token = {session_token}\n"
            "endpoint = {endpoint}\nregion = {region}\n",
            _KEYS,
            # Without a home it does not know where to keep its cache.
            ("HOME=/root",),
            long_options=True,
            names_remote=True,
        ),
        # The source is the metadata engine's address, without a password; the bucket's keys are
        # kept there.
        Recipe(
            "juicefs",
            "juicefs",
            ("fuse.juicefs",),
            ("mount", "{options}", "{source}", "{target}"),
            (),
            "META_PASSWORD={secret_key}\n",
            (),
            ("HOME=/root",),
            True,
            style="environment",
        ),
        # The source is the folder of the file system, the access key its user, without the
        # "client.".
        Recipe(
            "cephfs-fuse",
            "ceph-fuse",
            ("fuse.ceph-fuse", "fuse.ceph"),
            (
                "-f",
                "{at}",
                "--id",
                "{access_key}",
                "-k",
                "{credentials_file}",
                "-r",
                "{source}",
                "{options}",
                "{target}",
            ),
            ("-m", "{endpoint}"),
            "[client.{access_key}]\n\tkey = {secret_key}\n",
            _KEYS,
        ),
    )
}


def for_fstype(fstype: str) -> Recipe | None:
    """The recipe whose mounts look so, if that is but one."""
    found = [recipe for recipe in RECIPES.values() if fstype in recipe.fstypes and fstype != "fuse"]
    return found[0] if len(found) == 1 else None


def option_words(options: Sequence[str]) -> list[str]:
    """Mount options as words: those that begin with a dash are a program's own."""
    return [
        word
        for option in options
        for word in ([option] if option.startswith("-") else ["-o", option])
    ]


def fill(
    template: Sequence[str], values: Mapping[str, str], lists: Mapping[str, Sequence[str]]
) -> list[str]:
    """A command line with its placeholders filled in; unknown ones stay as they are.

    ``lists``: what a word that is nothing but this placeholder stands for; within a word it is
    joined by commas. Raises Refused for a value that is no word of its kind.
    """

    def put_in(match: re.Match[str]) -> str:
        name = match[1]
        if name in lists:
            return ",".join(lists[name])
        # An empty one is what the user has not given.
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
    """What the file of the credentials holds; empty if there are none. Without a recipe it is the
    user's text, or a line per key.

    Raises Refused for a value that would be read as anything but itself.
    """
    given = {key: text for key, text in {**values, **credentials}.items() if text}
    if not any(credentials.values()):
        return ""
    if recipe is None:
        return given.get(FILE_KEY) or "".join(
            f"{key}={untrusted.config_value('plain', key, text)}\n"
            for key, text in credentials.items()
            if text
        )

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
