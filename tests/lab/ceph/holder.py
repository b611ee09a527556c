# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""holder.py write|visit CONF POOL NAMESPACE IMAGE: has an image open until it is ended, and says
what it does, one line each.

``entry ADDRESS:0/NONCE`` first, then ``wrote N`` or ``visit N``, or ``error NAME``. Needs Ceph's
own Python modules, and nothing of ours.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import signal
import sys
import time

import rados  # type: ignore[import-not-found]
import rbd  # type: ignore[import-not-found]

PERIOD = 0.05
# A visit is short, as a look at the image is; the next one comes soon.
VISIT, BETWEEN = 0.2, 0.8
BLOCK = 4096
PART = 1 << 20


def say(*words: object) -> None:
    """One line, that is either there or not."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def name_of(error: Exception) -> str:
    """``ESHUTDOWN`` and the like."""
    return errno.errorcode.get(getattr(error, "errno", 0), type(error).__name__)


def leave(_number: int, _frame: object) -> None:
    """The signal handler."""
    sys.exit(0)


def write(pool: rados.Ioctx, image_name: str, address: str) -> None:
    """Write a block, and the next, whatever becomes of them."""
    with rbd.Image(pool, image_name) as image:
        parts = max(1, image.size() // PART)
        begin = int(re.split("[.:]", address)[-1], 16 if ":" in address else 10) % parts * PART
        number = 1
        while True:
            try:
                image.write(
                    f"{address} {number}\n".encode().ljust(BLOCK, b"\0"),
                    begin + number % (PART // BLOCK) * BLOCK,
                )
            except (rbd.Error, OSError) as exc:
                say("error", name_of(exc))
            else:
                say("wrote", number)
                number += 1
            time.sleep(PERIOD)


def visit(pool: rados.Ioctx, image_name: str) -> None:
    """Open the image for a moment, again and again."""
    for number in itertools.count(1):
        try:
            with rbd.Image(pool, image_name):
                say("visit", number)
                time.sleep(VISIT)
        except (rbd.Error, OSError) as exc:
            say("error", name_of(exc))
        time.sleep(BETWEEN)


def main() -> None:
    """Entry point."""
    mode, conf, pool_name, namespace, image_name = sys.argv[1:]
    # So that the image is closed, and the watch with it.
    signal.signal(signal.SIGTERM, leave)
    cluster = rados.Rados(conffile=conf, name="client.admin")
    cluster.connect(timeout=100)
    pool = cluster.open_ioctx(pool_name)
    pool.set_namespace(namespace)
    entry = cluster.get_addrs()
    address = entry.rsplit(":", 1)[0].strip("[]")
    say("entry", entry)
    if mode == "write":
        write(pool, image_name, address)
    else:
        visit(pool, image_name)


if __name__ == "__main__":
    main()
