# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The errors that every part of the collection knows."""

from __future__ import annotations


class StorageOpsError(Exception):
    """What a module could not do, for the operator: the object, the reason, the next step."""


class Refused(StorageOpsError):
    """A value from a tenant, a node or the network that cannot be what it has to be."""
