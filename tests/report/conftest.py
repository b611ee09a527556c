# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests in this folder look at reports of fleets that do not exist, with Debian's Chromium and
Prometheus.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.common import patient
from lab.runs import temporary
from playwright.sync_api import Browser, expect, sync_playwright

# "sample" is imported from here.
sys.path.insert(0, str(Path(__file__).parent))
CHROMIUM = "/usr/bin/chromium"
expect.set_options(timeout=patient(20) * 1000)


# Not for the session: as long as it is there, no other test of this process can run an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    with temporary("browser"), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=patient(30) * 1000
        )
        yield browser
        browser.close()
