# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has RBD images open: watchers over several observations, owners of locks, and what ceph-csi
noted down.

Every question is one that opens the image read-only, so that we are never a watcher ourselves. That
is why ceph-csi's notes are read from the image's header object: ``rbd image-meta`` opens the image
for writing.
"""

from __future__ import annotations

import binascii
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any, Callable, NamedTuple, TypeVar

from .._core.argspec import check_numbers
from .._core.codes import Reason
from .._core.engine import Finding, Plan
from .._core.errors import BadOption, StorageOpsError, words
from .._core.texts import lines, stripped
from .._core.untrusted import few
from .addresses import KERNEL_COOKIES, RANGE, Entry, parse_entry, parse_stored
from .blocklist import Blocklist, read_blocklist, read_families
from .cli import Ceph
from .images import Target, image_of, root_of
from .sessions import FileSystem, read_file_systems, sessions_of
from .sessions import to_result as files_result

CONTROL = "STOR-16"
# Options of every module that watches: of what, how often, and how long clients may take to go.
WATCH: dict[str, Any] = {
    "images": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "pool": {"type": "str", "required": True},
            "namespace": {"type": "str", "default": ""},
            "image": {"type": "str", "required": True},
        },
    },
    "volumes": {"type": "list", "elements": "dict", "default": []},
    "rados_namespaces": {"type": "dict", "default": {}},
    "observations": {"type": "int", "default": 1},
    "observation_seconds": {"type": "float", "default": 0.0},
    "gone_timeout": {"type": "float", "default": 60.0},
    "sessions": {"type": "bool", "default": False},
}
# Enough to hide the start of a process, few enough for a toolbox pod.
_PARALLEL = 8
_POLL_SECONDS = 1.0
# How many clients of an image are handed on of those that differ in nothing that decides.
_MOST_ALIKE = 5
_T = TypeVar("_T")
# What raises these has another form than was expected.
_ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# ceph-csi writes it in both ways; behind it stand the volume's id and the node. Metadata of an
# image is in its header's omap, with the prefix "metadata_" (src/cls/rbd/cls_rbd.cc). The key after
# it is of ceph-csi's docs/design/proposals/non-graceful-node-shutdown.md.
_NOTE = re.compile(
    r"metadata_\.rbd\.csi\.ceph\.com/clientaddress/(?:.*/)?(?P<node>[^/]+)",
    re.IGNORECASE | re.ASCII,
)
# A line of "rados listwatchers" (src/tools/rados/rados.cc).
_LISTED = re.compile(
    r"watcher=(?P<address>\S+) client\.(?P<client>[0-9]{1,20}) cookie=[0-9]+", re.ASCII
)
# How "rados listomapvals" shows a value: an offset, 16 bytes, and the same as text
# (bufferlist::hexdump).
_HEXDUMP = re.compile(r"^[0-9a-f]{8}  (?P<bytes>(?:[0-9a-f]{2} {1,2}){1,16})", re.MULTILINE)
# Each part within bounds and whole. Without them a long row of digits takes quadratic time, and
# Python reads no number of more than 4,300 digits.
_ADDRESS = re.compile(
    r"(?:\[[0-9A-Fa-f:.]{2,45}\]|(?<![0-9.])[0-9.]{7,15}):[0-9]{1,10}/[0-9]{1,10}(?![0-9])"
)
# Characters of a note. One of several addresses of IPv6 has fewer.
_MOST_OF_NOTE = 200


class Watcher(NamedTuple):
    """A client that has an image open: who it is, and with which cookie."""

    entry: Entry
    client: int
    cookie: int


class Lock(NamedTuple):
    """Whom a lock on an image belongs to; the owner may be dead."""

    locker: str
    entry: Entry


class Details(NamedTuple):
    """What is read of an image once. ``notes``: (node, address it had when it staged the image) of
    ceph-csi.

    ``mirrors``: the rbd-mirror daemons of the pool, if the image is mirrored, each as its address
    and client.
    """

    features: tuple[str, ...] = ()
    locks: tuple[Lock, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    mirrors: frozenset[tuple[Entry, int]] = frozenset()


class Observed(NamedTuple):
    """An image after all observations.

    ``watchers``: every one that was seen, and how often; ``problem``: why it is not known.
    """

    target: Target
    watchers: tuple[tuple[Watcher, int], ...] = ()
    details: Details = Details()
    problem: str = ""


class WatcherOptions(NamedTuple):
    """What the user asked for; see the documentation of rbd_watcher_info."""

    targets: tuple[Target, ...]
    ignored: tuple[str, ...]
    observations: int
    observation_seconds: float
    gone: tuple[Entry, ...]
    gone_timeout: float
    # Whether the sessions of CephFS are read, and the folders of its volumes.
    sessions: bool = False
    roots: frozenset[str] = frozenset()


class WatcherState(NamedTuple):
    """What was read.

    ``seconds``: from the first observation to the last; ``waited``: how long for the watches and
    sessions of ``gone`` to end; ``files``: the filesystems, None if they were not asked for;
    ``families``: those of the monitors' addresses.
    """

    blocklist: Blocklist
    read_at: datetime
    images: tuple[Observed, ...]
    observations: int
    seconds: float
    waited: float
    files: tuple[FileSystem, ...] | None = None
    families: tuple[str, ...] = ()


class _Looks(NamedTuple):
    """What was seen at each, and the rest as in WatcherState."""

    rounds: list[dict[tuple[str, str, str], tuple[Watcher, ...] | str]]
    seconds: float
    waited: float
    files: tuple[FileSystem, ...] | None


class Watchers:
    """The audit of rbd_watcher_info."""

    def __init__(
        self,
        ceph: Ceph,
        options: WatcherOptions,
        sleep: Callable[[float], None] = time.sleep,
        answers: bool = False,
    ) -> None:
        self._ceph = ceph
        self._options = options
        self._sleep = sleep
        # Ceph has answered a moment ago.
        self._answers = answers
        self._state: WatcherState | None = None

    def gather(self) -> WatcherState:
        """Observe, wait for the watches that are to be gone, then read what does not change."""
        # A client that is gone stays a watcher until osd_client_watch_timeout, 30 s, after its last
        # ping (Watch of src/osd/Watch.cc), so looks within that time tell nothing of who lives; who
        # is there at each of several looks over a longer time is alive.
        ceph = self._ceph
        # The first question, since it tells best why Ceph cannot be asked.
        if not self._answers:
            read_blocklist(ceph)
        # Beside all else, since "ceph" takes 0.3 s to start.
        with ThreadPoolExecutor(1) as pool:
            families = pool.submit(read_families, ceph)
            looks = self._watch()
            images = self._merge(looks.rounds)
        self._state = WatcherState(
            read_blocklist(ceph),
            datetime.now(timezone.utc),
            images,
            len(looks.rounds),
            looks.seconds,
            looks.waited,
            looks.files,
            families.result(),
        )
        return self._state

    def _watch(self) -> _Looks:
        """The looks, one after the other, and in the end the sessions of CephFS."""
        options = self._options
        started = time.monotonic()
        rounds = [self._observe()]
        for number in range(1, options.observations):
            self._sleep(
                max(
                    0.0,
                    started
                    + options.observation_seconds * number / (options.observations - 1)
                    - time.monotonic(),
                )
            )
            rounds.append(self._observe())
        seconds = time.monotonic() - started
        waiting = time.monotonic()
        while (
            _watching(rounds[-1], options.gone)
            and time.monotonic() - waiting < options.gone_timeout
        ):
            self._sleep(_POLL_SECONDS)
            # What was seen before the fence is of no interest after it.
            rounds, seconds = [self._observe()], 0.0
        files = self._read_files(waiting) if options.sessions else None
        return _Looks(rounds, seconds, time.monotonic() - waiting, files)

    def _read_files(self, waiting: float) -> tuple[FileSystem, ...]:
        """The sessions of each CephFS, once those of ``gone`` have ended or the time for that is
        over. ``waiting``: since when.
        """
        # A metadata server ends the session of a blocklisted client when it gets the new OSD map
        # (Server::apply_blocklist of src/mds/Server.cc).
        files = read_file_systems(self._ceph)
        while (
            sessions_of(files, self._options.gone)
            and time.monotonic() - waiting < self._options.gone_timeout
        ):
            self._sleep(_POLL_SECONDS)
            files = read_file_systems(self._ceph)
        return files

    def plan(self, state: WatcherState) -> Plan:
        """Decide."""
        return plan(state, self._options)

    def healthy(self, state: WatcherState) -> str:
        """What was looked at."""
        watchers = sum(len(image.watchers) for image in state.images)
        ignored = len(self._options.ignored)
        return (
            f"{len(state.images)} images with {watchers} watchers, {len(state.blocklist.entries)} "
            f"entries in the blocklist of {state.blocklist.fsid}"
            + _told_files(state.files)
            + (f"; {ignored} volumes that are not RBD were ignored" if ignored else "")
        )

    def facts(self) -> dict[str, Any]:
        """What was read, for node_fence and node_release."""
        return (
            {}
            if self._state is None
            else {
                "ceph": to_result(self._state, self._options.roots),
                "ignored": list(self._options.ignored),
            }
        )

    def _observe(self) -> dict[tuple[str, str, str], tuple[Watcher, ...] | str]:
        """The watchers of each image, or why they are not known."""
        return self._each(lambda target: parse_watchers(_answer(self._ceph, "status", target)))

    def _merge(
        self, rounds: Sequence[dict[tuple[str, str, str], tuple[Watcher, ...] | str]]
    ) -> tuple[Observed, ...]:
        details = self._each(self._details)
        images = []
        for target in self._options.targets:
            seen = [found[target.spec] for found in rounds if target.spec in found]
            detail = details.get(target.spec, Details())
            problem = target.problem or next(
                (text for text in [*seen, detail] if isinstance(text, str)), ""
            )
            if problem or isinstance(detail, str):
                images.append(Observed(target, problem=problem))
                continue
            every = [
                watcher for watchers in seen for watcher in watchers if isinstance(watcher, Watcher)
            ]
            images.append(
                Observed(
                    target,
                    tuple(Counter(every).items()),
                    detail,
                )
            )
        return tuple(images)

    def _details(self, target: Target) -> Details:
        # The header object of an image of format 2 is named after its id, not its name
        # (RBD_HEADER_PREFIX of src/include/rbd_types.h), so that a rename keeps it.
        info = _answer(self._ceph, "info", target)
        if _is_copy(info):
            raise StorageOpsError(
                "it is the mirrored copy of an image that is primary on another Ceph cluster, so "
                "no node has it open here: ask the cluster that the volume is on"
            )
        locks = parse_locks(_answer(self._ceph, "lock", target, "ls"))
        notes = []
        if isinstance(info, dict) and info.get("id"):
            space = ["--namespace", target.namespace] if target.namespace else []
            result = self._ceph.run(
                "rados", "--pool", target.pool, *space, "listomapvals", f"rbd_header.{info['id']}"
            )
            if not result.ok:
                raise StorageOpsError(f"ceph-csi's notes could not be read: {result.describe()}")
            notes = parse_notes(result.stdout)
        # There is the section as soon as the image is mirrored, and with it the pool's object.
        mirrors = (
            self._mirrors(target)
            if isinstance(info, dict) and info.get("mirroring")
            else frozenset()
        )
        return Details(tuple(info.get("features", [])), locks, tuple(notes), mirrors)

    def _mirrors(self, target: Target) -> frozenset[tuple[Entry, int]]:
        """The daemons that mirror this pool, of this site and of others: they alone watch the
        object that lists its mirrored images.

        ``rbd mirror image status`` tells the state of each site, but not by which client it has the
        image open, and of other sites' daemons nothing more. In src/tools/rbd_mirror/PoolWatcher.cc
        a daemon watches RBD_MIRRORING with the very client that opens the images, for its own site
        and for each peer.
        """
        # The object is there as soon as mirroring is enabled on the pool (RBD_MIRRORING of
        # src/include/rbd_types.h).
        space = ["--namespace", target.namespace] if target.namespace else []
        result = self._ceph.run(
            "rados", "--pool", target.pool, *space, "listwatchers", "rbd_mirroring"
        )
        if not result.ok:
            raise StorageOpsError(
                f"who mirrors pool {target.pool} could not be read: {result.describe()}"
            )
        return frozenset(parse_listed(result.stdout))

    def _each(self, read: Callable[[Target], Any]) -> dict[tuple[str, str, str], Any]:
        """``read`` for each image, in parallel: what it returned, or as a text why it did not."""

        # An image that cannot be read must not hide the others, and must not count as one without
        # watchers.
        def asking(target: Target) -> Any:
            try:
                return read(target)
            except StorageOpsError as error:
                return str(error)
            # Some of it is of whoever has a key for the image, as ceph-csi's notes.
            except _ODD as error:
                return f"what is said of it cannot be read: {words(error)}"

        targets = list(
            {target.spec: target for target in self._options.targets if not target.problem}.values()
        )
        with ThreadPoolExecutor(_PARALLEL) as pool:
            return {
                target.spec: answer for target, answer in zip(targets, pool.map(asking, targets))
            }


def _answer(ceph: Ceph, command: str, target: Target, *more: str) -> Any:
    """What ``rbd`` says about an image; its parts are options, so that no name is taken for a
    snapshot or a path.
    """
    # rbd parses POOL/NAMESPACE/IMAGE@SNAP in its positional argument (src/tools/rbd/Utils.cc), so a
    # name with "@" or "/" would be another image.
    space = ["--namespace", target.namespace] if target.namespace else []
    return ceph.json("rbd", command, *more, "--pool", target.pool, *space, "--image", target.image)


def _is_copy(info: Any) -> bool:
    """``rbd info --format json`` says that rbd-mirror alone writes the image."""
    # It has the name of the primary image, and its metadata with ceph-csi's notes (rbd-mirror's
    # ImageReplayer), but another cluster's blocklist. "primary" is of src/tools/rbd/action/Info.cc,
    # and missing for an image whose mirroring is disabled.
    mirroring = info.get("mirroring") if isinstance(info, dict) else None
    return isinstance(mirroring, dict) and mirroring.get("primary") is False


def parse_watchers(status: Any) -> tuple[Watcher, ...]:
    """``rbd status --format json``.

    Raises StorageOpsError for what is not understood: it is never "no watchers".
    """
    # Half of a list is worse than none: a watcher that is overlooked may write.
    try:
        found = status["watchers"]
        # Before Nautilus a dictionary by number
        entries = list(found.values()) if isinstance(found, dict) else found
        return tuple(
            Watcher(_entry(item["address"]), int(item["client"]), int(item["cookie"]))
            for item in entries
        )
    # Of numbers that are infinite: OverflowError.
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StorageOpsError(f"rbd status lacks what is needed: {words(error)}") from None


def parse_locks(answer: Any) -> tuple[Lock, ...]:
    """``rbd lock ls --format json``: a list, before Nautilus a dictionary by the lock's id."""
    # The exclusive lock is shown as one lock with the id "auto NUMBER" (librbd ManagedLock,
    # encode_lock_cookie); a lock that a user has taken by "rbd lock add" has the id he gave. Both
    # have an owner that may write.
    try:
        entries = list(answer.values()) if isinstance(answer, dict) else answer
        return tuple(Lock(str(item["locker"]), _entry(item["address"])) for item in entries)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageOpsError(f"rbd lock ls lacks what is needed: {words(error)}") from None


