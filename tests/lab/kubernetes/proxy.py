# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A proxy in front of an API server that misbehaves on request, and remembers what it was asked."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from .controlplane import ControlPlane

DEADLINE = 120.0
PIECE = 65536
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server")


@dataclass
class Request:
    """One request that came in; status 0 is not answered, or not in full."""

    method: str
    path: str
    agent: str
    status: int = 0


@dataclass
class Rule:
    """What happens to some of the requests. Without any action a rule only counts."""

    method: str
    path: re.Pattern[str]
    # From the first-th match on, so many times; 0 is without end.
    first: int = 1
    times: int = 0
    # Answered with this instead of being passed on.
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    # The connection is reset; nothing is passed on.
    reset: bool = False
    # Passed on, but only this share of the answer comes back before the connection ends.
    cut: float = 1.0
    # The answer is passed on, but after its first piece the proxy reads nothing of it for so many
    # seconds, and takes no more of it from the server than it must: a slow client.
    stall: float = 0.0
    # Seconds, and an event, to wait for before it is passed on.
    delay: float = 0.0
    hold: threading.Event | None = None
    # Called before it is passed on, and when the server has answered but the client does not know
    # yet.
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    matched: int = 0

    def applies(self, method: str, path: str) -> bool:
        """Count a match, and tell whether it is one to act on."""
        if self.method not in ("", method) or not self.path.search(path):
            return False
        self.matched += 1
        return self.matched >= self.first and (
            not self.times or self.matched < self.first + self.times
        )


PASS = Rule("", re.compile(""))


def _slow_connection(address: tuple[str, int], timeout: float, source: Any = None) -> socket.socket:
    """A connection over which little arrives that was not read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(timeout)
    made.connect(address)
    return made


class Proxy:
    """Speaks TLS with the API server's own certificate on a port of its own.

    The first rule that applies decides.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.requests: list[Request] = []
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.folder / "pki/server.crt", plane.folder / "pki/server.key")
        self._upstream = ssl.create_default_context(cafile=str(plane.ca))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        # The handshake is the business of the connection's own thread.
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Proxy:
        threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="proxy",
            daemon=True,
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def on(self, method: str, path: str, **action: Any) -> Rule:
        """A rule for requests of this method ("" is any) whose path and query match the regular
        expression; see Rule for the actions.
        """
        rule = Rule(method, re.compile(path), **action)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """No rules, no memory."""
        with self._lock:
            self._rules.clear()
            self.requests.clear()

    def kubeconfig(self, user: str = "admin") -> Path:
        """A kubeconfig file for this user by way of the proxy."""
        return self.plane.kubeconfig(user, self.port)

    def _rule(self, method: str, path: str) -> Rule | None:
        with self._lock:
            # Every rule counts, also behind the one that decides.
            applying = [rule for rule in self._rules if rule.applies(method, path)]
        return applying[0] if applying else None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = DEADLINE
            disable_nagle_algorithm = True

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing on stderr."""

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else None
                self.request_seen = Request(
                    self.command, self.path, self.headers.get("User-Agent", "")
                )
                with proxy._lock:
                    proxy.requests.append(self.request_seen)
                try:
                    self._act(proxy._rule(self.command, self.path), body)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

            def _act(self, rule: Rule | None, body: bytes | None) -> None:
                if rule is None:
                    self._forward(body, None)
                    return
                time.sleep(rule.delay)
                if rule.hold:
                    rule.hold.wait(DEADLINE)
                if rule.before:
                    rule.before()
                if rule.reset:
                    self._reset()
                elif rule.status:
                    self._answer(rule)
                else:
                    self._forward(body, rule)

            def _answer(self, rule: Rule) -> None:
                failure = {
                    "apiVersion": "v1",
                    "kind": "Status",
                    "status": "Failure",
                    "code": rule.status,
                    "message": "said by the lab's proxy",
                }
                data = (
                    rule.body.encode()
                    if isinstance(rule.body, str)
                    else json.dumps(rule.body or failure).encode()
                )
                self.request_seen.status = rule.status
                self.send_response(rule.status)
                for name, value in {
                    "Content-Type": "application/json",
                    **rule.headers,
                    "Content-Length": str(len(data)),
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def _forward(self, body: bytes | None, rule: Rule | None) -> None:
                upstream = http.client.HTTPSConnection(
                    "127.0.0.1", proxy.plane.port(), context=proxy._upstream, timeout=DEADLINE
                )
                if rule and rule.stall:
                    upstream._create_connection = _slow_connection  # type: ignore[attr-defined]
                try:
                    headers = {
                        name: value
                        for name, value in self.headers.items()
                        if name.lower() != "connection"
                    }
                    try:
                        upstream.request(self.command, self.path, body, headers)
                        answer = upstream.getresponse()
                    except (OSError, http.client.HTTPException):
                        # The server is away: the client sees what it would see without a proxy.
                        self._reset()
                        return
                    if rule and rule.after:
                        rule.after()
                    self._pass_back(answer, rule or PASS)
                finally:
                    upstream.close()

            def _pass_back(self, answer: http.client.HTTPResponse, rule: Rule) -> None:
                length = answer.getheader("Content-Length")
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                if length is None:
                    self.send_header("Transfer-Encoding", "chunked")
                else:
                    self.send_header("Content-Length", length)
                self.end_headers()
                if rule.cut < 1:
                    data = answer.read()
                    if part := data[: int(len(data) * rule.cut)]:
                        self._write(part, length is None)
                    self._reset(polite=True)
                    return
                try:
                    self._stream(answer, rule.stall, length is None)
                except (OSError, http.client.HTTPException):
                    # The server has cut it off, and so the client is.
                    self._reset()
                    return
                self.request_seen.status = answer.status

            def _stream(
                self, answer: http.client.HTTPResponse, stall: float, chunked: bool
            ) -> None:
                """The answer as it comes, with a pause after its first piece."""
                while piece := answer.read1(PIECE):
                    self._write(piece, chunked)
                    time.sleep(stall)
                    stall = 0.0
                if chunked:
                    self.wfile.write(b"0\r\n\r\n")

            def _write(self, data: bytes, chunked: bool) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)

            def _reset(self, polite: bool = False) -> None:
                """End the connection by RST, or politely by FIN, but in any case without TLS's
                farewell.
                """
                if not polite:
                    self.connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                os.close(self.connection.detach())
                self.close_connection = True

        return Handler
