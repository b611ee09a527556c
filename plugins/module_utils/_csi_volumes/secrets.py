# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the credentials of a volume are, and how none of them gets into a result.

Pure: no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .._core import untrusted
from .records import BoundClaim, CsiVolume, SecretReference

# external-provisioner reads these parameters of a StorageClass (pkg/controller/controller.go:
# nodeStageSecretParams, nodePublishSecretParams).
_STAGE = "csi.storage.k8s.io/node-stage-secret-"
_PUBLISH = "csi.storage.k8s.io/node-publish-secret-"
# What it replaces in them (resolveTemplate).
_TEMPLATE = re.compile(r"\$\{(?P<name>[^}]*)\}")

# Some drivers take credentials in attributes and parameters, which every reader of
# PersistentVolumes and StorageClasses can see; the result must not spread them. What may be one is
# hidden besides what surely is (untrusted.is_secret).
_SECRET_KEY = re.compile(
    r"secret|pass|pwd|token|credential|(access|account|private)[-_]?key|akid|aksecret",
    re.IGNORECASE | re.ASCII,
)
# Tenants write some of these texts. So a text is taken apart into words first, and each word is
# looked at once: a pattern that looks for a secret word anywhere within a name takes cubic time.
_ADDRESS = re.compile(r"[^\s'\"]+", re.ASCII)
_NAME = re.compile(r"(?<![\w.-])[\w.-]+", re.ASCII)
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s,]+", re.ASCII)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"", re.ASCII)
_BLANKS = re.compile(r"\s+(?!-)", re.UNICODE)
# As options, INI, YAML and JSON have it: the parameter configData of csi-driver-rclone is a whole
# configuration of rclone.
_ASSIGNS = re.compile(r"[\"']?\s*[=:]\s*", re.UNICODE)
_HIDDEN = untrusted.HIDDEN
# The name of a Secret is not secret.
_REFERENCE = re.compile(
    r"^csi\.storage\.k8s\.io/|secret-?(name|namespace|ref)", re.IGNORECASE | re.ASCII
)


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
    # Nor the annotations: their owner may have changed them since the volume was provisioned.
    found = SecretReference(spelled, _filled(name, values))
    named = f"StorageClass {volume.storage_class} names the Secret {namespace}/{name}"
    if "" in found:
        return None, (
            f"{named}, which has a variable that only the provisioner may use, and the "
            "PersistentVolume names no Secret"
        )
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
        key: _HIDDEN if _may_be_secret(key, value) and not _REFERENCE.search(key) else masked(value)
        for key, value in keys.items()
    }


def _may_be_secret(name: str, value: str) -> bool:
    return bool(_SECRET_KEY.search(name)) or untrusted.is_secret(name, value)


def masked(text: str) -> str:
    """Text without the credentials in addresses and options.

    It rather hides too much than too little, and all of a text that no command could have.
    """
    if len(text) > untrusted.MAX_WORD:
        return f"{_HIDDEN[:-1]}, {len(text)} characters)"
    text = _ADDRESS.sub(_without_user, text)
    # By the place of a closing quote, that of its opening one.
    quotes = {match.end() - 1: match.start() for match in _QUOTED.finditer(text)}
    found: list[str] = []
    end = 0
    for name in _NAME.finditer(text):
        # What is within a value that was hidden is no name.
        if name.start() < end:
            continue
        at = _value_at(text, name)
        value = _VALUE.match(text, at) if at else None
        if value and _may_be_secret(name[0].lstrip("-"), value[0]):
            found += [text[end : value.start()], _HIDDEN]
            end = value.end()
            # A quote that was opened before the value is not of it: without its end, nobody could
            # read the other options.
            if quotes.get(end - 1, end) < value.start():
                end -= 1
    return "".join([*found, text[end:]])


def _without_user(address: re.Match[str]) -> str:
    """An address without what is before its host. A password may contain slashes and @."""
    scheme, _separator, rest = address[0].partition("://")
    _user, at, host = rest.rpartition("@")
    return f"{scheme}://{_HIDDEN}@{host}" if at else address[0]


def _value_at(text: str, name: re.Match[str]) -> int:
    """Where the value of a name begins, given as key=value, key: value or --key value; 0 if it has
    none.
    """
    assigns = _ASSIGNS.match(text, name.end())
    if assigns:
        return assigns.end()
    blanks = _BLANKS.match(text, name.end())
    begins = not name.start() or text[name.start() - 1].isspace()
    return blanks.end() if blanks and begins and name[0].startswith("-") else 0
