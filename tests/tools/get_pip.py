# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in for the get-pip script that ansible-test runs to install pip: starts with the pip that
comes with Python.
"""

from __future__ import annotations

import ensurepip
import os
import sys

# ensurepip switches the configuration of pip off, for the whole process.
environment = dict(os.environ)
ensurepip.bootstrap()
# ansible-test adds options that only the real script knows.
arguments = [
    argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")
]
os.execve(
    sys.executable,
    [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", *arguments],
    environment,
)
