# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests to one API server: raw JSON, bounded retries, one deadline, and errors that say what to
do.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Generic, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlencode

from .._core import untrusted
from .._core.bounded import Deadline
from .._core.errors import StorageOpsError, words
from .._core.turns import TurnOver
from .endpoint import Answer, Connection, Endpoint, Headers, NotSent, without_login
from .objects import CLIENT_RECORD, place_of
from .stream import BrokenList, read_changes, read_list

# Seconds for which a request is tried again. A server that never answered may be the wrong one; one
# that did is being restarted or upgraded.
FIRST_PATIENCE = 15.0
PATIENCE = 120.0
# Seconds before the second try, where the server names none; they double.
FIRST_PAUSE = 0.5
MAX_PAUSE = 5.0
# For this long after an outage a refusal is doubted: a server that starts may not have synced its
# RBAC informers, or not reach its authentication webhook.
DOUBT_SECONDS = 30.0
# How often a list begins again because its continue token expired: etcd compacts after 5 minutes
# (--etcd-compaction-interval of kube-apiserver).
RESTARTS = 3
# Characters of a name (k8s.io/apimachinery/pkg/util/validation, DNS1123SubdomainMaxLength).
_MAX_NAME = 253
# Seconds that a watch lasts. An API server sends a bookmark only every minute, and 2 s before it
# ends a watch, to which its clock for bookmarks adds up to 1.25 s
# (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go, nextBookmarkTime; cacher.go,
# dispatchEvents).
WATCH_SECONDS = 3

# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL
# (X509_STORE_CTX_get_error (3)): the certificate names another host, or another address.
_OTHER_NAME = (62, 64)
# All subclasses of SSLError: ends of a connection, and a certificate.
_OTHER_TLS = (
    ssl.SSLZeroReturnError,
    ssl.SSLWantReadError,
    ssl.SSLWantWriteError,
    ssl.SSLSyscallError,
    ssl.SSLEOFError,
    ssl.SSLCertVerificationError,
)
# client-go retries 429 and 5xx with a Retry-After (rest/with_retry.go); we also where there is
# none, since a restarting server or a load balancer before it sends none.
_RETRIED = (429, 500, 502, 503, 504)
# What rbac-audit.yml allows to get, list or watch. _GIVEN has what other manifests allow;
# everything else is in rbac-repair.yml.
_AUDITED = {
    "configmaps",
    "namespaces",
    "networkfenceclasses",
    "networkfences",
    "csidrivers",
    "csinodes",
    "events",
    "leases",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "storageclasses",
    "volumeattachments",
}
# Exceptions: of the first an audit cannot list, of the second it cannot get a single one.
_NAMED = {"leases"}
_LISTED = {"configmaps", "networkfences", "networkfenceclasses", "pods"}
# The manifest that has a right, by verb and resource ("": any verb).
_GIVEN = {
    ("get", "daemonsets"): "node_pods/node-pods.yml",
    ("create", "networkfences"): "rbac-fence-prepare.yml",
    ("list", "csiaddonsnodes"): "rbac-fence-prepare.yml",
    ("", "networkfences"): "rbac-fence.yml",
    ("", "configmaps"): "rbac-fence.yml",
    # Which of the two is not known: the name of a new Lease is not in the path.
    ("", "leases"): "rbac-repair.yml (or, for a fence, rbac-fence.yml)",
    ("get", "leases"): "rbac-fence.yml",
    ("patch", "leases"): "rbac-fence.yml",
    ("delete", "pods"): "rbac-fence.yml",
    ("list", "horizontalpodautoscalers"): "rbac-repair-scale-down.yml",
    ("patch", "deployments"): "rbac-repair-scale-down.yml",
    ("patch", "statefulsets"): "rbac-repair-scale-down.yml",
}
# What a proxy refused (http/client.py of Python, HTTPConnection._tunnel).
_TUNNEL = re.compile(r"Tunnel connection failed: (\d+)")
_TITLE = re.compile(r"<title[^<>]*>([^<]+)", re.IGNORECASE)
_MARKUP = re.compile(r"<[^<>]*>")
_NO_API_SERVER = (
    "So it is not an API server that answers, but a proxy, a load balancer or a login page: check "
    "the option host, and proxy or no_proxy"
)
# Not believed right after an outage, see DOUBT_SECONDS.
_DOUBTED = (401, 403, 404)
# The patch types of Kubernetes (k8s.io/apimachinery/pkg/types/patch.go).
_PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}

