# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Event source for ansible-rulebook: warnings of Kubernetes about the volumes of pods, as they are
made.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

DOCUMENTATION = r"""
---
short_description: Receive events of Kubernetes that are about the volumes of pods
description:
  - Watches the warnings about pods, beginning with now, and makes an event of each that has one of
    the wanted reasons, C(kubernetes_event) with C(reason), C(namespace), C(pod) and C(node) (the
    node of the kubelet that says it, or nothing). The message is left out, since anybody's words
    may be in it, and triage reads it anyway.
  - A watch that ends is resumed where it was. Where that is not possible, it begins with now. That
    loses nothing that lasts, since Kubernetes repeats a warning as long as its cause is there.
  - Needs the Python library kubernetes, and the right to list and watch events.
options:
  kubeconfig:
    description:
      - Path of a kubeconfig. Empty means the service account of the pod that this runs in, or else
        what the environment variable E(K8S_AUTH_KUBECONFIG), E(KUBECONFIG) or the home directory
        has.
    type: str
    default: ""
  context:
    description: Context of the kubeconfig. Empty means its current one.
    type: str
    default: ""
  namespace:
    description: Only events of this namespace. Empty means all.
    type: str
    default: ""
  reasons:
    description: Reasons of events that count. A list, or one string separated by commas or blanks.
    type: raw
    default: [FailedAttachVolume, FailedMount, FailedMapVolume]
  lasting_seconds:
    description:
      - Seconds that a warning must have lasted, from its first to its last occurrence. Most pods
        whose volume is not there at once find it a little later.
    type: float
    default: 120
  quiet_seconds:
    description: Seconds for which the same reason for the same pod is not said again.
    type: float
    default: 60
  pods_per_namespace:
    description:
      - Of how many pods of a namespace the events are handed on within half an hour; of others they
        are dropped, with a warning, and Kubernetes repeats them as long as their cause is there.
      - Whoever may write events in a namespace can name any number of pods there, and each makes a
        run that all others wait for.
    type: int
    default: 20
"""

EXAMPLES = r"""
- storage_ops.runbooks.kubernetes_events:
    namespace: shop
"""

LOG = logging.getLogger(__name__)
REASONS = ("FailedAttachVolume", "FailedMount", "FailedMapVolume")
# Seconds after which the server ends a watch, so that it is resumed, and how long it may then be
# silent.
WATCH_SECONDS = 60
SILENT_SECONDS = 30
# Seconds before the next try, after an error; they double.
PAUSE, MAX_PAUSE = 1.0, 60.0
# An event is a few kilobytes.
MAX_LINE = 1 << 20
MAX_REMEMBERED = 10_000
# As long as the rulebooks do not look at the same pod again.
SHARE_SECONDS = 1800
WANTED = "involvedObject.kind=Pod,type=Warning"
# No object may have this name (IsDNS1123Subdomain of
# staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go).
NO_NAME = "-"

# What a change or an event that is none raises: a time in the year 0, say, which the API stores.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Expired(Exception):
    """The server no longer knows the point from which to go on."""


class NoKubeconfig(Exception):
    """There is no such file."""


class Recent:
    """What was said within the last seconds; bounded."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._said: OrderedDict[tuple[str, ...], float] = OrderedDict()

    def is_new(self, key: tuple[str, ...]) -> bool:
        """Not said within the last seconds; it is from now on."""
        now = self._clock()
        if key in self._said and now - self._said[key] < self._seconds:
            return False
        self._said[key] = now
        self._said.move_to_end(key)
        if len(self._said) > MAX_REMEMBERED:
            self._said.popitem(last=False)
        return True


class Shares:
    """Of which pods of each namespace something was said within the last half hour."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._pods: dict[str, dict[str, float]] = {}
        self._warned: dict[str, float] = {}

    def allows(self, namespace: str, pod: str) -> bool:
        """Its namespace has not used up its share; now the pod is one of those."""
        now = self._clock()
        known = self._pods.get(namespace, {})
        pods = {name: said for name, said in known.items() if now - said < SHARE_SECONDS}
        self._pods[namespace] = pods
        if pod not in pods and len(pods) >= self._most:
            if now - self._warned.get(namespace, -SHARE_SECONDS) >= SHARE_SECONDS:
                self._warned[namespace] = now
                LOG.warning(
                    "events of more than %d pods of namespace %s were dropped",
                    self._most,
                    namespace,
                )
            return False
        pods.setdefault(pod, now)
        return True