def parse_listed(text: str) -> list[tuple[Entry, int]]:
    """Address and client of each line of ``rados listwatchers``, which has no JSON.

    Raises StorageOpsError for any other line.
    """
    found = []
    for line in filter(None, map(stripped, lines(text))):
        match = _LISTED.fullmatch(line)
        entry = parse_stored(match["address"]) if match else None
        if match is None or entry is None:
            raise StorageOpsError(
                f"rados listwatchers says {line[:100]!r}, which is not understood"
            )
        found.append((entry, int(match["client"])))
    return found


def _entry(text: str) -> Entry:
    entry = parse_stored(text)
    if entry is None:
        raise ValueError(f"{text!r} is no address")
    return entry


def parse_notes(omap: str) -> list[tuple[str, str]]:
    """(node, address) from ``rados listomapvals`` of an image's header: keys, each with a dump of
    its value.
    """
    # A key is followed by its value as a dump, and an empty line ends both (rados listomapvals).
    notes = []
    for block in omap.split("\n\n"):
        match = _NOTE.match(block.lstrip("\n").partition("\n")[0])
        if match is None:
            continue
        value = binascii.unhexlify(
            "".join(line["bytes"].replace(" ", "") for line in _HEXDUMP.finditer(block))
        ).decode("utf-8", "replace")
        if len(value) > _MOST_OF_NOTE:
            continue
        try:
            # Only the address, or as Ceph spells a client, or several of those
            found = _ADDRESS.findall(value)
            entry = parse_stored(found[0]) if found else parse_entry(value)
        except StorageOpsError:
            continue
        # Who has ceph-csi's key writes any text there. A range is no client's address.
        if entry and entry.kind != RANGE:
            notes.append((match["node"], entry.address))
    return notes


