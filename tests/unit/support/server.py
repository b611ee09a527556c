# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real HTTP server that misbehaves as told, one answer after the other."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable

Answer = Callable[[BaseHTTPRequestHandler], None]
# Seconds. Longer than any client here stays.
LONG = 60.0


class Server(ThreadingHTTPServer):
    """``answers`` are given in order, the last one for ever; ``requests`` is what was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Answer] = []
        self.requests: list[str] = []
        self.bodies: list[Any] = []
        self.headers: list[list[tuple[str, str]]] = []
        self.connections = 0
        # A connection was closed.
        self.closed = threading.Event()
        # A client was still there when the server had said nothing, or no end, for long.
        self.outlasted = False
        # Seconds that its clock is ahead.
        self.ahead = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def get_request(self) -> Any:
        self.connections += 1
        return super().get_request()

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.closed.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is what is tested here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"{self.command} {self.path}")
        self.server.bodies.append(json.loads(body) if body else None)
        self.server.headers.append(self.headers.items())
        (self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0])(
            self
        )

    do_GET = do_POST = do_PATCH = do_DELETE = do_CONNECT = _answer

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(time.time() + self.server.ahead)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def serve() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def says(value: Any, status: int = 200, kind: str = "application/json", **headers: str) -> Answer:
    """A whole answer."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        handler.send_response(status)
        for name, text in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            **headers,
        }.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def refuses(status: int, message: str = "no", causes: Any = (), **headers: str) -> Answer:
    """A Status object."""
    reason = {404: "NotFound", 409: "Conflict"}.get(status, "")
    return says(
        {
            "kind": "Status",
            "message": message,
            "reason": reason,
            "details": {"name": "csi-1", "causes": list(causes)},
        },
        status,
        **headers,
    )


def lists(*names: str, token: str = "") -> Answer:
    """A page of objects of these names."""
    items = [{"metadata": {"name": name}} for name in names]
    return says(
        {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "7", "continue": token},
            "items": items,
        }
    )


def cut(names: list[str], chunked: bool) -> Answer:
    """The same page, without its end."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = json.dumps(
            {"kind": "PodList", "items": [{"metadata": {"name": name}} for name in names]}
        ).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked") if chunked else handler.send_header(
            "Content-Length", str(len(body))
        )
        handler.end_headers()
        half = body[: len(body) // 2]
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(half), half) if chunked else half)
        handler.close_connection = True

    return answer


def resets(handler: BaseHTTPRequestHandler) -> None:
    """The connection breaks instead of an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def drips(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for ever."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    end = time.monotonic() + LONG
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            handler.wfile.write(b" ")
            time.sleep(0.05)
        handler.server.outlasted = True  # type: ignore[attr-defined]


def is_silent(handler: BaseHTTPRequestHandler) -> None:
    """No answer; in the end the client goes."""
    handler.connection.settimeout(LONG)
    try:
        with contextlib.suppress(ConnectionError):
            handler.connection.recv(1)
    except socket.timeout:
        handler.server.outlasted = True  # type: ignore[attr-defined]
    handler.close_connection = True