@dataclass(frozen=True)
class Wanted:
    """Which events count."""

    reasons: tuple[str, ...] = REASONS
    lasting_seconds: float = 120


def pick(event: Any, wanted: Wanted) -> dict[str, str] | None:
    """What is kept of an event object; None for all that is not a lasting warning of these reasons
    about a pod, with valid names.
    """
    involved = event.get("involvedObject") or {}
    if (
        event.get("type") != "Warning"
        or event.get("reason") not in wanted.reasons
        or involved.get("kind") != "Pod"
        # Whoever may write events in one namespace may write one there about a pod of another: of
        # an event with an eventTime nothing compares the two (legacyValidateEvent of
        # pkg/apis/core/validation/events.go).
        or involved.get("namespace") != event["metadata"].get("namespace")
    ):
        return None
    if lasted(event) < wanted.lasting_seconds:
        return None
    kept = {
        "reason": event["reason"],
        "namespace": involved.get("namespace") or "",
        "pod": involved.get("name") or "",
        "node": (event.get("source") or {}).get("host") or "",
    }
    if not _NAME.fullmatch(kept["namespace"]) or not _NAME.fullmatch(kept["pod"]):
        return None
    return {**kept, "node": kept["node"] if _NAME.fullmatch(kept["node"]) else ""}


