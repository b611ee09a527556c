# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a scenario on the kernel of this machine, as process 1 of PID and mount namespaces of its
own: ``python -m MODULE SCENARIO`` prints what became of it as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def become(module: str, scenario: str) -> Any:
    """What became of a scenario of a module of this folder."""
    command = ["unshare", "-mpf", "--mount-proc", sys.executable, "-m", module, scenario]
    # ansible-test finds collections by a hook, which another process does not have.
    found = Path(__file__).parents[6]
    places = [str(found), *filter(None, [os.environ.get("PYTHONPATH")])]
    for _attempt in range(50):
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        )
        # Another program was quicker to mount something.
        if run.returncode != os.EX_TEMPFAIL:
            break
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
