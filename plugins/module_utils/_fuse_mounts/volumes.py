# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Joins what csi_volume_info, Secrets and the user say into the option volumes of fuse_remount.

Pure: no I/O here.
"""

from __future__ import annotations

import binascii
import re
import shlex
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._core import drivers as habits
from .._core.errors import BadOption, StorageOpsError

# Keys in a volume's attributes or a StorageClass's parameters, by driver: "mounter" and "options"
# of yandex-cloud/k8s-csi-s3 (pkg/driver/nodeserver.go), "url" and "otherOpts" of
# kubernetes-sigs/alibaba-cloud-csi-driver (pkg/oss).
_PROGRAMS = ("mounter",)
_OPTIONS = ("options", "mountOptions", "otherOpts")
_ENDPOINTS = ("endpoint", "endpointURL", "url", "s3-endpoint")
_REGIONS = ("region", "s3-region", "everest.io/region")
# How programs separate a folder from its bucket, where that is not bucket/folder (s3fs(1)).
_SEPARATORS = {"s3fs": ":/"}
# Keys of a Secret that are no credentials, but belong to them.
_ENDPOINT, _REGION = "endpoint", "region"
# The same as FILE_KEY of recipes.py, which is for nodes and is not imported on a controller.
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
    """The options ``volumes`` (one entry per volume) and ``credentials`` (by each entry's
    ``credentials_key``).

    ``volumes``, ``unused``: of csi_volume_info. ``secrets``: objects as the API returns them.
    ``credential_keys``: credential -> keys of a Secret, the best first. ``drivers``: by name, parts
    of an entry. ``given``: entries of the user. ``leaving``: treat all pods as being deleted.

    What the user gives for a volume overrides what is given for its driver, and that overrides the
    cluster. An entry for a volume that the cluster does not know is added. Raises BadOption.
    """
    data = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item.get("data") or {}
        for item in secrets
    }
    # An option that was not given must not override what the cluster says.
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
    """Entries and credentials apart, since only fuse_remount's option credentials is no_log."""
    volumes: list[dict[str, Any]] = []
    credentials: dict[str, Mapping[str, str]] = {}
    for entry in entries:
        secrets = entry.get("credentials") or {}
        volumes.append({key: value for key, value in entry.items() if key != "credentials"})
        if not secrets:
            continue
        # By a name that it has, for people. It may be the handle or the name of another entry as
        # well, since tenants choose some of them. So the entry says which key is its own.
        known = (entry.get("volume"), entry.get("handle"), *(entry.get("paths") or ()))
        names = (str(name).rstrip("/") for name in known if name)
        name = key = next(filter(None, names), "")
        if not name:
            raise BadOption("an entry has credentials, but names no volume")
        number = 1
        while key in credentials:
            number += 1
            key = f"{name} ({number})"
        credentials[key] = secrets
        volumes[-1]["credentials_key"] = key
    return {"volumes": volumes, "credentials": credentials}


