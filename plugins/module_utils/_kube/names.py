# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names that old controller managers confuse (STOR-12). Pure: no I/O here.

Before Kubernetes 1.24 the CSI attacher took any ``DRIVER^HANDLE`` that begins with ``csi-`` and is
68 bytes long (the length of ``csi-`` and a SHA-256 in hexadecimal) for the name of a
VolumeAttachment. It deleted an object of that name, found none, called the volume detached, and the
real VolumeAttachment stayed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .._core.errors import BadOption

COLLISION = 68
# What a longer prefix is filled up with, so that an earlier answer can be recognised.
# Any character of a DNS label would do.
FILLER = "x"

# A DNS label (RFC 1123, section 2.1), in lower case as Kubernetes requires it.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# From its first digit: a row of digits that is not at the end takes quadratic time otherwise.
_NUMBER = re.compile(r"(?<![0-9])[0-9]+\Z")
# Minor release of Kubernetes 1 -> first patch release that has the fix, pull request 107025 of
# 1.24, by the dates of its cherry picks 111952 (1.23) and 111953 (1.22). Later ones have it from
# their start.
_FIXED = {22: 14, 23: 11, 24: 0}


def length(driver: str, handle: str) -> int:
    """Bytes of what the controller manager calls the volume; Go counts bytes, not characters."""
    return len(f"{driver}^{handle}".encode())


def prone(driver: str) -> bool:
    """Volumes of this driver can be taken for a VolumeAttachment."""
    return driver.startswith("csi-")


def collides(driver: str, handle: str) -> bool:
    """An affected controller manager will never detach this volume."""
    return prone(driver) and length(driver, handle) == COLLISION


def grows_into(driver: str, handle: str, digits: int = 3) -> bool:
    """The number at the end of the handle needs at most ``digits`` more digits to make a volume
    that collides.
    """
    return (
        prone(driver)
        and bool(_NUMBER.search(handle))
        and 0 < COLLISION - length(driver, handle) <= digits
    )


def affected(version: tuple[int, int, int]) -> str:
    """Whether a cluster with an API server of this version confuses names: "yes", "no" or
    "unknown".

    The controller manager does it, and may be a minor release older than the API server, whose
    version this is.
    """
    major, minor, patch = version
    if (major, minor) >= (1, 25):
        return "no"
    fixed = _FIXED.get(minor)
    return "unknown" if fixed is not None and patch >= fixed else "yes"


def safe_prefix(driver: str, handles: Sequence[str], prefix: str) -> str:
    """The shortest volume name prefix that begins with ``prefix`` and keeps every volume of the
    driver longer than a collision.

    Handles are compared at their shortest: a number at their end has one digit. A handle that was
    made before an earlier answer was put in place counts as if it had been made with ``prefix``.
    """
    if not _LABEL.fullmatch(prefix):
        raise BadOption(
            f"the prefix {prefix!r} is not a DNS label (small "
            "letters, digits and dashes, at most 63)"
        )
    if not prone(driver):
        return prefix
    if not handles:
        raise BadOption(
            f"no volume handle of {driver} was given; give one that is as short as they get"
        )
    shortest = min(length(driver, _NUMBER.sub("0", _as_if(handle, prefix))) for handle in handles)
    return prefix + FILLER * max(0, COLLISION + 1 - shortest)


def _as_if(handle: str, prefix: str) -> str:
    """The handle as ``prefix`` would have made it."""
    if prefix in handle:
        return handle
    before = prefix.rstrip(FILLER)
    if before and before in handle:
        return handle.replace(before, prefix, 1)
    raise BadOption(
        f"the handle {handle!r} does not contain the prefix {prefix!r}, so a longer prefix does "
        "not make it longer"
    )
