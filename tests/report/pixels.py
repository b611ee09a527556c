# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is in a picture of a page: whether a text that the page has can be seen there."""

from __future__ import annotations

import base64

from playwright.sync_api import Locator, Page

COLOURS = """async ([data, x, y, width, height]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes]));
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const wide = Math.min(width, bitmap.width - x), high = Math.min(height, bitmap.height - y);
  const { data: pixels } = context.getImageData(x, y, wide, high);
  const seen = new Map();
  for (let at = 0; at < pixels.length; at += 4) {
    const colour = [...pixels.slice(at, at + 3)].join();
    seen.set(colour, (seen.get(colour) ?? 0) + 1);
  }
  const sorted = [...seen].sort((one, other) => other[1] - one[1]);
  return sorted.map(([colour]) => colour.split(",").map(Number));
}"""


def colours(
    page: Page, picture: bytes, where: tuple[float, float, float, float]
) -> list[tuple[int, int, int]]:
    """The colours of a part of the picture, the most frequent first."""
    return [
        tuple(colour)
        for colour in page.evaluate(COLOURS, [base64.b64encode(picture).decode(), *map(int, where)])
    ]


def legible(page: Page, picture: bytes, locator: Locator) -> bool:
    """There is writing: on one ground, with edges, and somewhere far from the ground in
    brightness.
    """
    box = locator.bounding_box()
    if not box or min(box["x"], box["y"]) < 0 or min(box["width"], box["height"]) < 1:
        return False
    found = colours(page, picture, (box["x"], box["y"], box["width"], box["height"]))
    return len(found) > 3 and max(abs(sum(colour) - sum(found[0])) for colour in found) > 200


def dark(page: Page, picture: bytes) -> bool:
    """What most of the page is painted with."""
    return sum(colours(page, picture, (0, 0, 10_000, 10_000))[0]) < 3 * 128
