# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which volumes of CephFS join the fence of a node that has RBD volumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ceph_reading import (
    parse_reading,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    ANNOTATION,
    FenceObject,
    Ledger,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    MESSAGES,
    NetworkFence,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.power import parse_power
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import (
    AttachedVolume,
    NodeState,
    attached_volume,
    pick_host_record,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing import plan as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.options import (
    Decision,
    FenceOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import ServerVersion
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import Attachment
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import (
    LEDGER,
    MACHINE,
    blocked,
    image,
    looks,
    watcher,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
RBD, CEPHFS = "rbd.csi.ceph.com", "cephfs.csi.ceph.com"
A, B, OTHER = "10.0.0.5", "10.0.0.6", "192.168.7.9"
ROOT = "/volumes/csi/csi-vol-1/5a4b"
# The fence is in the blocklist, and meant for the node alone.
FENCED = LEDGER._replace(network_fences=(), at=f"{NOW:%Y-%m-%dT%H:%M:%SZ}")


def node(name: str, ready: str, *addresses: str, created: str = "") -> dict[str, Any]:
    since = f"{NOW - timedelta(seconds=300):%Y-%m-%dT%H:%M:%SZ}"
    made = {"creationTimestamp": created} if created else {}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", **made},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}],
            "addresses": [{"type": "InternalIP", "address": address} for address in addresses],
            "nodeInfo": {"bootID": "boot-1"},
        },
    }


def attachment(name: str, driver: str, on: str) -> Attachment:
    uid = f"uid-{name}-{on}"
    return Attachment(f"va-{name}-{on}", uid, driver, on, name, True, (), None, None, NOW, None, ())


def volume(
    name: str,
    driver: str = CEPHFS,
    cluster_id: str = "c1",
    modes: Sequence[str] = ("ReadWriteMany",),
    elsewhere: str = "",
    **attributes: str,
) -> AttachedVolume:
    item = {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "accessModes": list(modes),
            "csi": {
                "driver": driver,
                "volumeHandle": name,
                "volumeAttributes": {"clusterID": cluster_id, **attributes},
            },
            "claimRef": {"namespace": "shop", "name": name},
        },
    }
    other = [attachment(name, driver, elsewhere)] if elsewhere else []
    return attached_volume(attachment(name, driver, "a"), item, other)


DISK = volume("v", RBD, modes=("ReadWriteOnce",))
FILES = volume("files", fsName="files", subvolumePath=ROOT)


def session(address: str = A, hostname: str = "elsewhere", root: str = "/") -> dict[str, Any]:
    return {
        "address": address,
        "entry": f"{address}:0/11",
        "client": "client.9",
        "hostname": hostname,
        "program": "kernel",
        "root": root,
        "more": 0,
    }


def filesystem(*sessions: dict[str, Any], name: str = "files", problem: str = "") -> dict[str, Any]:
    return {"name": name, "problem": problem, "sessions": list(sessions)}


def options(filesystems: Any = None, disk: Any = None, **given: Any) -> FenceOptions:
    """After the fence. ``filesystems``: None when they were not read."""
    data = {
        "fsid": "f1",
        "read_at": f"{NOW:%Y-%m-%dT%H:%M:%SZ}",
        "observations": 2,
        "seconds": 3.0,
        "families": ["IPv4"],
        "blocklist": [blocked(A)],
        "images": [disk or image()],
        **({} if filesystems is None else {"filesystems": filesystems}),
    }
    return FenceOptions("a", "run-2", "host", **{"reading": parse_reading(data), **given})


def confirm(
    given: FenceOptions,
    *attached: AttachedVolume,
    ledger: Ledger = FENCED,
    addresses: Sequence[str] = (A,),
    created: str = "",
    fences: Any = None,
    used: Sequence[AttachedVolume] = (),
) -> Decision:
    item = node("a", "Unknown", *addresses, created=created)
    item["metadata"]["annotations"] = {ANNOTATION: ledger.text}
    found = NodeState(
        NOW,
        ServerVersion(1, 31, 4, "v1.31.4"),
        pick_host_record(item),
        item,
        (DISK, *(attached or (() if used else (FILES,)))),
        (pick_host_record(node("b", "True", B)),),
        fences,
        ledger,
        used=tuple(used),
    )
    return pure.confirm(found, given)


def joined(decision: Decision) -> tuple[str, ...]:
    assert decision.ledger and decision.ledger.phase == "fenced"
    return decision.ledger.volumes


