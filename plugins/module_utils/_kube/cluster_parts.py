# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""All cluster controls (STOR-11 to STOR-17) as the parts of one report, each of which may fail without the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import Audit, Part, StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.audit import VolumeAttachments, make_options
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Cluster, KubeError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.fence_audit import make_audit
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.shared_lists import VOLUME_ATTACHMENTS, SharedLists

CONTROLS = [f"STOR-{number}" for number in range(11, 18)]
_ATTACHMENTS = frozenset(CONTROLS[:5])
_FENCES = frozenset(CONTROLS[5:])


def make_parts(cluster: Cluster, params: Mapping[str, Any]) -> list[Part]:
    """The parts, in the order in which they are read."""
    shared = SharedLists(cluster)
    wanted = frozenset(params["controls"])
    if not wanted:
        raise StorageOpsError("controls is empty, so nothing would be looked at; leave the option out to run all of them")

    def attachments(controls: frozenset[str]) -> Callable[[], Audit[Any]]:
        return lambda: VolumeAttachments(shared, make_options({**params, "controls": sorted(controls)}))

    def fences() -> Audit[Any]:
        if wanted & _ATTACHMENTS:
            # Attachments before everything else: what comes to need one meanwhile is seen. Who needs them is told of an error.
            with contextlib.suppress(KubeError):
                shared.list(VOLUME_ATTACHMENTS, lambda _item: None, cached=True)
        return make_audit(shared, params)

    def blocklist() -> Audit[Any]:
        raise StorageOpsError(f"Ceph's blocklist was not read: {params['ceph_problem']}")

    parts = [
        # First, as its ledgers and the nodes must be of one moment; of what may be wrong with attachments there are two observations.
        Part(_FENCES, fences, cluster.deadline, tells=False),
        Part(
            _ATTACHMENTS,
            attachments(wanted & _ATTACHMENTS),
            cluster.deadline,
            alone=lambda control: attachments(frozenset({control}))(),
        ),
    ]
    return [*parts, *([Part(frozenset({"STOR-17"}), blocklist)] if params["ceph_problem"] else [])]
