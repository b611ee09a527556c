# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests in this folder run ansible-rulebook, with Java, beside a control plane."""

from __future__ import annotations

from support.fixtures import control_plane_current, plane_current

__all__ = ["control_plane_current", "plane_current"]