def lasted(event: Any) -> float:
    """Seconds from an event's first to its last occurrence; 0 for what has no times."""
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or series.get("lastObservedTime") or first
    if not first or not last:
        return 0
    # Python 3.9 and 3.10 do not know the Z.
    begin, end = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (first, last))
    return (end - begin).total_seconds()


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream, as they arrive.

    One that is far too long is passed over: anybody who may write an event can make one.
    """
    parts: list[bytes] = []
    length = 0
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            if length + len(line) <= MAX_LINE:
                yield from filter(None, [b"".join([*parts, line])])
            else:
                LOG.warning("an event of more than %d bytes was passed over", MAX_LINE)
            parts, length = [], 0
        length += len(rest)
        parts = [*parts, rest] if length <= MAX_LINE else []


def follow(chunks: Iterable[bytes], wanted: Wanted) -> Iterator[tuple[str, dict[str, str] | None]]:
    """Read a watch: for each change the version to go on from, and what is kept of it. Raises
    Expired.

    What cannot be read is reported and passed over, so that no event hides those that follow it.
    """
    for line in lines(chunks):
        try:
            change = json.loads(line)
            found = change["object"]
            kind, code = change["type"], found.get("code")
            version = "" if kind == "ERROR" else str(found["metadata"]["resourceVersion"])
        except _UNREADABLE as error:
            LOG.warning("a change that cannot be read was passed over (%s)", type(error).__name__)
            continue
        if kind == "ERROR":
            raise Expired if code == 410 else ValueError(f"the watch ended with status {code}")
        yield version, _picked(found, wanted) if kind in ("ADDED", "MODIFIED") else None


def _picked(event: Any, wanted: Wanted) -> dict[str, str] | None:
    try:
        return pick(event, wanted)
    except _UNREADABLE as error:
        LOG.warning("an event that cannot be read was passed over (%s)", type(error).__name__)
        return None


class Watcher:
    """Watches in a thread of its own, and hands what it finds to a function."""

    def __init__(self, args: dict[str, Any], say: Callable[[dict[str, str]], None]) -> None:
        self._args, self._say = args, say
        reasons = args.get("reasons") or REASONS
        listed = re.split(r"[,\s]+", reasons.strip()) if isinstance(reasons, str) else reasons
        self._wanted = Wanted(tuple(listed), float(args.get("lasting_seconds", 120)))
        self._recent = Recent(float(args.get("quiet_seconds", 60)))
        self._shares = Shares(int(args.get("pods_per_namespace", 20)))
        self._stopped = threading.Event()
        self._response: Any = None
        self.failed: Exception | None = None

    def run(self) -> None:
        """Watch until stopped.

        What can pass is tried again; a configuration that cannot work ends it.
        """
        try:
            list_events = self._connect()
        except Exception as error:
            self.failed = error
            return
        version, pause = "", PAUSE
        while not self._stopped.is_set():
            try:
                if not version:
                    version = self._now(list_events)
                    LOG.info("watching the warnings about pods from now on")
                for seen, kept in follow(self._watch(list_events, version), self._wanted):
                    version, pause = seen, PAUSE
                    if kept and self._is_wanted(kept):
                        self._say(kept)
                # One that ends at once must not be asked for in a tight loop.
                self._stopped.wait(PAUSE)
            except Expired:
                version = ""
            except Exception as error:
                if self._stopped.is_set():
                    return
                # Not the error's own words: they may hold headers.
                status = getattr(error, "status", None)
                LOG.warning(
                    "the API server cannot be watched (%s, status %s); next try in %d s",
                    type(error).__name__,
                    status,
                    pause,
                )
                version = "" if status == 410 else version
                self._stopped.wait(pause)
                pause = min(2 * pause, MAX_PAUSE)

    def _is_wanted(self, kept: dict[str, str]) -> bool:
        """It is new, and of a namespace that has not had its share."""
        about = kept["namespace"], kept["pod"]
        return self._shares.allows(*about) and self._recent.is_new((*about, kept["reason"]))

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped.set()
        response = self._response
        if response is not None:
            with contextlib.suppress(Exception):
                response.close()

    def _connect(self) -> Callable[..., Any]:
        """The API's call that lists events, raw. It is also the one that watches."""
        from kubernetes import client, config

        path = self._args.get("kubeconfig") or os.environ.get("K8S_AUTH_KUBECONFIG")
        if path:
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                raise NoKubeconfig(
                    f"the kubeconfig {path} cannot be read: {error.strerror}; name one that the "
                    "user of this program can read"
                ) from error
        loaded = client.Configuration()
        if not path and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=loaded)
        else:
            config.load_kube_config(
                config_file=path or None,
                context=self._args.get("context") or None,
                client_configuration=loaded,
            )
        api = client.CoreV1Api(client.ApiClient(loaded))
        namespace = self._args.get("namespace")

        def list_events(timeout: float = SILENT_SECONDS, name: str = "", **options: Any) -> Any:
            options = {
                **options,
                "field_selector": WANTED if not name else f"metadata.name={name}",
                "_preload_content": False,
                "_request_timeout": timeout,
            }
            if namespace or name:
                return api.list_namespaced_event(namespace or "default", **options)
            return api.list_event_for_all_namespaces(**options)

        return list_events

    @staticmethod
    def _now(list_events: Callable[..., Any]) -> str:
        """The version of all that the API server has now, from which to watch."""
        # In a list of what cannot be: the first event of another one is whatever its writer made
        # it, such as one that is nested thousands deep. By a name in a namespace the API server
        # looks up one key, and goes through no events (ListPredicate of
        # staging/src/k8s.io/apiserver/pkg/registry/generic/registry/store.go).
        found = json.loads(list_events(name=NO_NAME).data)
        return str(found["metadata"]["resourceVersion"])

    def _watch(self, list_events: Callable[..., Any], version: str) -> Iterator[bytes]:
        """The bytes of one watch."""
        self._response = list_events(
            timeout=WATCH_SECONDS + SILENT_SECONDS,
            watch=True,
            resource_version=version,
            timeout_seconds=WATCH_SECONDS,
            allow_watch_bookmarks=True,
        )
        try:
            yield from self._response.stream(amt=None, decode_content=True)
        finally:
            self._response.close()


async def main(queue: asyncio.Queue[Any], args: dict[str, Any]) -> None:
    """Put events into the queue until cancelled."""
    loop = asyncio.get_running_loop()

    def say(kept: dict[str, str]) -> None:
        asyncio.run_coroutine_threadsafe(queue.put({"kubernetes_event": kept}), loop).result()

    watcher = Watcher(args, say)
    # A daemon: one that waits for the server must not keep the program from ending.
    thread = threading.Thread(target=watcher.run, name="kubernetes_events", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            await asyncio.sleep(0.5)
    finally:
        watcher.stop()
    if isinstance(watcher.failed, NoKubeconfig):
        raise RuntimeError(f"no API server to watch: {watcher.failed}")
    if watcher.failed:
        # The words of the error are not shown: the file may hold a token.
        raise RuntimeError(
            "no API server to watch: the kubeconfig cannot be used, or does not have the context; "
            "'kubectl config get-contexts' shows whether kubectl can use it"
        )
