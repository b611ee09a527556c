# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On this machine: keep what Python compiles of Ansible's modules, as nodes do (lab_bytecode.py).

Every Python that has this folder in PYTHONPATH loads this. ``LAB_BYTECODE``: where it is kept.
"""

from __future__ import annotations

import os

if "LAB_BYTECODE" in os.environ:
    import lab_bytecode  # type: ignore[import-untyped]

    lab_bytecode.FOLDER = os.environ["LAB_BYTECODE"]
