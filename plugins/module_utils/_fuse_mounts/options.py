# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the repair of FUSE mounts: their specification and their checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .._core.argspec import ArgumentSpec, check_numbers, given_names, given_options
from .._core.errors import BadOption
from .._core.untrusted import sample_of
from .model import LEAST_MEMORY, LEAST_TASKS, FuseOptions, FusePod, FuseVolume

_HIDDEN = "(hidden)"
_POD = {
    "uid": {"type": "str", "required": True},
    "namespace": {"type": "str", "default": ""},
    "name": {"type": "str", "default": ""},
    "terminating": {"type": "bool", "default": False},
}
_VOLUME = {
    "volume": {"type": "str", "default": ""},
    "driver": {"type": "str", "default": ""},
    "handle": {"type": "str", "default": ""},
    "paths": {"type": "list", "elements": "str", "default": []},
    # Without "choices": an unknown recipe, which comes from a driver's StorageClass, refuses the
    # volumes of that driver only, not the whole run.
    "recipe": {"type": "str", "default": ""},
    "sources": {"type": "list", "elements": "str", "default": []},
    "options": {"type": "list", "elements": "str", "default": []},
    "endpoint": {"type": "str", "default": ""},
    "secret_namespace": {"type": "str", "default": "", "no_log": False},
    "region": {"type": "str", "default": ""},
    "credentials_key": {"type": "str", "default": "", "no_log": False},
    "unreadable": {"type": "str", "default": ""},
    "command": {"type": "list", "elements": "str", "default": []},
    "foreground": {"type": "bool", "default": True},
    "memory_max": {"type": "int"},
    "tasks_max": {"type": "int"},
    "pods": {"type": "list", "elements": "dict", "options": _POD},
}
# The options that an audit shares with the repair.
PROBES_SPEC = ArgumentSpec({"probe_timeout": {"type": "float", "default": 5.0}})
OPTIONS_SPEC = PROBES_SPEC.merge(
    ArgumentSpec(
        {
            "paths": {"type": "list", "elements": "str", "default": []},
            "strategy": {"type": "str", "default": "remount", "choices": ["remount", "kubelet"]},
            "volumes": {"type": "list", "elements": "dict", "default": [], "options": _VOLUME},
            # At the top level: AnsibleModule logs a list of dictionaries by its repr(), which
            # escapes backslashes, quotes and line breaks. A secret that has one of them would no
            # longer match, and would not be masked (ansible module_utils/basic.py _log_invocation).
            "credentials": {"type": "dict", "default": {}, "no_log": True},
            "node": {"type": "str", "default": ""},
            "remount_timeout": {"type": "float", "default": 30.0},
            "containers_timeout": {"type": "float", "default": 0.0},
            "unstage_timeout": {"type": "float", "default": 60.0},
            "abort_hung_connections": {"type": "bool", "default": False},
            "max_repairs": {"type": "int", "default": 10},
            "accept_majority": {"type": "bool", "default": False},
        }
    )
)


def fuse_options(params: dict[str, Any]) -> FuseOptions:
    """The options of FuseRecovery, checked. Raises BadOption.

    A module that only reports lacks most of them. It repairs nothing, so max_repairs is no limit.
    """
    given = given_options(FuseOptions, params)
    least = {
        "probe_timeout": 0.1,
        "remount_timeout": 1,
        "containers_timeout": 0,
        "unstage_timeout": 0,
        "max_repairs": 0,
    }
    check_numbers(given, least)
    paths = [path.rstrip("/") for path in given.get("paths", ())]
    volumes = tuple(_volume(entry) for entry in given.get("volumes", ()))
    return FuseOptions(
        **{
            **given,
            **given_names({"paths": paths}, "paths", strip=False),
            "volumes": _with_credentials(volumes, params.get("credentials") or {}),
        }
    )


def options_of(module: Any) -> dict[str, Any]:
    """The options of an AnsibleModule, which from then on masks no credentials in its result.

    Ansible masks the text of each no_log value wherever it occurs, in the findings of all volumes.
    Tenants write the Secrets: one that says "refuse" would hide every verdict. So the module's
    own parameters, which Ansible adds to the result, lose the credentials here, and the output of
    a volume's program is scrubbed where it is read (``FuseRecovery.apply``).
    """
    given = dict(module.params)
    credentials = given["credentials"] or {}
    module.params["credentials"] = dict.fromkeys(credentials, _HIDDEN)
    # no_log_values is what AnsibleModule masks in its result (module_utils/basic.py
    # _return_formatted).
    parts = [secrets for secrets in credentials.values() if isinstance(secrets, dict)]
    module.no_log_values -= {str(text) for secrets in parts for text in secrets.values()}
    return given


