# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A callback plugin that ends ansible-playbook with SIGKILL after a task of the collection's has
changed something.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kill_after
type: aggregate
short_description: Kill the run after a task
description: For the tests only.
"""


class CallbackModule(CallbackBase):
    """Waits for a change."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_after"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_ok(self, result: Any) -> None:
        """The first one whose name begins with AMONG and is not in SPARED, a list."""
        task = result._task
        changed = task.action.startswith("storage_ops.runbooks.") and result._result.get("changed")
        meant = task.name.startswith(os.environ["AMONG"])
        if changed and meant and task.name not in json.loads(os.environ["SPARED"]):
            print(f"killed after: {task.name}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