Object = dict[str, Any]
T = TypeVar("T")
# Inside the class, "list" is a method.
Items = list[T]


_CODES = {
    0: "api_unreachable",
    400: "api_rejected",
    401: "api_forbidden",
    403: "api_forbidden",
    404: "api_not_found",
    409: "api_conflict",
    422: "api_rejected",
    429: "api_busy",
}


def _code_of(status: int) -> str:
    return _CODES.get(status, "api_error")


class KubeError(StorageOpsError):
    """What the API server refused or failed to do.

    ``status`` is the HTTP status, 0 when no whole answer came.
    """

    def __init__(
        self, message: str, status: int = 0, again: float | None = None, code: str = ""
    ) -> None:
        super().__init__(message, code or _code_of(status))
        self.status = status
        # Seconds after which another try may help, 0 where the server names none; None where it
        # will not help.
        self.again = again
        # An earlier try may have reached the server, so this may be the answer to a repetition.
        self.repeated = False

    @property
    def passes(self) -> bool:
        """The API server is away, busy or broken, so a later try may succeed."""
        return self.status in (0, 429) or self.status >= 500


class Forbidden(KubeError):
    """401 or 403."""


class NotFound(KubeError):
    """404, and the API server itself says that the object does not exist."""


class Conflict(KubeError):
    """409: the object has another uid, has changed since it was read, or exists already."""


class TooMany(KubeError):
    """429 that outlasted the retries; for an eviction: a PodDisruptionBudget refuses it now."""


class _Unsent(KubeError):
    """The request never left."""


def _was_lost(error: KubeError) -> bool:
    """The answer was cut off on its way."""
    # An API server ends answers that are read too slowly (--request-timeout, 60 s by default), at
    # each try. So such a list is read in pages from then on.
    return error.status in (0, 504) and not isinstance(error, _Unsent)


class _Expired(KubeError):
    """410: the server no longer has the state that a continue token names."""


_ERRORS: dict[int, type[KubeError]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: _Expired,
    429: TooMany,
}


@dataclass(frozen=True)
class ServerVersion:
    """A version such as ``v1.31.4+k3s1``."""

    major: int
    minor: int
    patch: int
    text: str

    @classmethod
    def parse(cls, info: Mapping[str, str]) -> ServerVersion:
        """From the answer to ``/version``."""
        # Distributions append their own to the patch level (v1.31.4+k3s1), or a "+" to the minor
        # version (GKE: "31+").
        text = info.get("gitVersion", "")
        found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", text) or re.match(
            r"(\d+)\.(\d+)\+?\.?(\d*)", f"{info.get('major', '')}.{info.get('minor', '')}"
        )
        if not found:
            raise KubeError(
                f"the API server does not say which version it is: {text!r}", code="api_error"
            )
        major, minor, patch = found.groups()
        return cls(int(major), int(minor), int(patch or 0), text or f"{major}.{minor}")


def path(
    group_version: str, resource: str, name: str = "", namespace: str = "", subresource: str = ""
) -> str:
    """The path of an object or a collection: ``path("v1", "pods", "web-0", "shop",
    "eviction")``.
    """
    root = "api" if group_version == "v1" else "apis"
    scope = ["namespaces", namespace] if namespace else []
    parts = [root, *group_version.split("/"), *scope, resource, name, subresource]
    return "/" + "/".join(quote(part, safe=":") for part in parts if part)


def _could_be(path: str) -> bool:
    """All names in a path may be names of objects."""
    # A claim's spec.volumeName is any text of a tenant. An API server refuses other names as a bad
    # request, or takes them for a subresource (k8s.io/apimachinery/pkg/api/validation/path/name.go,
    # IsValidPathSegmentName; no name is longer than a DNS subdomain).
    names = [unquote(part) for part in path.split("/")]
    return not any(
        name in (".", "..") or {"/", "%"} & set(name) or len(name) > _MAX_NAME for name in names
    )


