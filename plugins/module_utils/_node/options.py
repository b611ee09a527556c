# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""Options that node modules share, and what they are turned into."""

from __future__ import annotations

from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._argspec import ArgumentSpec
from ansible_collections.storage_ops.runbooks.plugins.module_utils._bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import UNDO_SECONDS, Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import ROOT
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.residual_plan import Options

__all__ = ["BOUNDS", "KUBELET", "PEERS", "REFUSAL", "RESIDUAL", "ArgumentSpec", "make_host", "residual_options"]

RESIDUAL = ArgumentSpec(
    {
        "maps": {"type": "list", "elements": "str", "default": []},
        "wwids": {"type": "list", "elements": "str", "default": []},
        "vendor": {"type": "str", "default": ""},
        "product": {"type": "str", "default": ""},
        "observations": {"type": "int", "default": 3},
        "observation_seconds": {"type": "float", "default": 25.0},
        "probe_timeout": {"type": "float", "default": 5.0},
    }
)
BOUNDS = ArgumentSpec({"command_timeout": {"type": "float", "default": 30.0}, "deadline": {"type": "float", "default": 300.0}})
REFUSAL = ArgumentSpec({"strict": {"type": "bool", "default": False}})
KUBELET = ArgumentSpec({"kubelet_root": {"type": "str", "default": ROOT}})
PEERS = ArgumentSpec(
    {
        "peer_initiator_names": {"type": "dict", "default": {}},
        "peer_boot_ids": {"type": "dict", "default": {}},
    }
)


def make_host(params: dict[str, Any]) -> Host:
    """The node, with the bounds the user gave."""
    if not params["deadline"] >= 2 * UNDO_SECONDS:
        raise StorageOpsError(f"deadline is {params['deadline']:g} s; give at least {2 * UNDO_SECONDS:g}")
    if not params["command_timeout"] > 0:
        raise StorageOpsError("command_timeout must be more than 0 seconds")
    return Host(Deadline(params["deadline"] - UNDO_SECONDS), params["command_timeout"])


def residual_options(params: dict[str, Any]) -> Options:
    """Options of ResidualPaths, checked. Modules that only report lack the risks, and get their defaults."""
    for name, least in (("observations", 1), ("observation_seconds", 0), ("probe_timeout", 0.1), ("max_repairs", 0)):
        if not params.get(name, least) >= least:  # not a number is neither
            raise StorageOpsError(f"{name} is {params[name]:g}; give at least {least:g}")
    empty = [name for name in ("maps", "wwids") if any(not item.strip() for item in params[name])]
    if empty:
        raise StorageOpsError(f"{empty[0]} has an empty name; leave the option out to look at everything")
    # An audit repairs nothing, so it has no limit to stay under.
    given = {"max_repairs": 1_000_000, **{name: params[name] for name in Options.__dataclass_fields__ if name in params}}
    wwids = tuple(_spelled(wwid.strip()) for wwid in params["wwids"])
    return Options(**{**given, "maps": tuple(name.strip() for name in params["maps"]), "wwids": wwids})


def _spelled(wwid: str) -> str:
    """A WWID as multipath spells it: those that are a number (NAA, EUI-64) in small letters."""
    return wwid.lower() if wwid[:1] in ("2", "3") else wwid
