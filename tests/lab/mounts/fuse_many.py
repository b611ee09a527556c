# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One process that serves many FUSE mounts of empty folders, each counted, some of them stuck:
``fuse_many.py FOLDER STUCK POINT...``.

It speaks the kernel's own protocol (linux/fuse.h), so that a mount costs no process. The last STUCK
answer statvfs, never a listing. FOLDER/counts has, for each mount point, how often it was asked for
what since the start; SIGUSR1 makes all of them answer from then on.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import struct
import sys
import time
from collections import Counter

NAMES = {
    3: "getattr",
    14: "open",
    17: "statfs",
    26: "init",
    27: "opendir",
    28: "readdir",
    29: "releasedir",
}
FORGET, GETATTR, STATFS, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = (
    2,
    3,
    17,
    26,
    27,
    28,
    29,
    36,
    42,
)
HEADER = struct.Struct("<IIQQIIII")
NOSUID_NODEV = 6


class Server:
    """One mount."""

    def __init__(self, point: str, stuck: bool) -> None:
        self.point, self.stuck = point, stuck
        self.asked: Counter[str] = Counter()
        self.owed: list[int] = []
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        library = ctypes.CDLL(None, use_errno=True)
        if library.mount(
            b"lab", point.encode(), b"fuse.lab", ctypes.c_ulong(NOSUID_NODEV), options
        ):
            raise OSError(ctypes.get_errno(), f"mount {point}")

    def serve(self) -> None:
        """Answer one request."""
        request = os.read(self.fd, 1 << 17)
        _length, opcode, unique, _node, _uid, _gid, _pid, _padding = HEADER.unpack_from(request)
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        self.asked[NAMES.get(opcode, str(opcode))] += 1
        if self.stuck and opcode in (OPENDIR, READDIR):
            self.owed.append(unique)
            return
        attributes = struct.pack(
            "<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0
        )
        answers = {
            INIT: struct.pack(
                "<IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 10, 65536, 1, 32, 0, 0, *([0] * 7)
            ),
            GETATTR: struct.pack("<QII", 0, 0, 0) + attributes,
            STATFS: struct.pack("<QQQQQIIII6I", 1, 1, 1, 1, 1, 4096, 255, 4096, 0, *([0] * 6)),
            OPENDIR: struct.pack("<QII", 0, 0, 0),
            READDIR: b"",
            RELEASEDIR: b"",
        }
        self.answer(unique, answers.get(opcode))

    def answer(self, unique: int, body: bytes | None) -> None:
        """What there is, or that there is no such thing."""
        error = -errno.ENOENT if body is None else 0
        body = body or b""
        os.write(self.fd, struct.pack("<IiQ", 16 + len(body), error, unique) + body)

    def free(self) -> None:
        """Answer what was owed, and all that comes."""
        self.stuck = False
        for unique in self.owed:
            self.answer(unique, struct.pack("<QII", 0, 0, 0))
        self.owed.clear()


def main(folder: str, stuck: int, points: list[str]) -> None:
    """Mount, and serve until killed."""
    servers = {
        server.fd: server
        for server in [
            Server(point, index >= len(points) - stuck) for index, point in enumerate(points)
        ]
    }
    poller = select.poll()
    for fd in servers:
        poller.register(fd, select.POLLIN)

    def free(_number: int, _frame: object) -> None:
        for server in servers.values():
            server.free()

    signal.signal(signal.SIGUSR1, free)
    with open(f"{folder}/pid", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    written = 0.0
    while True:
        for fd, event in poller.poll(100):
            try:
                if event & select.POLLIN:
                    servers[fd].serve()
                elif event:
                    poller.unregister(fd)
            except OSError as error:
                # Unmounted, or aborted.
                if error.errno == errno.ENODEV:
                    poller.unregister(fd)
        if time.monotonic() - written > 0.2:
            with open(f"{folder}/counts.new", "w", encoding="ascii") as file:
                json.dump({server.point: dict(server.asked) for server in servers.values()}, file)
            os.rename(f"{folder}/counts.new", f"{folder}/counts")
            written = time.monotonic()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