def left(decision: Decision) -> Finding:
    """The finding about the volume that stays; the fence of the RBD volume is proven all the
    same.
    """
    assert joined(decision) == ("v",)
    fence, finding = decision.plan.findings
    assert [action.verb for action in fence.repair] == ["record_fence"]
    assert (finding.kind, finding.verdict, finding.repair) == ("PersistentVolume", "report", [])
    return finding


GONE = options([filesystem(session(B, "b"))])


def test_a_volume_joins_once_no_session_of_the_node_is_left() -> None:
    decision = confirm(GONE)
    assert joined(decision) == ("files", "v")
    assert [finding.verdict for finding in decision.plan.findings] == ["repair"]


# Its driver says attachRequired: false, and a pod on the node uses it.
UNATTACHED = FILES._replace(attachment=FILES.attachment._replace(name="", attached=False))


def test_a_volume_that_its_driver_never_attaches_joins_in_the_same_way() -> None:
    assert joined(confirm(GONE, used=[UNATTACHED])) == ("files", "v")
    finding = left(confirm(options([filesystem(session(A))]), used=[UNATTACHED]))
    assert finding.code == "ceph_session_left"
    assert "may have it open, although it is not attached there" in finding.summary
    assert left(confirm(options(), used=[UNATTACHED])).code == "ceph_not_read"
    # A pod of another machine, which had the node's name, uses it.
    older = UNATTACHED._replace(used_by_older_pod=True)
    assert left(confirm(GONE, used=[older])).code == "fence_incomplete"
    given = replace(GONE, volumes=frozenset({"v"}))
    assert left(confirm(given, used=[UNATTACHED])).code == "volume_not_fenced"


def test_a_node_with_nothing_but_cephfs_is_fenced_by_its_power_alone() -> None:
    """Nothing of Ceph shows from where it has that, attached or not."""
    item = node("a", "Unknown", A)
    host = pick_host_record(item)._replace(machine=MACHINE)
    for attached, used in (((FILES,), ()), ((), (UNATTACHED,))):
        found = NodeState(
            *(NOW, ServerVersion(1, 31, 4, "v1.31.4"), host, item),
            *(attached, (pick_host_record(node("b", "True", B)),), None, None),
            used=used,
        )
        (finding,) = pure.intend(found, replace(GONE, power=())).plan.findings
        assert (finding.verdict, finding.code) == ("refuse", "nothing_to_repair")
        assert f"It has files ({CEPHFS}), and for these alone nothing is fenced" in finding.reason
        assert "use method external or power" in finding.reason
        power = parse_power(looks({"state": "on", "read_at": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}))
        by_power = FenceOptions("a", "run-2", "host", method="power", power=power)
        decision = pure.intend(found, by_power)
        assert decision.ledger and decision.ledger.volumes == ("files",), decision


def test_a_second_run_finds_it_as_it_is() -> None:
    first = confirm(GONE).ledger
    assert first
    assert confirm(GONE, ledger=first).plan.findings == []


def test_what_joins_a_fence_that_was_ended_has_still_to_leave() -> None:
    ended = FENCED._replace(phase="detached")
    decision = confirm(GONE, ledger=ended)
    assert joined(decision) == ("files", "v")


def test_a_volume_that_came_after_the_run_had_begun_does_not_join() -> None:
    # No metadata server was asked about it, or what was asked was shown without it.
    given = options([filesystem(session(B, "b"))], volumes=frozenset({"v"}))
    assert left(confirm(given)).code == "volume_not_fenced"
    given = options([filesystem(session(B, "b"))], volumes=frozenset({"v", "files"}))
    assert joined(confirm(given)) == ("files", "v")


def test_others_that_share_the_volume_do_not_matter() -> None:
    shared = volume("files", elsewhere="b", fsName="files", subvolumePath=ROOT)
    given = options([filesystem(session(B, "b", ROOT), session(OTHER, "backup", ROOT))])
    assert joined(confirm(given, shared)) == ("files", "v")


@pytest.mark.parametrize(
    "found",
    [
        session(A),
        # It calls itself what the node is called, wherever it is.
        session(OTHER, "a"),
        session(OTHER, "A.example.com"),
    ],
)
def test_a_session_of_the_node_is_left(found: dict[str, Any]) -> None:
    finding = left(confirm(options([filesystem(session(B, "b"), found)])))
    assert finding.code == "ceph_session_left"
    assert f"{found['entry']} (client.9, kernel) at files" in finding.reason