def _entry(
    volume: Mapping[str, Any],
    secrets: Mapping[tuple[str, str], Mapping[str, str]],
    credential_keys: Mapping[str, Sequence[str]],
    better: Mapping[str, Any],
    leaving: bool,
) -> dict[str, Any]:
    # Attributes are the volume's own, parameters those of its StorageClass.
    told = {**volume["parameters"], **volume["attributes"]}
    reference = volume["secret"]
    data = secrets.get((reference["namespace"], reference["name"]), {}) if reference else {}
    credentials = credentials_of(data, credential_keys)
    recipe = better.get("recipe") or _first(told, _PROGRAMS)
    endpoint = credentials.pop(_ENDPOINT, "") or _first(told, _ENDPOINTS)
    region = credentials.pop(_REGION, "") or _first(told, _REGIONS)
    words, unreadable = _class_options(told, better)
    entry: dict[str, Any] = {
        "volume": volume["volume"],
        "driver": volume["driver"],
        "handle": volume["handle"],
        "recipe": recipe,
        "sources": [
            # Only the first slash separates the bucket from the folder.
            source.replace("/", _SEPARATORS.get(recipe, "/"), 1)
            for source in volume["sources"]
        ],
        "options": [*words, *volume["mount_options"]],
        "endpoint": endpoint,
        # Whoever may write the Secret chooses the server. So the majority is counted apart for each
        # namespace of Secrets (Remote in outages.py).
        "secret_namespace": ""
        if better.get("endpoint")
        else (reference or {}).get("namespace", ""),
        "region": region,
        "credentials": credentials,
        "pods": [_pod(pod, leaving) for pod in volume["pods"]],
    }
    if unreadable:
        entry["unreadable"] = unreadable
    final = {**entry, **better}
    # Of the final entry, since that alone is what the node checks. The driver's options are for its
    # own program, not for a user's command, and a user's options replace all others.
    if not final.get("command") and "options" not in better:
        habitual = habits.options(final["driver"], final["recipe"], final["region"])
        final["options"] = [*habitual, *final["options"]]
    return final


def _class_options(told: Mapping[str, str], better: Mapping[str, Any]) -> tuple[list[str], str]:
    """The words of a volume's mount options, and why they are not known.

    That refuses this volume on its node. It must not end the run for the others.
    """
    # A user's options replace them.
    if "options" in better:
        return [], ""
    try:
        return option_words(_first(told, _OPTIONS)), ""
    except BadOption as error:
        return [], str(error)


def _pod(pod: Mapping[str, Any], leaving: bool) -> dict[str, Any]:
    return {
        **{name: pod[name] for name in ("uid", "namespace", "name")},
        "terminating": leaving or pod["terminating"],
    }


def _first(told: Mapping[str, str], names: Iterable[str]) -> str:
    return next((told[name] for name in names if told.get(name)), "")


def credentials_of(data: Mapping[str, str], keys: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The credentials in the data of a Secret. Raises StorageOpsError for a whole file.

    Empty if one of them is not base64 of UTF-8. A damaged Secret must not end the run for other
    volumes, and half of it must not be combined with another endpoint.
    """
    found = {}
    if _FILE in keys:
        # A program's configuration file can name commands to run. Whoever may write the Secret
        # would have root run them on the node.
        raise StorageOpsError(
            f"the credential {_FILE!r} is a whole configuration file, which no Secret may give: "
            "name the keys of the Secret one by one, or give the file by an entry of 'volumes'",
            code="value_refused",
        )
    for name, candidates in keys.items():
        # Drivers name the same credential differently, e.g. accessKeyID or AWS_ACCESS_KEY_ID.
        key = next((key for key in candidates if data.get(key)), None)
        if key is not None:
            try:
                found[name] = b64decode(data[key], validate=True).decode().strip()
            except (binascii.Error, UnicodeDecodeError):
                return {}
    return found


def _is_value(word: str, before: str) -> bool:
    """It is the value of the option ``before`` it."""
    return before.startswith("-") and "=" not in before and not word.startswith("-")


def option_words(text: str) -> list[str]:
    """The mount options in a line of a StorageClass, one by one. Raises BadOption.

    ``-o a,b --memory-limit 1000`` becomes ``a,b`` and ``--memory-limit=1000``.
    """
    try:
        # A StorageClass may quote an option with blanks.
        words = shlex.split(text)
    except ValueError as error:
        raise BadOption(f"its mount options cannot be taken apart: {error}") from error
    found: list[str] = []
    for word in words:
        before = found[-1] if found else ""
        # "-o a,b", "-oa,b", "--name value", or any other word.
        if before == "-o":
            found[-1] = word
        elif re.match(r"-o.", word):
            found.append(word[2:])
        elif _is_value(word, before):
            found[-1] = f"{before}={word}"
        else:
            found.append(word)
    return [word for word in found if word != "-o"]