def _watching(
    found: dict[tuple[str, str, str], tuple[Watcher, ...] | str], gone: tuple[Entry, ...]
) -> bool:
    """One of ``gone`` still has an image open, as far as that is known."""
    return any(
        held_by(watchers, gone) for watchers in found.values() if not isinstance(watchers, str)
    )


def held_by(watchers: Sequence[Watcher], gone: tuple[Entry, ...]) -> list[Watcher]:
    """Watchers that one of the entries blocks, or would."""
    # An entry for an address covers every client there; one for a client only the instance with its
    # nonce, and a client that reconnects after a reboot has another one.
    return [watcher for watcher in watchers if any(entry.covers(watcher.entry) for entry in gone)]


def plan(state: WatcherState, options: WatcherOptions) -> Plan:
    """Images that could not be read, and watches that should be gone; a pure function."""
    findings = []
    for image in state.images:
        kind, name = "RBD image", image.target.title
        if image.problem:
            summary = f"who has {name} open is not known"
            finding = Finding(
                control=CONTROL,
                severity="major",
                kind=kind,
                name=name,
                node="",
                summary=summary,
                reason=f"nothing may be concluded from it: {image.problem}. If ceph-csi is "
                "configured "
                "with a RADOS namespace for the clusterID, give it in rados_namespaces, or the "
                "image in images",
            )
            if options.gone:
                finding.refuse(Reason("evidence_unreadable", finding.reason))
            finding.evidence = {"volume": image.target.volume, "problem": image.problem}
        else:
            held = held_by([watcher for watcher, _seen in image.watchers], options.gone)
            if not held:
                continue
            named = sorted(f"{watcher.entry.text} (client.{watcher.client})" for watcher in held)
            more = len(named[_MOST_ALIKE:])
            who = ", ".join(named[:_MOST_ALIKE]) + (f" and {more} more" if more else "")
            summary = (
                f"{name} is still watched by {who}, {state.waited:.0f} s after that should "
                "have been gone"
            )
            finding = Finding(
                control=CONTROL,
                severity="critical",
                kind=kind,
                name=name,
                node="",
                summary=summary,
            )
            finding.refuse(
                Reason(
                    "ceph_watcher_left",
                    "a client that still watches the image may write to it: see whether "
                    "its address is in the blocklist",
                )
            )
            finding.evidence = {
                "volume": image.target.volume,
                "watchers": sorted(watcher.entry.text for watcher in held),
            }
        finding.named = bool(options.gone)
        findings.append(finding)
    return Plan([*findings, *_about_files(state, options)])


