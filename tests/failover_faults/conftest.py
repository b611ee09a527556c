# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests in this folder lose a node of a control plane, and mostly of a Ceph cluster too."""

from __future__ import annotations

from support.csi_addons import addons
from support.fixtures import (
    ceph,
    failover_1_20,
    failover_current,
    plane_failover_1_20,
    plane_failover_current,
    storage,
)

__all__ = [
    "addons",
    "ceph",
    "failover_1_20",
    "failover_current",
    "plane_failover_1_20",
    "plane_failover_current",
    "storage",
]
