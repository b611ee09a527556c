# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""What csi_volume_info has found, with Secrets and what the user knows better, as the option
volumes of fuse_remount. Pure: no I/O here.
"""

from __future__ import annotations

import binascii
import re
import shlex
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import drivers as habits
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
    StorageOpsError,
)

# In attributes or parameters: the program that a driver mounts with, its options, and the address
# of the server.
_PROGRAMS = ("mounter",)
_OPTIONS = ("options", "mountOptions", "otherOpts")
_ENDPOINTS = ("endpoint", "endpointURL", "url", "s3-endpoint")
_REGIONS = ("region", "s3-region", "everest.io/region")
# How programs separate a folder from its bucket, where they do not take bucket/folder.
_SEPARATORS = {"s3fs": ":/", "ossfs": ":/", "obsfs": ":/", "geesefs": ":", "goofys": ":"}
# Of a Secret, what is no credential but belongs to one.
_ENDPOINT, _REGION = "endpoint", "region"
# As fuse_recipes.FILE_KEY of the node's side.
_FILE = "file"


def fuse_volumes(
    volumes: Sequence[Mapping[str, Any]],
    unused: Sequence[Mapping[str, Any]],
    secrets: Iterable[Mapping[str, Any]],
    credential_keys: Mapping[str, Sequence[str]],
    drivers: Mapping[str, Mapping[str, Any]],
    given: Sequence[Mapping[str, Any]],
    leaving: bool = False,
) -> dict[str, Any]:
    """``volumes``: one entry for each volume; ``credentials``: theirs, by its name, handle or path.

    What the user has given for a volume counts more than all else, and for a driver more than the
    cluster.

    ``secrets``: as the API has them. ``credential_keys``: credential -> keys of a Secret, the best
    first. ``drivers``: by name, parts of an entry. ``given``: entries; one for a volume that the
    cluster does not know is added. ``leaving``: take all pods as being deleted.
    """
    data = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item.get("data") or {}
        for item in secrets
    }
    mine = [{key: value for key, value in entry.items() if value is not None} for entry in given]
    better = {entry["volume"]: entry for entry in mine if entry.get("volume")}
    names = {entry["volume"] for entry in (*volumes, *unused)}
    entries = [
        _entry(
            entry,
            data,
            credential_keys,
            {**drivers.get(entry["driver"], {}), **better.get(entry["volume"], {})},
            leaving,
        )
        for entry in volumes
    ]
    entries += [{**entry, "pods": [], **better.get(entry["volume"], {})} for entry in unused]
    return _apart(entries + [entry for entry in mine if entry.get("volume") not in names])


def _apart(entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Entries and credentials, which fuse_remount takes apart from each other, so that no log has
    them.
    """
    volumes: list[dict[str, Any]] = []
    credentials: dict[str, Mapping[str, str]] = {}
    for entry in entries:
        secrets = entry.get("credentials") or {}
        volumes.append({key: value for key, value in entry.items() if key != "credentials"})
        if not secrets:
            continue
        known = (entry.get("volume"), entry.get("handle"), *(entry.get("paths") or ()))
        key = next(filter(None, known), "")
        if not key or credentials.get(key, secrets) != secrets:
            raise BadOption(
                f"two entries have credentials of {key}"
                if key
                else "an entry has credentials, but names no volume"
            )
        credentials[key] = secrets
    return {"volumes": volumes, "credentials": credentials}


def _entry(
    volume: Mapping[str, Any],
    secrets: Mapping[tuple[str, str], Mapping[str, str]],
    credential_keys: Mapping[str, Sequence[str]],
    better: Mapping[str, Any],
    leaving: bool,
) -> dict[str, Any]:
    told = {**volume["parameters"], **volume["attributes"]}
    reference = volume["secret"]
    data = secrets.get((reference["namespace"], reference["name"]), {}) if reference else {}
    credentials = credentials_of(data, credential_keys)
    recipe = better.get("recipe") or _first(told, _PROGRAMS)
    endpoint = credentials.pop(_ENDPOINT, "") or _first(told, _ENDPOINTS)
    region = credentials.pop(_REGION, "") or _first(told, _REGIONS)
    entry = {
        "volume": volume["volume"],
        "driver": volume["driver"],
        "handle": volume["handle"],
        "recipe": recipe,
        "sources": [
            source.replace("/", _SEPARATORS.get(recipe, "/"), 1) for source in volume["sources"]
        ],
        "options": [
            # A command of the user's own is another program, whatever the cluster says.
            *([] if better.get("command") else habits.options(volume["driver"], recipe, region)),
            *option_words(_first(told, _OPTIONS)),
            *volume["mount_options"],
        ],
        "endpoint": endpoint,
        # Who may write the Secret can name any server in it.
        "secret_namespace": ""
        if better.get("endpoint")
        else (reference or {}).get("namespace", ""),
        "region": region,
        "credentials": credentials,
        "pods": [
            {
                **{name: pod[name] for name in ("uid", "namespace", "name")},
                "terminating": leaving or pod["terminating"],
            }
            for pod in volume["pods"]
        ],
    }
    return {**entry, **better}


def _first(told: Mapping[str, str], names: Iterable[str]) -> str:
    return next((told[name] for name in names if told.get(name)), "")


def credentials_of(data: Mapping[str, str], keys: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The credentials in the data of a Secret; keys are compared as they are.

    None, if one of them is no text: whoever may write it keeps no other volume from its repair, and
    no other endpoint takes the place of what was meant.
    """
    found = {}
    if _FILE in keys:
        # Whoever may write the Secret would have root run what a program's configuration can say.
        raise StorageOpsError(
            f"the credential {_FILE!r} is a whole configuration file, which no Secret may give: "
            "name the keys of the Secret one by one, or give the file by an entry of 'volumes'",
            code="value_refused",
        )
    for name, candidates in keys.items():
        key = next((key for key in candidates if data.get(key)), None)
        if key is not None:
            try:
                found[name] = b64decode(data[key], validate=True).decode().strip()
            except (binascii.Error, UnicodeDecodeError):
                return {}
    return found


def option_words(text: str) -> list[str]:
    """The options in a line as programs take them: ``-o a,b --memory-limit 1000`` is ``a,b`` and
    ``--memory-limit=1000``.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadOption(f"the mount options {text!r} cannot be taken apart: {error}") from error
    found: list[str] = []
    for word in words:
        before = found[-1] if found else ""
        if before == "-o":
            found[-1] = word
        elif re.match(r"-o.", word):
            found.append(word[2:])
        elif before.startswith("-") and "=" not in before and not word.startswith("-"):
            found[-1] = f"{before}={word}"
        else:
            found.append(word)
    return [word for word in found if word != "-o"]
