# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""tables.py FILE...: no page has a table that was reflowed into a paragraph. Names every line in
which the rule below a table's head does not begin the line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path


def collapsed(text: str) -> Iterator[int]:
    """The lines with a table's rule in their middle."""
    for number, line in enumerate(text.splitlines(), 1):
        if "|---|" in line and not line.lstrip().startswith("|---"):
            yield number


def main() -> int:
    """Entry point."""
    bad = [
        f"{path}:{number}"
        for path in sys.argv[1:]
        for number in collapsed(Path(path).read_text(encoding="utf-8"))
    ]
    for place in bad:
        print(f"{place}: a table was reflowed into a paragraph", file=sys.stderr)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