def test_a_stranger_at_a_volume_that_only_this_node_has() -> None:
    alone = volume("files", modes=("ReadWriteOnce",), fsName="files", subvolumePath=ROOT)
    theirs = network_fence(RBD, "c1")._replace(
        name="storage-ops-b", cidrs=(f"{B}/32",), addresses_from="option"
    )
    stranger = [filesystem(session(OTHER, "x", f"{ROOT}/"))]
    assert left(confirm(options(stranger), alone)).code == "ceph_session_left"
    # It is known who that is, or it has another folder.
    known = options(stranger, other_addresses=(OTHER,))
    assert joined(confirm(known, alone)) == ("files", "v")
    # What that node says of itself proves nothing; what the user says of it does.
    owner = options([filesystem(session(B, "a", ROOT))])
    assert left(confirm(owner, alone)).code == "ceph_session_left"
    assert joined(confirm(owner, alone, fences=(theirs,))) == ("files", "v")
    another = options([filesystem(session(OTHER, "x", "/volumes/csi/csi-vol-2"))])
    assert joined(confirm(another, alone)) == ("files", "v")


@pytest.mark.parametrize(
    ("filesystems", "why"),
    [
        (None, "the sessions at the metadata servers were not read"),
        ([], "there is no files in the Ceph"),
        ([filesystem(name="other")], "there is no files in the Ceph"),
        ([filesystem(problem="its metadata server of rank 0 is up:replay")], "is up:replay"),
        ([filesystem(name="", problem="access denied")], "access denied"),
    ],
)
def test_what_is_not_known_is_not_covered(filesystems: Any, why: str) -> None:
    finding = left(confirm(options(filesystems)))
    assert finding.code == "ceph_not_read" and why in finding.reason


def test_a_filesystem_that_the_volume_is_not_in_does_not_matter() -> None:
    broken = filesystem(name="other", problem="damaged")
    given = options([filesystem(), broken])
    assert joined(confirm(given)) == ("files", "v")
    # Which one it is in, this volume does not tell.
    assert left(confirm(given, volume("files"))).code == "ceph_not_read"
    both = options([filesystem(), filesystem(session(A), name="other")])
    assert joined(confirm(both)) == ("files", "v")
    assert left(confirm(both, volume("files"))).code == "ceph_session_left"


@pytest.mark.parametrize(
    ("found", "is_same"),
    [
        # By the fsid itself, by the RBD volume of the same ceph-csi, by the user's word.
        (volume("files", cluster_id="F1", fsName="files"), True),
        (volume("files", cluster_id="c1", fsName="files"), True),
        (volume("files", cluster_id="c2", fsName="files"), False),
        (volume("files", cluster_id="", fsName="files"), False),
        # Another ceph-csi may call another Ceph by that name.
        (volume("files", driver=f"rook.{CEPHFS}", fsName="files"), False),
    ],
)
def test_the_ceph_that_was_read_is_the_one_of_the_volume(
    found: AttachedVolume, is_same: bool
) -> None:
    decision = confirm(GONE, found)
    if is_same:
        assert joined(decision) == ("files", "v")
    else:
        assert left(decision).code == "ceph_reading_unfit"


def test_an_image_that_is_not_of_the_fence_shows_no_ceph() -> None:
    other = volume("w", RBD, cluster_id="c2", modes=("ReadWriteOnce",))
    files = volume("files", cluster_id="c2", fsName="files")
    assert left(confirm(GONE, other, files)).code == "ceph_reading_unfit"
    both = confirm(GONE, other, files, ledger=FENCED._replace(volumes=("v", "w")))
    (finding,) = both.plan.findings
    assert finding.code == "ceph_not_read" and both.ledger and both.ledger.phase == "intended"


def test_the_cluster_id_of_the_user() -> None:
    mine = replace(GONE, cluster_id="c1")
    assert joined(confirm(mine, FILES)) == ("files", "v")
    # What is not meant is not told either.
    away = confirm(replace(GONE, cluster_id="c9"), FILES)
    assert joined(away) == ("v",) and len(away.plan.findings) == 1


def test_the_whole_node_must_be_fenced() -> None:
    # An address that the fence does not have.
    finding = left(confirm(GONE, addresses=(A, OTHER)))
    assert finding.code == "fence_incomplete" and f"{OTHER} is not in the fence" in finding.reason
    # The node is where Ceph shows it alone, so it may have others.
    strange = FENCED._replace(
        addresses=(A, OTHER),
        entries=(*FENCED.entries, FENCED.entries[0]._replace(entry=OTHER)),
        source={A: "status", OTHER: "watcher"},
    )
    given = options([filesystem()])
    assert given.reading
    there = parse_reading(
        {
            "fsid": "f1",
            "read_at": f"{NOW:%Y-%m-%dT%H:%M:%SZ}",
            "observations": 2,
            "seconds": 3.0,
            "families": ["IPv4"],
            "blocklist": [blocked(A), blocked(OTHER)],
            "images": [image()],
            "filesystems": [filesystem()],
        }
    )
    assert left(confirm(replace(given, reading=there), ledger=strange)).code == "fence_incomplete"
    named = replace(given, reading=there, fence_addresses=(A, OTHER))
    assert joined(confirm(named, ledger=strange)) == ("files", "v")
    # No address is the node's own.
    assert left(confirm(GONE, addresses=())).code == "fence_incomplete"