@dataclass(frozen=True)
class Listing(Generic[T]):
    """What was picked from a list, and the version of the state that it shows."""

    items: Items[T]
    version: str


class Change(NamedTuple):
    """One event of a watch: an object as it is now, or as it was when it was deleted.

    ``kind``: ADDED, MODIFIED or DELETED. A BOOKMARK has no object, only a version.
    """

    kind: str
    item: Object

    @property
    def version(self) -> str:
        """The watch has reported all changes up to this version."""
        return str(self.item["metadata"]["resourceVersion"])


class Cluster:
    """One API server, one deadline."""

    def __init__(
        self,
        endpoint: Endpoint,
        deadline: Deadline,
        request_timeout: float,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deadline = deadline
        # How many tries of requests may have changed something.
        self.sent = 0
        self._endpoint, self._timeout = endpoint, request_timeout
        self._connection = Connection(endpoint, deadline, request_timeout)
        self._sleep, self._clock = sleep, clock
        self._answered = False
        # When a request was last lost or failed by the server.
        self._outage = -DOUBT_SECONDS
        self._version: ServerVersion | None = None
        # Paths of lists that do not come whole in one answer.
        self._long: set[str] = set()
        # How far the API server's clock is ahead of ours.
        self._ahead = timedelta()

    @property
    def url(self) -> str:
        """Where the API server is."""
        return self._endpoint.url

    def now(self) -> datetime:
        """The time (UTC) by the API server's clock; by ours before the first answer."""
        # Timestamps of objects are compared with it, and our clock may be wrong.
        return datetime.now(timezone.utc) + self._ahead

    def version(self) -> ServerVersion:
        """The server's version, asked once."""
        if self._version is None:
            self._version = ServerVersion.parse(
                self._request(_Request("GET", "/version"), _read_object)
            )
        return self._version

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Object | None:
        """An object as etcd has it now; None when there is none."""
        request = _Request("GET", path, dict(query or {}))
        if not _could_be(path):
            return None

        def read(answer: Answer) -> Object:
            value = _read_object(answer)
            if request.name and (value.get("metadata") or {}).get("name") != request.name:
                # Otherwise it would pass for an object without spec and status, or for none.
                raise BrokenList("it is another object")
            return value

        try:
            return self._request(request, read)
        except NotFound:
            return None

    def list(
        self,
        path: str,
        pick: Callable[[Object], T | None],
        *,
        cached: bool = False,
        fields: str = "",
        labels: str = "",
        limit: int = 500,
    ) -> Items[T]:
        """What ``pick`` makes of every item, without None: the whole list or an error.

        ``cached`` reads the API server's watch cache in one answer, which may be some seconds old:
        for audits. Otherwise, and where that answer was lost, the list is what etcd has now, in
        pages of ``limit`` of one and the same state. ``pick`` may see an item again when a page or
        the list is requested again.
        """
        return self.read(path, pick, cached=cached, fields=fields, labels=labels, limit=limit).items

    def read(
        self,
        path: str,
        pick: Callable[[Object], T | None],
        *,
        cached: bool = False,
        fields: str = "",
        labels: str = "",
        limit: int = 500,
    ) -> Listing[T]:
        """As ``list``, with the version of the state that was read."""

        def picked(item: Object) -> T | None:
            try:
                return pick(item)
            except StorageOpsError:
                raise
            except Exception as error:  # of whatever kind: who reads it has to know which it was
                raise StorageOpsError(
                    f"cannot read {place_of(item)} of {path}: {words(error)}",
                    code="evidence_unreadable",
                ) from error

        query = {"fieldSelector": fields, "labelSelector": labels}
        query = {name: value for name, value in query.items() if value}
        pages = {**query, "limit": str(limit)}
        for left in reversed(range(RESTARTS + 1)):
            # resourceVersion=0 means "any version", and is answered from the watch cache
            # (Kubernetes API Concepts, Semantics for get and list).
            whole = {**query, "resourceVersion": "0"} if cached and path not in self._long else None
            try:
                return self._pages(path, picked, whole, pages)
            except _Expired:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def newest(self, path: str) -> str:
        """The version that etcd has now, by a list of one object at most."""

        def read(answer: Answer) -> str:
            _items, fields = read_list(answer.chunks(), lambda item: item)
            return str((fields.get("metadata") or {}).get("resourceVersion") or "")

        return self._request(_Request("GET", path, {"limit": "1"}), read)

    @contextlib.contextmanager
    def watch(self, path: str, version: str) -> Iterator[Iterator[Change]]:
        """The changes to the objects there since that version, for WATCH_SECONDS.

        The end of the watch does not prove that there were no more changes: only a change, or a
        bookmark, with a version says that all before it were reported. Each watch has its own
        connection, so that several can be open. Nothing is retried: after a KubeError, also while
        reading, the caller has to read the list again.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        request = _Request("GET", path, query)
        connection = Connection(self._endpoint, self.deadline, self._timeout)
        try:
            with self._exchange(request, connection) as answer:
                yield self._changes(request, answer)
        finally:
            connection.close()

    def create(
        self, path: str, body: Object, dry_run: bool = False, repeatable: bool = False
    ) -> Object:
        """Create an object, or evict a pod. Tried again only where the server cannot have done it,
        or where a repetition does no harm.

        ``repeatable``: it does none, as for an eviction that names the pod's uid.
        """
        return self._request(
            _Request("POST", path, _dry(dry_run), body, repeatable=repeatable), _read_object
        )

    def patch(self, path: str, body: Any, dry_run: bool = False, kind: str = "merge") -> Object:
        """Patch an object: ``merge``, ``strategic`` or ``json``.

        ``body``: what is sent, or what makes it, which is called for each try. A JSON patch may do
        more the second time, so it is not repeated.
        """
        return self._request(
            _Request(
                "PATCH",
                path,
                _dry(dry_run),
                body,
                content_type=_PATCHES[kind],
                repeatable=kind != "json",
            ),
            _read_object,
        )

    def delete(
        self,
        path: str,
        uid: str,
        dry_run: bool = False,
        grace: int | None = None,
        version: str = "",
    ) -> None:
        """Delete exactly the object with that uid. It exists for as long as a finalizer holds it.

        ``grace``: seconds that a pod gets to end, by default as many as it asks for. With 0 its
        object is gone at once, whatever its node does, so this is for a node that is known to be
        fenced. ``version``: its resourceVersion, if it must not have changed since it was read.

        Raises NotFound if it was gone already, and Conflict if another object has its name now, or
        it was changed.
        """
        # When the answer to a deletion was lost, and at the next try the object is gone or another
        # one has its name, our first try deleted it: that is success.
        exactly = {"uid": uid, **({"resourceVersion": version} if version else {})}
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": exactly}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        if dry_run:
            body["dryRun"] = ["All"]
        try:
            self._request(_Request("DELETE", path, {}, body), _read_object)
        except NotFound as error:
            if not error.repeated:
                raise
        except Conflict as error:
            found = self.get(path) if error.repeated else None
            if not error.repeated or (found and found["metadata"]["uid"] == uid):
                raise

    def _pages(
        self,
        path: str,
        pick: Callable[[Object], T | None],
        whole: dict[str, str] | None,
        pages: dict[str, str],
    ) -> Listing[T]:
        """A list, by the query for all of it if there is one, else in pages."""
        picked: Items[T] = []
        version = ""
        paged = pages if whole is not None else None
        request = _Request("GET", path, pages if whole is None else whole, paged=paged)

        def read(answer: Answer) -> tuple[Items[T], Object]:
            items, fields = read_list(answer.chunks(), pick)
            if not str(fields.get("kind", "")).endswith("List"):
                raise BrokenList(f"its kind is {fields.get('kind')!r}")
            return items, fields.get("metadata") or {}

        while True:
            items, meta = self._request(request, read)
            picked += items
            version = version or meta.get("resourceVersion") or ""
            token = meta.get("continue") or ""
            if not token:
                return Listing(picked, version)
            request = _Request("GET", path, {**pages, "continue": token})

    def _request(self, request: _Request, read: Callable[[Answer], T]) -> T:
        """What ``read`` makes of the answer, after as many tries as it takes and may take."""
        started = self._clock()
        repeated = False
        tries = 0
        while True:
            tries += 1
            try:
                return self._try(request, read)
            except KubeError as error:
                error.repeated = repeated
                now = self._clock()
                if error.status == 0 or error.status >= 500:
                    self._outage = now
                    if request.paged is not None and _was_lost(error):
                        self._long.add(request.path)
                        request = replace(request, query=request.paged, paged=None)
                        # Another request, with its own patience.
                        started, tries = now, 1
                    repeated = repeated or not isinstance(error, _Unsent)
                elif self._is_doubtful(error, now):
                    error.again = 0
                pause = error.again or min(FIRST_PAUSE * 2 ** (tries - 1), MAX_PAUSE)
                if self._gives_up(error, tries, now - started, pause):
                    raise
            self._sleep(pause)

    def _is_doubtful(self, error: KubeError, now: float) -> bool:
        """A refusal so soon after an outage that it may be one of its symptoms."""
        # A NotFound is a Status of the API server about the object itself.
        refused = error.status in _DOUBTED and not isinstance(error, NotFound)
        return refused and now - self._outage < DOUBT_SECONDS

    def _gives_up(self, error: KubeError, tries: int, spent: float, pause: float) -> bool:
        """Whether this was the last try; then the error says how many there were."""
        patience = PATIENCE if self._answered else FIRST_PATIENCE
        left = self.deadline.remaining()
        if error.again is not None and spent + pause <= patience and pause < left:
            return False
        told = [f"{tries} tries in {spent:.1f} s"] if tries > 1 else []
        if error.again is not None and 0 < left <= pause:
            told.append("the deadline leaves no time for another")
        error.args = (f"{error} ({', '.join(told)})" if told else str(error),)
        return True

    def _changes(self, request: _Request, answer: Answer) -> Iterator[Change]:
        with self._lost(request):
            for kind, item in read_changes(answer.chunks()):
                if kind == "ERROR":
                    code = item.get("code")
                    status = code if isinstance(code, int) else 0
                    known = _ERRORS.get(status, KubeError)
                    raise known(f"cannot {request}: {item.get('message')}", status)
                yield Change(kind, item)

    def _try(self, request: _Request, read: Callable[[Answer], T]) -> T:
        """Send it once.

        Raises KubeError, with ``again`` set where another try may help and can do no harm.
        """
        try:
            with self._exchange(request, self._connection) as answer:
                result = read(answer)
                self._answered = True
                self.sent += request.changes
                return result
        except KubeError as error:
            self.sent += request.changes and not isinstance(error, _Unsent)
            raise

    @contextlib.contextmanager
    def _exchange(self, request: _Request, connection: Connection) -> Iterator[Answer]:
        """Send it, and hand out the answer if it is what was asked for."""
        with (
            self._lost(request),
            connection.request(
                request.method, request.target, self._headers(request), request.text
            ) as answer,
        ):
            self._set_clock(answer.header("Date"))
            if answer.status >= 300:
                raise self._refusal(request, answer)
            _check_json(request, self._endpoint.url, answer)
            yield answer

    @contextlib.contextmanager
    def _lost(self, request: _Request) -> Iterator[None]:
        """Make a KubeError of whatever ends a connection or an answer."""
        url = self._endpoint.url
        try:
            yield
        except NotSent as error:
            cause, proxy = error.__cause__ or error, self._endpoint.proxy
            unsent = _unreachable(request, url, cause, self._late(), proxy)
            # One that has answered us is the right one: a load balancer or a proxy before it may
            # answer in its place while it is restarted.
            unsent.again = 0 if self._answered else unsent.again
            raise unsent from error
        except (OSError, http.client.HTTPException, BrokenList) as error:
            said = (
                f"cannot {request}: the answer of {url} was lost: {self._late() or _words(error)}"
            )
            if _is_refused_by_tls(error) and not self._answered:
                raise KubeError(f"{said}. {_tls_advice(error)}") from error
            if request.repeatable:
                raise KubeError(said, again=0) from error
            raise KubeError(
                f"{said}. It may have been done all the same: look before you try again"
            ) from error

    def _set_clock(self, date: str) -> None:
        """Note how far the API server's clock is ahead."""
        # The header has whole seconds, rounded down: what is young looks younger by that, never
        # older.
        with contextlib.suppress(TypeError, ValueError):
            told = parsedate_to_datetime(date)
            if told.tzinfo is not None:
                self._ahead = told - datetime.now(timezone.utc)

    def _late(self) -> str:
        return "" if self.deadline.remaining() else "the deadline has passed"

    def _headers(self, request: _Request) -> Headers:
        headers = [
            ("Accept", "application/json"),
            ("User-Agent", "storage_ops.runbooks"),
            *self._endpoint.credentials(),
        ]
        return (
            headers + [("Content-Type", request.content_type)]
            if request.body is not None
            else headers
        )

    def _refusal(self, request: _Request, answer: Answer) -> KubeError:
        """The error for an answer that is not a success."""
        status, said = answer.status, _Said(answer.body())
        self._answered = self._answered or said.is_status
        kind = _ERRORS.get(status, KubeError)
        if status == 404 and not said.missing:
            kind = KubeError
        text = f"cannot {request}: {self._endpoint.url} answered {status}: {said.message}"
        advice = self._advice(request, answer, said)
        after = answer.header("Retry-After")
        # A 429 is sent before anything is done (API Priority and Fairness), except by an eviction.
        harmless = request.repeatable or status == 429
        again = (
            (float(after) if after.isdigit() else 0.0)
            if status in _RETRIED and harmless and not said.budget
            else None
        )
        return kind(f"{text}. {advice}" if advice else text, status, again)

    def _advice(self, request: _Request, answer: Answer, said: _Said) -> str:
        """What to do about a refusal."""
        source = self._endpoint.source
        if 300 <= answer.status < 400:
            where = without_login(answer.header("Location")) or "another URL"
            return f"It redirects to {where}: is the option host the API server's?"
        if said.is_page:
            return _NO_API_SERVER
        if answer.status == 401:
            return f"It does not accept the credentials of {source}: renew or correct them"
        if answer.status == 403:
            # The user of requests without credentials (k8s.io/apiserver/pkg/authentication/user).
            anonymous = "system:anonymous" in said.message
            return f"{source} gave no credentials" if anonymous else request.rule()
        if answer.status == 404 and not said.missing:
            return (
                "Not how an API server says that this object does not exist: it does not serve "
                "the resource, or a proxy answered"
            )
        # net/http/server.go of Go, conn.serve.
        if answer.status == 400 and "HTTP request to an HTTPS server" in said.message:
            return "Begin the option host with https://"
        return ""


@dataclass(frozen=True)
class _Request:
    """A request, and how it is called in a message."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    # A repetition does no harm.
    repeatable: bool = True
    # For a list, the query for its first page instead of all of it.
    paged: Mapping[str, str] | None = None

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def text(self) -> bytes:
        """The body as sent."""
        body = self.body() if callable(self.body) else self.body
        return b"" if body is None else json.dumps(body).encode()

    @property
    def changes(self) -> bool:
        """It may change something."""
        # A deletion has that in its body (DeleteOptions of k8s.io/apimachinery meta/v1).
        deletion = self.method == "DELETE" and "dryRun" in self.body
        return self.method != "GET" and "dryRun" not in self.query and not deletion

    @property
    def name(self) -> str:
        """Name of the object that it is about; empty for a list, and for a path such as
        /version.
        """
        return self._parts()[3]

    def __str__(self) -> str:
        verb, group, resource, name, namespace = self._parts()
        if not resource:
            return f"{verb} {self.path}"
        kind = f"{resource}.{group}" if group else resource
        where = f" in namespace {namespace}" if namespace else ""
        return f"{verb} {kind}{' ' if name else ''}{name}{where}"

    def rule(self) -> str:
        """The least RBAC rule that allows this, and the manifest that has it."""
        verb, group, resource, name, namespace = self._parts()
        if not resource:
            return (
                f'A ClusterRole needs the rule {{nonResourceURLs: ["{self.path}"], verbs: '
                f'["{verb}"]}}'
            )
        where = f" in namespace {namespace}" if namespace else ""
        rule = f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}'
        manifest = _manifest(verb, resource, name)
        return (
            f"A role of this user{where} needs the rule {rule}, which "
            f"playbooks/files/{manifest} of this collection has"
        )

    def _parts(self) -> tuple[str, str, str, str, str]:
        """Verb, API group, resource with subresource, name and namespace, in the words of RBAC.

        No resource: a path such as /version.
        """
        root, *rest = [unquote(part) for part in self.path.strip("/").split("/")]
        group = rest[0] if root == "apis" and rest else ""
        rest = rest[2:] if root == "apis" else rest[1:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        if root not in ("api", "apis") or not rest:
            return self.method.lower(), "", "", "", ""
        resource, name, *subresource = [*rest, ""] if len(rest) == 1 else rest
        reading = "watch" if "watch" in self.query else "get" if name else "list"
        verb = {"GET": reading, "POST": "create"}.get(self.method, self.method.lower())
        return verb, group, "/".join([resource, *subresource]), name, namespace


def _manifest(verb: str, resource: str, name: str) -> str:
    """The manifest with the fewest rights that has this one."""
    if (resource, name) == ("configmaps", CLIENT_RECORD):
        return "rbac-audit-record.yml"
    own = resource == "leases" and name.startswith("storage-ops-")
    read = verb in ("get", "list", "watch") and resource in _AUDITED and not own
    if read and resource not in (_LISTED if verb == "get" else _NAMED):
        return "rbac-audit.yml"
    return _GIVEN.get((verb, resource)) or _GIVEN.get(("", resource)) or "rbac-repair.yml"


class _Said:
    """The body of a refusal: a Status object, or a proxy's page."""

    def __init__(self, body: bytes) -> None:
        # ``missing``: the object that does not exist. Without a name it is the resource that the
        # server does not know.
        self.is_status, self.missing, self.is_page = False, "", _is_page(body)
        budgets: Items[Object] = []
        try:
            status = untrusted.read_object(body)
            self.is_status = status.get("kind") == "Status"
            details = status.get("details") or {}
            if self.is_status and status.get("reason") == "NotFound":
                self.missing = details.get("name") or ""
            budgets = _budgets(details)
            texts = [cause.get("message", "") for cause in budgets]
            said = status.get("message") or status["reason"]
            self.message = " ".join([said, *texts]).rstrip(". ")
        except (ValueError, AttributeError, KeyError, TypeError):
            budgets = []
            self.message = _start(body)
        # An eviction that a PodDisruptionBudget refuses, or (as an error of the server, without a
        # cause: kubernetes pkg/registry/core/pod/storage/eviction.go) two of them.
        self.budget = bool(budgets) or "more than one PodDisruptionBudget" in self.message


def _budgets(details: Object) -> Items[Object]:
    """The PodDisruptionBudgets that refuse an eviction (policy/v1 DisruptionBudgetCause)."""
    causes = details.get("causes") or []
    return [cause for cause in causes if cause.get("reason") == "DisruptionBudget"]


def _read_object(answer: Answer) -> Object:
    try:
        value = untrusted.read_object(answer.body())
    except ValueError as error:
        raise BrokenList(str(error)) from None
    if not isinstance(value, dict):
        raise BrokenList("it is not an object")
    return value


def _check_json(request: _Request, url: str, answer: Answer) -> None:
    """Refuse a proxy's page, such as a login form: it has a status of success, too."""
    kind = answer.header("Content-Type")
    if "json" not in kind:
        raise KubeError(
            f"cannot {request}: {url} answered {answer.status} with {kind or 'an unknown type'} "
            f"instead of JSON: {_start(answer.body())}. {_NO_API_SERVER}",
            answer.status,
        )


def _is_page(body: bytes) -> bool:
    return body[:500].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def _start(body: bytes) -> str:
    """What an answer that is not of an API server says: of a web page its title."""
    text = body[:8000].decode("utf-8", "replace")
    if _is_page(body):
        title = _TITLE.search(text)
        text = f'the page "{title[1].strip()}"' if title else _MARKUP.sub(" ", text)
        text = html.unescape(text)
    return " ".join(text.split())[:200].rstrip(". ") or "nothing"


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _unreachable(
    request: _Request, url: str, problem: BaseException, late: str, proxy: str = ""
) -> KubeError:
    """The error for a connection that could not be made."""
    via = f" through the proxy {proxy}" if proxy else ""
    text = f"cannot {request}: no connection to {url}{via}: {late or _words(problem)}"
    if late:
        return _Unsent(text, again=0)
    advice, passes = _next_step(problem, proxy)
    return _Unsent(f"{text}. {advice}", again=0 if passes else None)


def _next_step(problem: BaseException, proxy: str) -> tuple[str, bool]:
    """What to do about a connection that could not be made, and whether another try may help."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        if problem.verify_code in _OTHER_NAME:
            return "Use a host that the certificate names", False
        return (
            "Give the certificate authority of the API server by the option ca_cert "
            "(environment: K8S_AUTH_SSL_CA_CERT)"
        ), False
    if isinstance(problem, socket.gaierror) and problem.errno != socket.EAI_AGAIN:
        return f"Is the option {'proxy' if proxy else 'host'} right?", False
    # An internal error of the server passes, or is told by its tries.
    tls = _reason_of_tls(problem)
    if tls is not None and "INTERNAL_ERROR" not in tls:
        return _tls_advice(problem), False
    refused = _TUNNEL.match(str(problem))
    if refused:
        status = int(refused[1])
        return _proxy_advice(status), status in _RETRIED and status != 500
    what = "a proxy" if proxy else "an API server"
    return f"Does {what} listen there, and may this host connect to it?", True


def _is_refused_by_tls(problem: BaseException) -> bool:
    """The server ended the connection for what we are."""
    # With TLS 1.3 it looks at a client's certificate only after our side of the handshake is done,
    # so its alert comes in the place of the answer (RFC 8446, section 4.4.2.4).
    reason = _reason_of_tls(problem) or ""
    return "ALERT" in reason and "INTERNAL_ERROR" not in reason


def _reason_of_tls(problem: BaseException) -> str | None:
    """OpenSSL's name of what failed; None for the end of a connection, as of a server that is
    restarted, and for a certificate.
    """
    if isinstance(problem, ssl.SSLError) and not isinstance(problem, _OTHER_TLS):
        return problem.reason or ""
    return None


def _tls_advice(problem: BaseException) -> str:
    if _is_refused_by_tls(problem):
        return (
            "The server refuses this client: does it want a client certificate, or another one "
            "(options client_cert and client_key)?"
        )
    return (
        "This port does not speak TLS as an API server does: is the port of the option host right? "
        "Begin host with http:// if it is one without TLS, as of kubectl proxy"
    )


def _proxy_advice(status: int) -> str:
    if status == 407:
        return (
            "Give user and password of the proxy by proxy_headers.proxy_basic_auth, or in the URL "
            "of the proxy"
        )
    return (
        "Does the proxy allow connections (CONNECT) to this host and port? If none is needed, "
        "except the host by no_proxy"
    )


def _words(problem: BaseException) -> str:
    """A failure of the network as a sentence."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {problem.verify_message.rstrip('.')}"
    tls = _reason_of_tls(problem)
    if tls:
        return f"TLS failed: {tls.replace('_', ' ').lower()}"
    if isinstance(problem, (socket.timeout, TimeoutError)):
        return "no answer in time"
    if isinstance(problem, http.client.IncompleteRead):
        return "it ended early"
    return (
        (problem.strerror if isinstance(problem, OSError) else "")
        or str(problem)
        or type(problem).__name__
    )


@contextlib.contextmanager
def within(cluster: Cluster, seconds: float) -> Iterator[None]:
    """For what one owner can make long: requests, and their repetitions, end after so many seconds.

    Raises TurnOver then, and where the API server itself gives up. It sends nothing of a LIST until
    it has found what fits, and a tenant may have any number of objects that do not. Raises
    KubeError for what does not pass by itself, such as a missing right.
    """
    with cluster.deadline.shortened(seconds):
        try:
            yield
        except KubeError as error:
            if not error.passes:
                raise
            raise TurnOver(str(error)) from None


def until_none(
    look: Callable[[], list[str]],
    seconds: float,
    deadline: Deadline,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    pause: float = 1.0,
) -> list[str]:
    """Poll until nothing is found any more, for at most so many seconds and never past the
    deadline; what was found last.

    Raises KubeError for what does not pass by itself.
    """
    until = clock() + seconds
    while True:
        try:
            left = look()
        except KubeError as error:
            if not error.passes:
                raise
            left = [str(error)]
        if not left or clock() + pause > until or deadline.remaining() < pause:
            return left
        sleep(pause)