def _about_files(state: WatcherState, options: WatcherOptions) -> list[Finding]:
    """Filesystems whose sessions are not known, and sessions that should be gone."""
    findings = []
    for found in state.files or ():
        left = [f"{one.entry.text} ({one.client})" for one in sessions_of([found], options.gone)]
        if not left and not found.problem:
            continue
        name = found.name or "all filesystems"
        finding = Finding(
            control=CONTROL,
            severity="major",
            kind="CephFS",
            name=name,
            node="",
            summary=f"{few(left)} still has a session at {name}"
            if left
            else f"who has a session at {name} is not known",
            evidence={"problem": found.problem, "sessions": sorted(left)},
        )
        if left:
            finding.refuse(
                Reason(
                    "ceph_session_left",
                    f"{state.waited:.0f} s after that should have ended: see whether its address "
                    "is in the blocklist. The metadata server may still do what the client asks "
                    "for",
                )
            )
        else:
            why = f"nothing may be concluded from it: {found.problem}"
            finding.leave(Reason("ceph_not_read", why))
        findings.append(finding)
    return findings


def _told_files(files: tuple[FileSystem, ...] | None) -> str:
    if files is None:
        return ""
    return f"; {len(files)} CephFS with {sum(len(found.sessions) for found in files)} sessions"


