# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that Ceph modules share, and what they are turned into."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.basic import env_fallback

from .._core.argspec import ArgumentSpec, check_numbers
from .._core.bounded import Deadline
from .cli import Ceph, Connection

__all__ = ["CONNECTION", "ArgumentSpec", "make_ceph"]

CONNECTION = ArgumentSpec(
    {
        # The environment is how a credential of AWX tells it. The first two are Ceph's own
        # variables (doc/rados/api/libcephsqlite.rst; src/common/config.cc, get_conffile_paths and
        # parse_env), for a user Ceph has none.
        "conf": {"type": "path", "default": "", "fallback": (env_fallback, ["CEPH_CONF"])},
        "keyring": {"type": "path", "default": "", "fallback": (env_fallback, ["CEPH_KEYRING"])},
        "user": {"type": "str", "default": "admin", "fallback": (env_fallback, ["CEPH_USER"])},
        "cluster": {"type": "str", "default": "ceph"},
        "connect_timeout": {"type": "float", "default": 5.0},
        "deadline": {"type": "float", "default": 60.0},
    }
)


def make_ceph(params: dict[str, Any], more_seconds: float = 0.0) -> Ceph:
    """The cluster, with the bounds the user gave; ``more_seconds``: what the module was told to
    wait besides.
    """
    # Ceph's tools name a user by its type too (client.admin), and --name takes that; users give
    # either.
    check_numbers(params, {"connect_timeout": (1, 60), "deadline": (10, 3600)})
    user = params["user"].strip()
    user = user[len("client.") :] if user.startswith("client.") else user
    # It would overrule the options, and another cluster would answer.
    os.environ.pop("CEPH_ARGS", None)
    connection = Connection(
        params["conf"],
        params["keyring"],
        user or "admin",
        params["cluster"].strip() or "ceph",
        params["connect_timeout"],
    )
    return Ceph(connection, Deadline(params["deadline"] + more_seconds))
