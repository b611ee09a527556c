# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Identities that attack: what a kubelet or a tenant may do on a real API server, and no more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lab.common import patient
from lab.kubernetes.controlplane import ControlPlane

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import client
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    make_cluster,
)
from support.cluster import Cluster


@contextlib.contextmanager
def restricted(plane: ControlPlane) -> Iterator[None]:
    """Kubelets may write what they may in a real cluster, and no more."""
    before = plane.apiserver_args
    plane.apiserver_args = (
        "--authorization-mode=Node",
        "--enable-admission-plugins=NodeRestriction",
    )
    plane.restart_apiserver()
    yield
    plane.apiserver_args = before
    plane.restart_apiserver()


def as_kubelet(cluster: Cluster, node: str) -> client.Cluster:
    """What the kubelet of a node may do."""
    return as_user(cluster, f"system:node:{node}", "system:nodes")


def as_user(cluster: Cluster, name: str, *groups: str) -> client.Cluster:
    """What a user of these groups may do."""
    who = {"impersonate_user": name, "impersonate_groups": list(groups)}
    given = {**dict.fromkeys(AUTH.options), "kubeconfig": str(cluster.kubeconfig()), **who}
    return make_cluster({**given, "request_timeout": patient(10), "deadline": patient(120)})