def to_result(state: WatcherState, roots: frozenset[str] = frozenset()) -> dict[str, Any]:
    """What was read, as plain data. ``roots``: the folders of the volumes of CephFS."""
    # Those with a watch that was always there, on any image.
    staying = {
        watcher.client
        for image in state.images
        for watcher, seen in image.watchers
        if seen == state.observations > 1
    }
    # Cookies are 64-bit numbers, which JSON readers may round, so they are passed as text.
    return {
        "fsid": state.blocklist.fsid,
        "read_at": state.read_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "observations": state.observations,
        "seconds": round(state.seconds, 1),
        "families": list(state.families),
        "blocklist": state.blocklist.to_result(state.read_at),
        "images": [_image(image, state.observations, staying) for image in state.images],
        # What was not asked for is missing, since an empty list would say that there is none.
        **(
            {}
            if state.files is None
            else {"filesystems": [files_result(found, roots) for found in state.files]}
        ),
    }


def _few(items: Iterable[_T], kind: Callable[[_T], Any]) -> list[_T]:
    """The first of each kind."""
    counts: Counter[Any] = Counter()
    kept = []
    for item in items:
        counts[kind(item)] += 1
        if counts[kind(item)] <= _MOST_ALIKE:
            kept.append(item)
    return kept


def _image(image: Observed, observations: int, staying: set[int]) -> dict[str, Any]:
    pool, namespace, name = image.target.spec

    def is_mirror(watcher: Watcher) -> bool:
        return (watcher.entry, watcher.client) in image.details.mirrors

    # Who has a key for an image can open and lock it any number of times, also from one address.
    # Decisions ask for addresses, for who is there all the time, there or on another image, who is
    # a mirror, and who is the kernel's.
    watchers = _few(
        image.watchers,
        lambda found: (
            found[0].entry.address,
            found[1] == observations > 1,
            found[0].client in staying,
            is_mirror(found[0]),
            found[0].cookie in KERNEL_COOKIES,
        ),
    )
    locks = _few(image.details.locks, lambda lock: lock.entry.address)
    return {
        "volume": image.target.volume,
        "pool": pool,
        "namespace": namespace,
        "image": name,
        "problem": image.problem,
        "features": list(image.details.features),
        "watchers": [
            {
                "address": watcher.entry.address,
                "entry": watcher.entry.text,
                "client": f"client.{watcher.client}",
                "cookie": str(watcher.cookie),
                "seen": seen,
                # The same client with the same cookie: a client that opens the image again
                # registers another watch, with another cookie.
                "persistent": seen == observations > 1,
                "mirror": is_mirror(watcher),
            }
            for watcher, seen in watchers
        ],
        "more_watchers": len(image.watchers) - len(watchers),
        "locks": [
            {"locker": lock.locker, "address": lock.entry.address, "entry": lock.entry.text}
            for lock in locks
        ],
        "more_locks": len(image.details.locks) - len(locks),
        "client_addresses": [
            {"node": node, "address": address} for node, address in image.details.notes
        ],
    }


