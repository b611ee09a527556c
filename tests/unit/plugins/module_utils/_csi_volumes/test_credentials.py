# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is kept of the Secrets of volumes, which tenants may write."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    MAX_RESULT_CHARACTERS,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import BadOption
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes.credentials import (
    MOST_OF_ONE,
    CsiSecrets,
    secret_references,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Forbidden
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

KEYS = ("accessKeyID", "secretAccessKey")


def secret(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name},
        "data": {key: b64encode(text.encode()).decode() for key, text in data.items()},
    }


def volume(namespace: str, name: str, where: str = "") -> dict[str, Any]:
    return {"namespace": namespace, "secret": {"namespace": where or namespace, "name": name}}


def read(
    cluster: FakeCluster, *volumes: dict[str, Any]
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """What was read, and what was not, by place."""
    secrets = CsiSecrets(cluster, secret_references(volumes), KEYS)
    secrets.plan(secrets.gather())
    facts = secrets.facts()
    assert len(json.dumps(facts)) < MAX_RESULT_CHARACTERS
    return (
        {"/".join(one["metadata"].values()): one["data"] for one in facts["secrets"]},
        {"/".join(one["secret"].values()): one["reason"] for one in facts["unread"]},
    )


def test_nothing_but_the_wanted_keys_is_kept() -> None:
    cluster = FakeCluster(secret("shop", "s3", accessKeyID="me", secretAccessKey="x", other="y"))
    cluster.add({**secret("shop", "none"), "data": None})
    found, unread = read(
        cluster,
        volume("shop", "s3"),
        volume("b", "s3", "shop"),
        volume("shop", "none"),
        {**volume("c", "x"), "secret": {}},
    )
    assert set(found["shop/s3"]) == {"accessKeyID", "secretAccessKey"}
    assert found["shop/none"] == {} and unread == {}
    # Of two volumes with one Secret it is read once.
    assert cluster.requests == [
        "get /api/v1/namespaces/shop/secrets/s3",
        "get /api/v1/namespaces/shop/secrets/none",
    ]


def test_one_that_is_gone_has_no_credentials() -> None:
    assert read(FakeCluster(), volume("shop", "gone")) == ({"shop/gone": {}}, {})


def test_long_secrets_of_a_tenant_take_no_room_of_others() -> None:
    long = {"accessKeyID": "a" * 5_000, "secretAccessKey": "b" * 5_000}
    cluster = FakeCluster(secret("shop", "s3", accessKeyID="me"))
    cluster.add(secret("evil", "longer", accessKeyID="a" * MOST_OF_ONE))
    # The API server counts the values alone, so keys without any are free.
    cluster.add(secret("evil", "keys", **{f"k{number}": "" for number in range(80_000)}))
    names = [f"s{number:0240}" for number in range(450)]
    for name in names:
        cluster.add(secret("evil", name, **long))
    asked = [volume("evil", name) for name in ("longer", "keys", *names)]
    found, unread = read(cluster, *asked, volume("shop", "s3"))
    assert found["shop/s3"] and found["evil/keys"] == {}
    assert "its credentials have more than 16,000" in unread["evil/longer"]
    assert len(unread) > 400 and "all Secrets together" in unread[f"evil/{names[-1]}"]


def test_the_time_of_a_tenants_secrets_is_not_that_of_others() -> None:
    """Each of them takes ten seconds of a deadline of 100."""
    cluster = FakeCluster(secret("shop", "s3", accessKeyID="me"))
    now = [0.0]
    cluster.deadline = type(cluster.deadline)(100.0, lambda: now[0])

    def takes_time(_verb: str, _path: str) -> None:
        now[0] += 10.0

    cluster.before = takes_time
    names = [f"s{number}" for number in range(40)]
    for name in names:
        cluster.add(secret("evil", name, accessKeyID="x"))
    found, unread = read(cluster, *(volume("evil", name) for name in names), volume("shop", "s3"))
    assert "shop/s3" in found and len(unread) > 30
    assert unread["evil/s39"] == "the time was over before it was its turn"
    # What is left of the deadline is for the result.
    assert now[0] < 100.0


def test_one_that_may_not_be_read_leaves_the_others() -> None:
    cluster = FakeCluster(secret("shop", "s3", accessKeyID="me"))

    def refuses(_verb: str, path: str) -> None:
        if "/evil/" in path:
            raise Forbidden("no\nright" + "x" * 1000)

    cluster.before = refuses
    found, unread = read(cluster, volume("evil", "s3"), volume("shop", "s3"))
    assert list(found) == ["shop/s3"]
    assert unread["evil/s3"].startswith("no\\nright") and len(unread["evil/s3"]) < 200


@pytest.mark.parametrize("given", [{"namespace": "a", "secret": "x"}, {"secret": {"name": "x"}}])
def test_what_is_no_volume_of_csi_volume_info(given: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="not what csi_volume_info returns"):
        secret_references([given])
