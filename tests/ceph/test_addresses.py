# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses: whatever is written means what the monitor stores, or is refused.

The monitor is a real one.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab.ceph import release
from lab.ceph.cluster import Ceph
from lab.common import patient

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.addresses import (
    RANGE,
    Entry,
    parse_entry,
    parse_stored,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.blocklist import (
    ADD,
    REMOVE,
    Step,
    parse_dump,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)

# Ceph's own tool takes 0.2 s for each command, most of it for its start. Like it, but one process
# for all of them.
MONITOR = """
import json, sys
import rados
cluster = rados.Rados(conffile=sys.argv[1], name="client.admin")
cluster.connect(timeout=100)
for line in sys.stdin:
    rc, out, said = cluster.mon_command(line, b"", timeout=100)
    print(json.dumps([rc, out.decode(), said]), flush=True)
"""
EXPIRE = 604_800


class Monitor:
    """The monitor, asked by librados."""

    def __init__(self, ceph: Ceph) -> None:
        self.word, self.ranges = ceph.word, ceph.ranges
        command = [release.python(), "-c", MONITOR, str(ceph.conf)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
        )

    def ask(self, **command: Any) -> tuple[int, str]:
        """Exit status, and what it said."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        rc, out, said = json.loads(self.process.stdout.readline())
        return rc, out or said

    def run(self, step: Step) -> None:
        """A step, just as the module would have it run."""
        _osd, _word, *rest = step.arguments(self.word)
        ranged = {"range": rest.pop(0)} if rest[0] == "range" else {}
        operation, address, *expire = rest
        expiry = {"expire": float(expire[0])} if expire else {}
        rc, said = self.change(operation, address, **ranged, **expiry)
        assert rc == 0, said

    def change(self, operation: str, address: str, **more: Any) -> tuple[int, str]:
        """Exit status of ``osd blocklist``, and what it said."""
        given = {f"{self.word}op": operation, "addr": address, **more}
        return self.ask(prefix=f"osd {self.word}", **given)

    def dump(self) -> dict[str, Any]:
        """The OSD map."""
        found: dict[str, Any] = json.loads(self.ask(prefix="osd dump", format="json")[1])
        return found

    def stored(self) -> list[tuple[str, bool]]:
        """The entries as Ceph spells them, and whether they are ranges."""
        dump = self.dump()
        found = [(text, False) for text in dump[self.word]]
        found += [(text, True) for text in dump.get(f"range_{self.word}", {})]
        assert len(parse_dump(dump).entries) == len(found)
        return found


@pytest.fixture(scope="module")
def monitor(ceph: Ceph) -> Iterator[Monitor]:
    """The monitor of an empty cluster."""
    ceph.reset()
    monitor = Monitor(ceph)
    yield monitor
    assert monitor.process.stdin is not None
    monitor.process.stdin.close()
    monitor.process.wait(patient(10))


def check(monitor: Monitor, written: str) -> Entry | None:
    """The entry that a text means: it is what the monitor stores, and it goes again.

    None if the text is refused.
    """
    try:
        entry = parse_entry(written)
    except StorageOpsError:
        return None
    if entry.kind == RANGE and not monitor.ranges:
        # ceph_blocklist refuses it there, whatever it is.
        return entry
    monitor.run(Step(ADD, entry.kind, entry.text, EXPIRE))
    ((stored, is_range),) = monitor.stored()
    assert parse_stored(stored, is_range) == entry and is_range == (entry.kind == RANGE)
    host = (
        f"[{entry.network.network_address}]"
        if entry.network.version == 6
        else str(entry.network.network_address)
    )
    assert stored == (f"cidr:{host}:0/{entry.network.prefixlen}" if is_range else entry.text)
    monitor.run(Step(REMOVE, entry.kind, entry.text))
    assert monitor.stored() == []
    return entry


@pytest.mark.smoke
@pytest.mark.parametrize(
    "written",
    [
        *(
            "10.0.0.5",
            "v1:10.0.0.5",
            "10.0.0.5:0/0",
            "10.0.0.5:0/00012",
            "any:10.0.0.5:0/4294967295",
            "10.0.0.7/24",
            "10.0.0.5/32",
        ),
        *(
            "FD00:0::A",
            "[fd00::5]",
            "[fd00::5]:0/12",
            "fd00::5/64",
            "cidr:[fd00::5]:0/64",
            "2001::5:0:0:0/80",
            "2001:db8:0:1:1:1:1:1",
        ),
        *(
            "::1",
            "fd00::1:0:0:0:0",
            "64:ff9b::a00:5",
            "fe80::1",
            "255.255.255.255",
            "169.254.0.1/32",
        ),
    ],
)
def test_what_is_understood(monitor: Monitor, written: str) -> None:
    assert check(monitor, written) is not None


@pytest.mark.parametrize(
    "written",
    [
        "10.0.0.0/24",
        "::ffff:10.0.0.5",
        "10.0.0.5:0/0x10",
        "10.0.0.5:0/-1",
        "10.0.0.5foo",
        "-",
        "fe80::1%eth0",
    ],
)
def test_what_ceph_itself_misreads(monitor: Monitor, written: str) -> None:
    """Without our reading of it, each of these is stored as something else, or refused: Ceph 16
    takes all of them, Ceph 18 some.
    """
    rc, said = monitor.change("add", written, expire=1.0)
    dump = monitor.dump()
    assert (rc, len(dump[monitor.word])) in ((0, 1), (-errno.EINVAL, 0)), said
    assert written not in dump[monitor.word] and not dump.get(f"range_{monitor.word}")
    for stored in dump[monitor.word]:
        # An entry without an address, which each release spells in its own way.
        nothing = stored.startswith(("(", ":/"))
        said = "-" if nothing else stored.replace("::255.255.0.16", "::ffff:10")
        monitor.change("rm", said)
    assert monitor.stored() == []
    understood = check(monitor, written)
    assert understood is None or understood.kind == RANGE


# Mostly well formed, with all that people write; then parts of it in any order; then anything.
FOUR = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=4, network="10.0.0.0/8")).map(str)
SIX = st.one_of(
    st.ip_addresses(v=6).map(str),
    st.ip_addresses(v=6).map(lambda ip: ip.exploded.upper()),
    st.lists(st.sampled_from(["0", "0", "1", "ffff", "a0"]), min_size=8, max_size=8).map(":".join),
    st.ip_addresses(v=6, network="::/80").map(str),
)
NONCES = st.one_of(st.integers(0, 200), st.integers(0, 2**32 - 1)).map(lambda nonce: f":0/{nonce}")
TYPES = st.sampled_from(["", "", "v1:", "v2:", "any:"])
WELL_FORMED = st.one_of(
    st.builds(lambda *parts: "".join(parts), TYPES, FOUR, st.one_of(st.just(""), NONCES)),
    st.builds(
        lambda kind, host, nonce: f"{kind}[{host}]{nonce}",
        TYPES,
        SIX,
        st.one_of(st.just(""), NONCES),
    ),
    st.builds(lambda host, prefix: f"{host}/{prefix}", FOUR, st.integers(14, 33)),
    st.builds(lambda host, prefix: f"{host}/{prefix}", SIX, st.integers(44, 130)),
    SIX,
)
PARTS = st.one_of(
    FOUR,
    SIX,
    NONCES,
    TYPES,
    st.sampled_from(
        ["cidr:", "[", "]", ":", ":0", "/", "%eth0", " ", "-1", "0x10", "/24", ":3300"]
    ),
)
TEXTS = st.one_of(
    WELL_FORMED,
    WELL_FORMED,
    st.lists(PARTS, max_size=4).map("".join),
    st.text(alphabet="0123456789abf.:/[]v", max_size=30),
    st.text(),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_any_text_means_what_the_monitor_stores_or_is_refused(
    monitor: Monitor, written: str
) -> None:
    check(monitor, written)