def make_options(params: dict[str, Any]) -> WatcherOptions:
    """Options of the audit, checked."""
    # So that it ends.
    check_numbers(
        params,
        {"observations": (1, 1000), "observation_seconds": (0, 3600), "gone_timeout": (0, 3600)},
    )
    if params["observations"] > 1 and not params["observation_seconds"] > 0:
        raise BadOption("several observations at once prove nothing: give observation_seconds")
    targets = [
        Target("", item["pool"], item["namespace"] or "", item["image"])
        for item in params["images"]
    ]
    ignored = []
    namespaces = {
        str(cluster): namespace for cluster, namespace in (params["rados_namespaces"] or {}).items()
    }
    if not all(isinstance(namespace, str) for namespace in namespaces.values()):
        raise BadOption(
            "rados_namespaces is not a dictionary of clusterIDs and names of RADOS namespaces: "
            '{"rook-ceph": "tenant-a"}'
        )
    for volume in params["volumes"]:
        target = image_of(volume, namespaces)
        if target:
            targets.append(target)
        else:
            ignored.append(str(volume["metadata"]["name"]))
    return WatcherOptions(
        tuple(dict.fromkeys(targets)),
        tuple(ignored),
        params["observations"],
        params["observation_seconds"],
        tuple(parse_entry(text) for text in params["gone"]),
        params["gone_timeout"],
        params["sessions"],
        frozenset(filter(None, map(root_of, params["volumes"]))),
    )