def _with_credentials(
    volumes: tuple[FuseVolume, ...], given: dict[str, Any]
) -> tuple[FuseVolume, ...]:
    """Each volume with the credentials that are given for it, or why that is not known.

    Raises BadOption, without a secret in its text.
    """
    if not all(isinstance(secrets, dict) for secrets in given.values()):
        raise BadOption(
            "credentials has a part that is not a dictionary: give one for each volume, by its "
            "name, "
            "handle or path"
        )
    # YAML may have made a number of a handle.
    given = {str(key).rstrip("/"): secrets for key, secrets in given.items()}
    mine = _keys_by_volume(volumes, given)
    # A typing error in a name would otherwise mount without credentials.
    left = set(given).difference(*mine)
    if left:
        raise BadOption(
            f"{len(left)} of the credentials are of a volume that is not among the volumes"
        )
    return tuple(
        replace(volume, credentials=_texts(given[keys[0]] if keys and not why else {}), doubt=why)
        for volume, keys, why in zip(volumes, mine, _doubts(volumes, mine))
    )


def _keys_by_volume(volumes: tuple[FuseVolume, ...], given: Iterable[str]) -> list[tuple[str, ...]]:
    """For each volume, all the keys of ``given`` that may be its. Raises BadOption.

    Tenants choose handles, and some choose names: whoever has a handle that is another's name must
    not get the keys of that one.
    """
    for volume in volumes:
        if volume.credentials_key and volume.credentials_key not in given:
            raise BadOption(
                f"credentials has no {sample_of(volume.credentials_key)}, which is the "
                f"credentials_key of {volume.describe()}"
            )
    free = set(given) - {volume.credentials_key for volume in volumes}
    names = {volume.volume for volume in volumes}

    def of(volume: FuseVolume) -> tuple[str, ...]:
        if volume.credentials_key or volume.volume in free:
            return (volume.credentials_key or volume.volume,)
        others = dict.fromkeys((volume.handle, *volume.paths))
        return tuple(key for key in others if key in free and key not in names)

    return [of(volume) for volume in volumes]


def _doubts(volumes: tuple[FuseVolume, ...], mine: list[tuple[str, ...]]) -> list[str]:
    """For each volume, why it is not known which credentials are its; empty if it is."""
    # A handle may be that of several drivers. It refuses these volumes, and no other of the node.
    asked = Counter(key for keys in mine for key in keys)

    def doubt(volume: FuseVolume, keys: tuple[str, ...]) -> str:
        # These are its own, whoever else has them.
        if volume.credentials_key or keys == (volume.volume,):
            return ""
        if len(keys) > 1:
            return "credentials has several for it: give credentials_key"
        shared = [key for key in keys if asked[key] > 1]
        return (
            f"credentials has {sample_of(shared[0])}, which may be of several volumes: give "
            "credentials_key"
            if shared
            else ""
        )

    return [doubt(volume, keys) for volume, keys in zip(volumes, mine)]


def _texts(secrets: dict[Any, Any]) -> dict[str, str]:
    return {str(key): str(text) for key, text in secrets.items() if text is not None}


def _volume(entry: dict[str, Any]) -> FuseVolume:
    """An entry of the option 'volumes'. Raises BadOption if it names no volume."""
    given = given_options(FuseVolume, entry)
    for name in ("paths", "sources", "options", "command"):
        given[name] = tuple(given.get(name, ()))
    given["paths"] = tuple(path.rstrip("/") for path in given["paths"])
    given["credentials_key"] = given.get("credentials_key", "").rstrip("/")
    if "pods" in given:
        given["pods"] = tuple(FusePod(**given_options(FusePod, pod)) for pod in given["pods"])
    volume = FuseVolume(**given)
    for name, number, least in (
        ("memory_max", volume.memory_max, LEAST_MEMORY),
        ("tasks_max", volume.tasks_max, LEAST_TASKS),
    ):
        if number is not None and number < least:
            raise BadOption(f"{name} of {volume.describe()} is {number}; give at least {least}")
    # It could belong to any mount, and so to none.
    if not volume.describe():
        raise BadOption("an entry of 'volumes' says neither 'volume' nor 'handle' nor 'paths'")
    return volume
