# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Where the credentials of a volume are, and how none of them gets into a result.

Pure: no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import (
    untrusted,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes.records import (
    BoundClaim,
    CsiVolume,
    SecretReference,
)

# external-provisioner reads these parameters of a StorageClass (pkg/controller/controller.go:
# nodeStageSecretParams, nodePublishSecretParams).
_STAGE = "csi.storage.k8s.io/node-stage-secret-"
_PUBLISH = "csi.storage.k8s.io/node-publish-secret-"
# What it replaces in them (resolveTemplate).
_TEMPLATE = re.compile(r"\$\{(?P<name>[^}]*)\}")

# Some drivers take credentials in attributes and parameters, which every reader of
# PersistentVolumes and StorageClasses can see; the result must not spread them.
_SECRET_WORDS = r"secret|password|passwd|token|credential|access-?_?key|akid|aksecret"
_SECRET_KEY = re.compile(_SECRET_WORDS, re.IGNORECASE)
# A password may contain slashes and @.
_USER_INFO = re.compile(r"(?<=://)[^\s'\"]*@")
# Within a line of options: key=value, or --key value.
_SECRET_OPTION = re.compile(
    rf"((?:[\w.-]*(?:{_SECRET_WORDS})[\w.-]*=)"
    rf"|(?:(?<!\S)-[\w.-]*(?:{_SECRET_WORDS})[\w.-]*\s+(?!-)))"
    r"('[^']*'|\"[^\"]*\"|[^\s,]+)",
    re.IGNORECASE,
)
_HIDDEN = "(hidden)"
# The name of a Secret is not secret.
_REFERENCE = re.compile(r"^csi\.storage\.k8s\.io/|secret-?(name|namespace|ref)", re.IGNORECASE)


def secret_of(
    volume: CsiVolume, claim: BoundClaim, parameters: Mapping[str, str]
) -> tuple[SecretReference | None, str]:
    """Where the credentials of a volume are, and why that is unknown.

    Both are empty for a volume without credentials.
    """
    if volume.secret:
        return volume.secret, ""
    for prefix in (_STAGE, _PUBLISH):
        name, namespace = parameters.get(f"{prefix}name"), parameters.get(f"{prefix}namespace")
        if name and namespace:
            return _resolved(volume, claim, namespace, name)
        if name or namespace:
            return (
                None,
                f"StorageClass {volume.storage_class} has only one of {prefix}name and "
                f"{prefix}namespace",
            )
    return None, ""


def _resolved(
    volume: CsiVolume, claim: BoundClaim, namespace: str, name: str
) -> tuple[SecretReference | None, str]:
    """The Secret that a StorageClass names for a claim."""
    # The namespace may depend on the volume's name and the claim's namespace only, so that no claim
    # can ask for a Secret of another namespace (getSecretReference of external-provisioner).
    values = {"pv.name": volume.name, "pvc.namespace": claim.namespace}
    spelled = _filled(namespace, values)
    values["pvc.name"] = claim.name
    values.update({f"pvc.annotations['{key}']": value for key, value in claim.annotations.items()})
    found = SecretReference(spelled, _filled(name, values))
    named = f"StorageClass {volume.storage_class} names the Secret {namespace}/{name}"
    if "" in found:
        return None, f"{named}, which has a variable that this claim does not set"
    # The owner of the claim writes its annotations.
    if not all(untrusted.is_name(part) for part in found):
        return None, f"{named}, which is not a valid name for this claim"
    return found, ""


def _filled(template: str, values: Mapping[str, str]) -> str:
    """A template with its values; empty if one of its variables is unknown."""
    names = [match["name"] for match in _TEMPLATE.finditer(template)]
    if any(name not in values for name in names):
        return ""
    return _TEMPLATE.sub(lambda match: values[match["name"]], template)


def without_secrets(keys: Mapping[str, str]) -> dict[str, str]:
    """Attributes or parameters without the credentials that some drivers want there."""
    return {
        key: _HIDDEN if _SECRET_KEY.search(key) and not _REFERENCE.search(key) else masked(value)
        for key, value in keys.items()
    }


def masked(text: str) -> str:
    """Text without the credentials in addresses and options.

    It rather hides too much than too little.
    """
    return _SECRET_OPTION.sub(rf"\1{_HIDDEN}", _USER_INFO.sub(f"{_HIDDEN}@", text))
