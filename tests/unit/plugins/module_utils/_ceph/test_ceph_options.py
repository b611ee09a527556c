# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a cluster is reached, and as whom."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.options import (
    CONNECTION,
    make_ceph,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)

DEFAULTS: dict[str, Any] = {
    "conf": "",
    "keyring": "",
    "user": "admin",
    "cluster": "ceph",
    "connect_timeout": 5.0,
    "deadline": 60.0,
}
GIVEN: dict[str, Any] = {
    "conf": "/a/b.conf",
    "keyring": "/a/k",
    "cluster": "east",
    "connect_timeout": 2.5,
}


def test_the_whole_command() -> None:
    assert make_ceph(DEFAULTS).argv("ceph", "osd", "dump") == [
        "ceph",
        "--name",
        "client.admin",
        "--connect-timeout",
        "5",
        "osd",
        "dump",
    ]
    given = make_ceph({**DEFAULTS, **GIVEN, "user": " client.ops "})
    where = [
        "--cluster",
        "east",
        "--conf",
        "/a/b.conf",
        "--keyring",
        "/a/k",
        "--name",
        "client.ops",
    ]
    assert given.argv("ceph", "df") == ["ceph", *where, "--connect-timeout", "2.5", "df"]
    assert given.argv("rbd", "ls") == ["rbd", *where, "--client_mount_timeout=2.5", "ls"]
    # An empty answer of a survey is the default.
    assert (
        make_ceph({**DEFAULTS, "user": "", "cluster": " "}).connection
        == make_ceph(DEFAULTS).connection
    )
    assert make_ceph({**DEFAULTS, "cluster": "east"}).connection.conf_path == "/etc/ceph/east.conf"


def test_the_time_it_may_take() -> None:
    assert 69 < make_ceph(DEFAULTS, more_seconds=10).deadline.remaining() <= 70
    endless = [
        {name: float(value)} for name in ("connect_timeout", "deadline") for value in ("nan", "inf")
    ]
    for wrong in (
        {"connect_timeout": 0.0},
        {"connect_timeout": 300.0},
        {"deadline": 5.0},
        *endless,
    ):
        with pytest.raises(StorageOpsError, match="; give 1"):
            make_ceph({**DEFAULTS, **wrong})


def test_the_environment_does_not_choose_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPH_ARGS", "--conf /other.conf")
    make_ceph(DEFAULTS)
    assert "CEPH_ARGS" not in os.environ


def test_the_environment_tells_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As AWX's credential does it: the type that we make sets these variables, and no others."""
    credentials = Path(__file__).resolve().parents[5] / "playbooks/files/awx/credential_types.yml"
    Unsafe.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
    types = yaml.load(credentials.read_text(), Unsafe)["__awx_credential_types"]
    (ceph,) = [each["injectors"]["env"] for each in types if each["name"] == "Storage: Ceph client"]
    told = {"CEPH_CONF": "/run/conf", "CEPH_KEYRING": "/run/keyring", "CEPH_USER": "ops"}
    assert set(ceph) == set(told)
    for name, value in told.items():
        monkeypatch.setenv(name, value)

    def connection(**given: str) -> tuple[str, str, str]:
        params = ArgumentSpecValidator(CONNECTION.options).validate(given).validated_parameters
        found = make_ceph(params).connection
        return found.conf, found.keyring, found.user

    assert connection() == ("/run/conf", "/run/keyring", "ops")
    given = {"conf": "/a/b.conf", "keyring": "/a/k", "user": "client.other"}
    assert connection(**given) == ("/a/b.conf", "/a/k", "other")


class Unsafe(yaml.SafeLoader):
    """YAML with Ansible's tag."""
