# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that node modules share, and the Host that they describe.

An audit imports only this before it knows which controls were asked for: the parts of one control
do not cost the others anything.
"""

from __future__ import annotations

from typing import Any

from .._core.argspec import POSITIVE, ArgumentSpec, check_numbers
from .._core.bounded import Deadline
from .host import UNDO_SECONDS, Host
from .kubelet import ROOT

__all__ = [
    "BOUNDS",
    "ISCSI_USE",
    "KUBELET",
    "NOFILE",
    "PEERS",
    "PUBLISH",
    "REFUSAL",
    "RESIDUAL",
    "SHARES",
    "ArgumentSpec",
    "make_host",
]

RESIDUAL = ArgumentSpec(
    {
        "maps": {"type": "list", "elements": "str", "default": []},
        "wwids": {"type": "list", "elements": "str", "default": []},
        "vendor": {"type": "str", "default": ""},
        "product": {"type": "str", "default": ""},
        # One look may fall between two states of a path; residual is only what is the same in all.
        "observations": {"type": "int", "default": 3},
        # Longer than one round of multipathd's checkers, which takes up to 20 s
        # (multipath.DEFAULT_CHECKER_INTERVAL).
        "observation_seconds": {"type": "float", "default": 25.0},
        "probe_timeout": {"type": "float", "default": 5.0},
    }
)
BOUNDS = ArgumentSpec(
    {
        "command_timeout": {"type": "float", "default": 30.0},
        "deadline": {"type": "float", "default": 300.0},
    }
)
REFUSAL = ArgumentSpec({"strict": {"type": "bool", "default": False}})
KUBELET = ArgumentSpec({"kubelet_root": {"type": "str", "default": ROOT}})
SHARES = ArgumentSpec({"shares": {"type": "list", "elements": "str", "default": []}})
# fs.nr_open of the kernel (fs/file.c sysctl_nr_open), before systemd 240 raises it (its NEWS).
NOFILE = ArgumentSpec({"limit_nofile_max": {"type": "int", "default": 1048576}})
PUBLISH = ArgumentSpec({"publish_from": {"type": "dict", "default": {}}})
ISCSI_USE = ArgumentSpec({"uses_iscsi": {"type": "dict", "default": {}}})
PEERS = ArgumentSpec(
    {
        "peer_initiator_names": {"type": "dict", "default": {}},
        "peer_boot_ids": {"type": "dict", "default": {}},
    }
)


def make_host(params: dict[str, Any]) -> Host:
    """The node, with the user's bounds. Raises BadOption."""
    check_numbers(params, {"deadline": 2 * UNDO_SECONDS, "command_timeout": POSITIVE})
    # What a failed action leaves is taken back in the time that is kept back here.
    return Host(Deadline(params["deadline"] - UNDO_SECONDS), params["command_timeout"])
