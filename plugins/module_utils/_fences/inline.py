# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Storage that a pod names in its own spec. Pure: no I/O here.

It has no PersistentVolume and no VolumeAttachment, so no ledger can name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# What a pod's volume may be without any storage that another node could write to as well, or whose
# claim is judged instead: fields of VolumeSource in k8s.io/api/core/v1 types.go.
_HARMLESS = {
    *(
        "name",
        "emptyDir",
        "configMap",
        "secret",
        "projected",
        "downwardAPI",
        "gitRepo",
        "image",
        "hostPath",
    ),
    *("ephemeral", "persistentVolumeClaim"),
}
# Inline CSI volumes (ephemeral, KEP-596) of these drivers are made on the node for one pod, and
# hold nothing but keys and certificates.
_SECRETS = ("secrets-store.csi.k8s.io", "csi.cert-manager.io", "csi.spiffe.io")


def inline_storage(spec: Mapping[str, Any]) -> Iterator[str]:
    """What of a pod's volumes is storage that has no claim, each as a sentence. ``spec``: the
    pod's, where its tenant may name any number of them.
    """
    for volume in spec.get("volumes") or []:
        for kind, source in volume.items():
            if kind not in _HARMLESS and (source or {}).get("driver") not in _SECRETS:
                driver = (source or {}).get("driver")
                title = " ".join(filter(None, (kind, driver)))
                yield f"the inline {title} volume {volume['name']}"
