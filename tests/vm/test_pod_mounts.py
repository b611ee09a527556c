# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods' mounts: one that is wrong, and one that turned read-only. More of both is in tests/faults."""

from __future__ import annotations

from faults.test_pod_mounts import mounts, test_wrong_source_four_ways, volumes
from faults.test_pod_mounts_readonly import test_error_below_ext4_and_xfs

__all__ = ["mounts", "test_error_below_ext4_and_xfs", "test_wrong_source_four_ways", "volumes"]
