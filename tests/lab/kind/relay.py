# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Listens at a port of loopback here, and leads to the same port of loopback in another process's
network namespace: relay.py PID PORT. With a third argument (relay.py PID PORT out) it is the other
way round, and listens at all addresses there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys

# setns(2)
CLONE_NEWNET = 0x40000000
CHUNK = 1 << 16


async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """All that comes, until its end."""
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
    with contextlib.suppress(OSError):
        target.write_eof()


async def serve(listening: socket.socket, port: int) -> None:
    """One connection there for each one here."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            there, to = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(to):
                await asyncio.gather(carry(reader, to), carry(there, writer))

    server = await asyncio.start_server(connected, sock=listening)
    await server.serve_forever()


def enter(handle: int) -> None:
    """Go to another network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(handle)


def main() -> None:
    """Listen on one side first, then go to the other: a socket stays where it was made."""
    pid, port, *out = sys.argv[1:]
    here, there = (os.open(f"/proc/{one}/ns/net", os.O_RDONLY) for one in ("self", pid))
    if out:
        enter(there)
    listening = socket.create_server(("" if out else "127.0.0.1", int(port)))
    enter(here if out else there)
    asyncio.run(serve(listening, int(port)))


if __name__ == "__main__":
    main()
