# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A FUSE server whose backend's listing has no end, ``fuse_endless.py POINT``: as soon as
/run/endless is there it keeps page after page, as s3fs does, and never answers.

It stops at 300 MB, so that a test without a limit turns red and the node survives.
"""

from __future__ import annotations

import os
import stat
import sys

import fusepy  # type: ignore[import-not-found]

PAGE, PAGES = 1 << 20, 300


class Endless(fusepy.Operations):  # type: ignore[misc]
    """One folder."""

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        """A folder, and an empty file in it."""
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path != "/file":
            raise fusepy.FuseOSError(2)
        return {"st_mode": stat.S_IFREG | 0o644, "st_nlink": 1}

    def readdir(self, path: str, fh: int) -> list[str]:
        """Read the whole listing first."""
        if os.path.exists("/run/endless"):
            pages = [b"x" * PAGE for _page in range(PAGES)]
            return [".", "..", f"{len(pages)}-pages-were-kept"]
        return [".", "..", "file"]

    def statfs(self, path: str) -> dict[str, int]:
        """Known without asking anybody."""
        return {"f_bsize": 4096, "f_blocks": 1}


if __name__ == "__main__":
    fusepy.FUSE(
        Endless(), sys.argv[1], foreground=True, fsname="endless", subtype="lab", allow_other=True
    )
