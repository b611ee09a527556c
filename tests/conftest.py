# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of all tests. The oldest Python that a node may have runs some of them, without the lab."""

from __future__ import annotations

from hypothesis import settings

# Property tests are about what comes out, not about how busy the machine is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