def test_a_ceph_of_both_families_needs_the_fence_of_both() -> None:
    """A client may be at an address of either, and nothing tells of which one."""
    both = replace(GONE, reading=GONE.reading._replace(families=frozenset({"IPv4", "IPv6"})))
    finding = left(confirm(both))
    assert finding.code == "fence_incomplete" and "no IPv6 address" in finding.reason
    # A client may be older than the monitors.
    assert "fd00::5 is not" in left(confirm(GONE, addresses=(A, "fd00::5"))).reason
    assert "fd00::5 is not in the fence" in left(confirm(both, addresses=(A, "fd00::5"))).reason


def test_what_the_machine_of_before_may_have() -> None:
    finding = left(confirm(GONE, created="2026-01-01T13:00:00Z"))
    assert finding.code == "fence_incomplete" and "before this Node object" in finding.reason
    finding = left(confirm(GONE, FILES._replace(used_by_older_pod=True)))
    assert finding.code == "fence_incomplete" and "a pod uses it that is older" in finding.reason


@pytest.mark.parametrize(
    "found",
    [
        FILES._replace(too_late=True),
        FILES._replace(volume=None),
        volume("files", "nfs.csi.ceph.com"),
        volume("files", "notcephfs.csi.ceph.com"),
    ],
)
def test_what_is_left_as_any_other_volume(found: AttachedVolume) -> None:
    decision = confirm(GONE, found)
    assert joined(decision) == ("v",) and len(decision.plan.findings) == 1


def test_neither_check_mode_nor_a_node_that_is_off_has_it_judged() -> None:
    for given in (GONE, options(None), replace(GONE, reading=None)):
        checked = confirm(replace(given, check=True))
        assert joined(checked) == ("v",) and len(checked.plan.findings) == 1
    none = FENCED._replace(method="none", addresses=(), entries=(), source={})
    off = confirm(replace(GONE, method="none", node_confirmed_off=True), ledger=none)
    assert joined(off) == ("v",) and len(off.plan.findings) == 1


def test_a_fence_that_is_not_proven_has_no_files() -> None:
    held = options([filesystem()], disk=image(watchers=[watcher()]))
    decision = confirm(held)
    (finding,) = decision.plan.findings
    assert finding.code == "ceph_watcher_left" and decision.ledger == FENCED


def test_a_session_contradicts_a_fence_that_has_the_volume() -> None:
    known = confirm(GONE).ledger
    assert known
    decision = confirm(options([filesystem(session(A))]), ledger=known)
    (finding,) = decision.plan.findings
    assert (finding.verdict, finding.code) == ("refuse", "ceph_session_left")
    # That it cannot be read any more does not.
    unread = confirm(options([filesystem(problem="no answer")]), ledger=known)
    assert unread.plan.findings == [] and unread.ledger == known


def network_fence(driver: str, cluster_id: str) -> NetworkFence:
    return NetworkFence(
        "nf",
        "uid-nf",
        driver,
        cluster_id,
        (f"{A}/32",),
        "Unfenced",
        "Succeeded",
        MESSAGES["Unfenced"],
        NOW,
        None,
        "",
        "driver",
    )


def test_a_network_fence_that_would_undo_it() -> None:
    opposing = network_fence(CEPHFS, "c7")
    assert left(confirm(GONE, fences=(opposing,))).code == "network_fence_opposed"


def test_a_network_fence_that_is_still_to_be_set() -> None:
    """Nothing is read of Ceph before, and so nothing is said of the volume."""
    noted = (FenceObject("nf", "uid-nf", (f"{A}/32",), True),)
    ledger = FENCED._replace(method="network_fence", entries=(), network_fences=noted)
    given = replace(GONE, reading=None, proof="ceph")
    decision = confirm(given, ledger=ledger, fences=(network_fence(RBD, "c1"),))
    (finding,) = decision.plan.findings
    assert [action.verb for action in finding.repair] == ["fence_network"]


def test_a_reading_that_is_cut() -> None:
    for broken in ({"name": "files", "problem": ""}, {**filesystem(), "sessions": [{}]}):
        with pytest.raises(StorageOpsError, match="is missing"):
            options([broken])
