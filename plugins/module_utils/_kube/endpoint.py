# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the API server is, how to prove who we are, and one kept-alive connection to it.

The standard library's HTTP client is used directly: its socket is at hand, so that every wait is
limited to what the deadline leaves, also for a server that sends one byte now and then. urllib3 2.8
limits only each single wait: with a total of 3 s it waited 30 s for 60 bytes that came one each
half second. It also took 1.6 s to read 180 MB with read1, where this takes 0.2 s.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import select
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Callable
from urllib.parse import SplitResult, unquote, urlsplit

from .._core.bounded import Deadline
from .._core.errors import BadOption

# Bytes to read at once: few calls for a list of 180 MB, and little memory.
_CHUNK = 1 << 18

Headers = Sequence["tuple[str, str]"]

# Up to the last "@", since a password that is not encoded may have a slash or another one.
_LOGIN = re.compile(r"^([a-z][a-z0-9+.-]*://)?.*@", re.IGNORECASE | re.DOTALL)


class NotSent(Exception):
    """No connection, so the server cannot have seen the request. The reason is the cause."""


@dataclass(frozen=True)
class Endpoint:
    """An API server and the credentials for it."""

    url: str
    # A description of where the credentials come from; never the credentials.
    source: str
    # Called for every request, since tokens are renewed: a bound service account token lives an
    # hour.
    credentials: Callable[[], Headers] = tuple
    # None for plain HTTP, as of kubectl proxy.
    tls: ssl.SSLContext | None = None
    # The name in the server's certificate, where it is not the host's.
    server_name: str = ""
    proxy: str = ""
    proxy_headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = _split(self.url, "host", "https://10.0.0.1:6443")
        # By CONNECT (RFC 9110, section 9.3.6), so that the proxy sees neither the request nor the
        # credentials.
        if self.proxy:
            if _split(self.proxy, "proxy", "http://proxy.example.com:3128").scheme != "http":
                raise BadOption(
                    f"the proxy {self.proxy} of {self.url} is not an http:// URL, which is all "
                    "that is supported: give one by the option proxy, or reach the API server "
                    "without it by no_proxy"
                )
            if parts.scheme != "https":
                raise BadOption(
                    f"{self.url} is plain HTTP, for which a proxy is not supported; use no_proxy"
                )


class _Tls(http.client.HTTPSConnection):
    """HTTPS, to a server whose certificate may have another name (tls-server-name)."""

    def __init__(self, host: str, port: int | None, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, context=context)
        self._tls, self._name = context, name

    def connect(self) -> None:
        """Connect, through the proxy if there is one, then shake hands."""
        # That of HTTPSConnection would take the name of the host for that of the certificate.
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


class Answer:
    """The answer to a request: its status and headers, and its body when it is read."""

    def __init__(self, response: http.client.HTTPResponse, wait: Callable[[], None]) -> None:
        self._response, self._wait = response, wait
        self.status = response.status
        # It was read to its end, so the connection can be used for the next request.
        self.whole = False

    def header(self, name: str) -> str:
        """A header's value, or nothing."""
        return self._response.getheader(name) or ""

    def chunks(self) -> Iterator[bytes]:
        """The body, as it comes. A body that is cut short raises OSError or HTTPException."""
        while True:
            self._wait()
            chunk = self._response.read1(_CHUNK)
            if not chunk:
                break
            yield chunk
        # http.client ends a body that is cut short like a whole one, where read1 is used.
        if self._response.length:
            raise http.client.IncompleteRead(b"", self._response.length)
        self._response.close()
        self.whole = not self._response.will_close

    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.chunks())


class Connection:
    """One connection to an endpoint, opened again when it was lost. Nothing here is retried."""

    def __init__(self, endpoint: Endpoint, deadline: Deadline, timeout: float) -> None:
        self.endpoint, self._deadline, self._timeout = endpoint, deadline, timeout
        self._parts = urlsplit(endpoint.url)
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None

    @contextlib.contextmanager
    def request(
        self, method: str, target: str, headers: Headers, body: bytes = b""
    ) -> Iterator[Answer]:
        """Send a request and hand out the answer.

        Raises NotSent, and OSError or HTTPException, also while the answer is read.
        """
        try:
            connection = self._connect()
        except (OSError, http.client.HTTPException) as error:
            raise NotSent(str(error)) from error
        answer = None
        try:
            # Nothing is asked for, so nothing comes compressed (negotiateContentEncoding of
            # k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go).
            connection.putrequest(
                method, self._parts.path.rstrip("/") + target, skip_accept_encoding=True
            )
            for name, value in headers:
                connection.putheader(name, value)
            if body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            self._wait()
            answer = Answer(connection.getresponse(), self._wait)
            yield answer
        finally:
            # The unread rest of an answer would be taken for the next one.
            if answer is None:
                self._reset()
            elif not answer.whole:
                self.close()

    def _reset(self) -> None:
        """Close it so that nothing of a request that was not answered is sent any more."""
        # After a close(2) the kernel goes on sending what it has, for minutes on a network that
        # loses it: a change would come late. Without time to linger it drops it (socket(7),
        # SO_LINGER).
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
        self.close()

    def close(self) -> None:
        """Close it; the next request opens it again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._socket = None

    def _connect(self) -> http.client.HTTPConnection:
        """The connection, open and with nothing to read."""
        if self._connection is not None and self._socket is not None:
            # A server that closed an idle connection has sent a FIN, which reads as data.
            if not select.select([self._socket], [], [], 0)[0]:
                self._wait()
                return self._connection
            self.close()
        connection = self._make()
        # Of connect and of the TLS handshake; _wait limits each read after that.
        connection.timeout = self._seconds()
        connection.connect()
        self._connection, self._socket = connection, connection.sock
        return connection

    def _make(self) -> http.client.HTTPConnection:
        endpoint, parts = self.endpoint, self._parts
        host, port = parts.hostname or "", parts.port
        if endpoint.tls is None:
            return http.client.HTTPConnection(host, port)
        name = endpoint.server_name or host
        if not endpoint.proxy:
            return _Tls(host, port, endpoint.tls, name)
        proxy = urlsplit(endpoint.proxy)
        connection = _Tls(proxy.hostname or "", proxy.port or 80, endpoint.tls, name)
        connection.set_tunnel(host, port or 443, endpoint.proxy_headers)
        return connection

    def _wait(self) -> None:
        """Limit the next wait for the socket to what the deadline leaves."""
        if self._socket is not None:
            self._socket.settimeout(self._seconds())

    def _seconds(self) -> float:
        seconds = self._deadline.cap(self._timeout)
        if not seconds:
            raise TimeoutError("the deadline has passed")
        return seconds


def without_login(url: str) -> str:
    """A URL as it may be shown: without a user and a password in it."""
    return _LOGIN.sub(r"\1", url)


def login_of(url: str) -> tuple[str, str]:
    """User and password in a URL; empty without them."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        return unquote(parts.username or ""), unquote(parts.password or "")
    return "", ""


def _split(url: str, what: str, example: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise BadOption(f"{what} is {url!r}; give a URL such as {example}")
    return parts
