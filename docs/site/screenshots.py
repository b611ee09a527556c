# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pictures of the report, of a fleet that does not exist, for the guide: python -P
docs/site/screenshots.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.runs import temporary
from playwright.sync_api import Page, ViewportSize, sync_playwright
from report import pixels, sample

WIDE = ViewportSize(width=1280, height=860)
NARROW = ViewportSize(width=390, height=844)
PAPER = ViewportSize(width=794, height=1123)


def take(page: Page, address: str, folder: Path) -> None:
    """One picture of each way to look at it."""

    def show(part: str = "") -> None:
        # A new address that differs only behind the # would not be loaded again.
        page.goto("about:blank")
        page.goto(address + part)
        page.wait_for_selector("html[data-ready=true]")

    def shoot(name: str, *texts: str, dark: bool = False) -> None:
        picture = page.screenshot(path=folder / f"{name}.png")
        unseen = [
            text
            for text in texts
            if not pixels.legible(
                page, picture, page.get_by_text(text).locator("visible=true").first
            )
        ]
        if unseen or pixels.dark(page, picture) != dark:
            sys.exit(f"{name}.png does not show what it should: {unseen or 'its colours'}")

    show()
    shoot("light", "open findings (", "By control", "Trend", "Not assessed")
    page.emulate_media(color_scheme="dark")
    shoot("dark", "open findings (", "By control", "Trend", "Not assessed", dark=True)
    page.emulate_media(color_scheme="light")
    show("#control=STOR-01&status=open")
    page.locator("#list button.row").first.click()
    page.locator("#findings").evaluate("section => section.scrollIntoView({behavior: 'instant'})")
    shoot("finding", "Repair: this shows what would be done", "Planned actions")
    page.set_viewport_size(NARROW)
    show()
    shoot("narrow", "open findings (")
    page.emulate_media(color_scheme="dark")
    shoot("narrow_dark", "open findings (", dark=True)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    shoot("print", "open findings (", "By control")


def main() -> None:
    """Make a report, open it in a browser, and take the pictures.

    Whatever the page complains of is an error.
    """
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    complaints: list[str] = []
    with temporary("pictures") as work, sync_playwright() as playwright:
        sample.write(work, hosts=400, findings=250, seed=1, runs=30)
        # Chromium has no sandbox as root, as which CI runs.
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=WIDE, device_scale_factor=1)
        page.on(
            "console",
            lambda message: (
                complaints.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        take(page, (work / "report.html").as_uri(), folder)
        browser.close()
    if complaints:
        sys.exit("the report complains: " + "; ".join(complaints))


if __name__ == "__main__":
    main()
