# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A callback plugin that notes when each task has ended."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: task_times
type: aggregate
short_description: Note when each task has ended
description: For the benchmarks only.
"""


class CallbackModule(CallbackBase):
    """A line for each task in the file TASK_TIMES: CLOCK_MONOTONIC, which all processes share, its
    action and its name.
    """

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_times"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_ok(self, result: Any) -> None:
        """It has ended, and did not fail."""
        task = result._task
        with open(os.environ["TASK_TIMES"], "a", encoding="utf-8") as file:
            file.write(f"{time.monotonic()}\t{task.action}\t{task.name}\n")
