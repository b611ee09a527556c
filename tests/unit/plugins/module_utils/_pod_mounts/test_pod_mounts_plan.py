# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is decided about pods' mounts, from plain mountinfo."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import VolumeNote
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    MountTable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.processes import Process
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.renewed import Renewed
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts import plan as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts import (
    stacks,
    wrong_mounts,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.backing import (
    Backing,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.model import (
    PodMountOptions,
    PodMountState,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.runbook import (
    PodMounts,
    _owners,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.mountinfo import (
    parse_mountinfo,
)

ROOT = "/var/lib/kubelet"
UID = "0a1b2c3d-1111-2222-3333-444455556666"
# One that is known to bind from its staging mount.
DRIVER = "rbd.csi.ceph.com"
A, B = "253:1", "253:2"
DOWN = Reason("transport_outage", "a path is down: sda: blocked")


def staging(volume: str) -> str:
    handle = hashlib.sha256(f"vol-{volume}".encode()).hexdigest()
    return f"{ROOT}/plugins/kubernetes.io/csi/{DRIVER}/{handle}/globalmount"


def publish(volume: str = "pv-a", uid: str = UID) -> str:
    return f"{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount"


class Lines:
    """A mountinfo file in the making."""

    def __init__(self) -> None:
        self.lines = ["1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw"]
        self.tops = {"/": 1}

    def add(
        self,
        point: str,
        device: str = A,
        root: str = "/",
        options: str = "rw",
        fstype: str = "ext4",
        super_options: str = "rw",
    ) -> int:
        number = len(self.lines) + 1
        above = max(
            (at for at in self.tops if point == at or point.startswith(f"{at.rstrip('/')}/")),
            key=len,
        )
        source = f"/dev/mapper/{device}" if fstype in ("ext4", "xfs") else fstype
        self.lines.append(
            f"{number} {self.tops[above]} {device} {root} {point} {options} - {fstype} {source} "
            f"{super_options}"
        )
        self.tops[point] = number
        return number

    def state(self, **more: Any) -> PodMountState:
        table = MountTable(parse_mountinfo("\n".join(self.lines), "1"))
        bare = PodMountState("node1", ROOT, table, {})
        notes = {
            place.note: VolumeNote(DRIVER, f"vol-{place.volume}", place.volume)
            for place in bare.places("publish")
        }
        notes |= {
            place.note: VolumeNote(DRIVER, f"vol-{place.volume}")
            for place in bare.places("staging")
            if place.volume
        }
        return PodMountState("node1", ROOT, table, **{"notes": notes, **more})


def stacked(*layers: tuple[str, str], **more: Any) -> Lines:
    """A volume that is staged, and these layers (device, root) at its pod's mount point."""
    lines = Lines()
    lines.add(staging("pv-a"))
    for device, root in layers:
        lines.add(publish(), device, root, **more)
    return lines


def found(state: PodMountState, **options: Any) -> list[Finding]:
    return pure.plan(state, PodMountOptions(**{"accept_majority": True, **options})).findings


def only(state: PodMountState, **options: Any) -> Finding:
    (finding,) = found(state, **options)
    return finding


def taken(finding: Finding) -> list[int]:
    """Numbers of the mounts that are taken off, in order."""
    return [action.subject.mount.id for action in finding.repair]


def test_a_filesystem_that_several_tenants_have_is_asked_in_the_turn_of_each() -> None:
    """As one of NFS, which has one superblock for all its mounts. The first tenant may have any
    number of others that hang.
    """
    other = UID[:-1] + "7"
    lines = Lines()
    lines.add(staging("pv-a"))
    lines.add(staging("pv-b"), B)
    for uid in (UID, other):
        lines.add(publish(uid=uid))
    owners = _owners(lines.state(namespaces={UID: "evil", other: "victim"}))
    assert owners == {A: ("evil", "victim"), B: "?"}


def test_controls_of_a_node_without_volumes() -> None:
    both = ["STOR-07", "STOR-08"]
    assert list(pure.not_applicable(Lines().state())) == both
    assert pure.not_applicable(stacked((A, "/")).state()) == {}
    # Staged for a pod that is about to start.
    assert list(pure.not_applicable(stacked().state())) == ["STOR-07"]
    # A filesystem of a server does not turn read-only by itself.
    served = Lines()
    served.add(publish(), "0:60", fstype="nfs4")
    assert list(pure.not_applicable(served.state())) == ["STOR-08"]
    bare = Lines().state()
    assert list(pure.not_applicable(PodMountState("node1", "", bare.table, {}))) == both


@pytest.mark.parametrize("layers", [[(A, "/")], [(A, "/sub/folder")], [(A, "/sub//deleted")]])
def test_right_mounts(layers: list[tuple[str, str]]) -> None:
    assert found(stacked(*layers).state()) == []


@pytest.mark.parametrize(
    ("layers", "gone"),
    [
        ([(A, "/"), (B, "/")], [4]),
        ([(A, "/"), (B, "/"), (B, "/other")], [5, 4]),
        ([(A, "/"), (A, "/")], [4]),
        ([(A, "/"), (A, "/"), (A, "/")], [5, 4]),
        ([(A, "/"), (A, "/"), (B, "/")], [5, 4]),
        ([(A, "/sub"), (A, "/sub")], [4]),
        ([(A, "/"), (B, "/"), (A, "/")], [5, 4]),
    ],
)
def test_exactly_the_wrong_layers_on_top(layers: list[tuple[str, str]], gone: list[int]) -> None:
    finding = only(stacked(*layers).state())
    assert (finding.control, finding.verdict, taken(finding)) == ("STOR-07", "repair", gone)
    assert finding.repair[0].command == ["umount2", publish(), "UMOUNT_NOFOLLOW"]
    devices = [device for device, _root in layers]
    assert finding.severity == (
        "critical" if devices[-1] != A else "minor" if set(devices) == {A} else "major"
    )


@pytest.mark.parametrize("layers", [[(B, "/")], [(B, "/"), ("253:3", "/")]])
def test_nothing_goes_unless_the_volume_remains_below_it(layers: list[tuple[str, str]]) -> None:
    """A container that starts before the kubelet mounts again would get an empty folder."""
    finding = only(stacked(*layers).state())
    assert (finding.severity, finding.verdict, finding.repair) == ("critical", "refuse", [])
    assert "the volume is not below it" in finding.reason
    assert finding.workload == {
        "volume": "pv-a",
        "driver": DRIVER,
        "handle": "vol-pv-a",
        "pods": [UID],
    }


# mounts that fuse_remount has renewed

OURS, STAGED_ANEW = "0:60", "0:70"
NOTED = Renewed(publish(), OURS, "/", "fuse.s3fs", "fuse.s3fs")


class Renewing(Lines):
    """A pod has the mount that was made for it, and its driver has staged the volume again."""

    def __init__(self) -> None:
        super().__init__()
        self.add(staging("pv-a"), STAGED_ANEW, fstype="fuse.s3fs")
        self.add(publish(), OURS, fstype="fuse.s3fs")

    def noted(self, *notes: Renewed, **more: Any) -> PodMountState:
        answers = {device: Answer("ok") for device in (OURS, STAGED_ANEW)}
        return self.state(answers=answers, renewed=frozenset(notes), **more)


@pytest.mark.parametrize("driver", ["", "staging", "elsewhere"])
def test_a_renewed_mount_is_the_volume_though_it_is_staged_anew(driver: str) -> None:
    """Else its healthy pod would be moved off the node."""
    state = Renewing().noted(NOTED, publish_from={DRIVER: driver})
    assert found(state) == []
    wrong = only(Renewing().noted())
    assert wrong.severity == "critical" and wrong.workload


@pytest.mark.parametrize(
    "changes",
    [
        {"point": publish("pv-b")},
        {"point": publish(uid=UID[:-1] + "7")},
        {"device": STAGED_ANEW},
        {"root": "/folder"},
        {"fstype": "fuse.rclone"},
        {"source": "bucket"},
    ],
)
def test_a_mount_that_is_not_as_it_was_noted_is_wrong(changes: dict[str, str]) -> None:
    finding = only(Renewing().noted(NOTED._replace(**changes)))
    assert (finding.severity, finding.evidence["layers"][0]["is"]) == ("critical", "wrong")


def test_a_noted_device_that_is_staged_for_another_volume_is_wrong() -> None:
    """Its number was given to another filesystem, once its own had gone."""
    lines = Renewing()
    lines.add(staging("pv-b"), OURS, fstype="fuse.s3fs")
    finding = only(lines.noted(NOTED))
    assert (finding.severity, finding.evidence["layers"][0]["is"]) == ("critical", "wrong")


def test_what_is_mounted_over_a_renewed_mount_is_wrong() -> None:
    lines = Renewing()
    lines.add(publish(), B)
    finding = only(lines.noted(NOTED))
    assert [layer["is"] for layer in finding.evidence["layers"]] == ["the volume", "wrong"]
    assert (finding.severity, taken(finding)) == ("critical", [4])
    # The volume as it is staged by now: which of the two the pod should have is not known.
    lines = Renewing()
    lines.add(publish(), STAGED_ANEW, fstype="fuse.s3fs")
    finding = only(lines.noted(NOTED))
    assert (finding.verdict, finding.repair) == ("refuse", [])


UNKNOWN = {DRIVER: ""}


@pytest.mark.parametrize(
    "layers",
    [[(B, "/")], [(A, "/"), (B, "/")], [(B, "/"), (A, "/")], [(A, "/"), (A, "/sub"), (B, "/")]],
)
def test_unknown_drivers_are_never_called_wrong(layers: list[tuple[str, str]]) -> None:
    finding = only(stacked(*layers).state(publish_from=UNKNOWN))
    assert (finding.severity, finding.verdict, finding.repair) == ("minor", "refuse", [])
    assert finding.workload is None
    assert f"where the driver {DRIVER}" in finding.reason
    said = [layer["is"] for layer in finding.evidence["layers"]]
    assert said == ["the volume" if device == A else "unknown" for device, _root in layers]


def test_the_volume_twice_is_the_volume_twice_whatever_the_driver_does() -> None:
    for said in ("", "elsewhere", "staging"):
        state = stacked((A, "/"), (A, "/")).state(publish_from={DRIVER: said})
        assert taken(only(state)) == [4]
        assert found(stacked((A, "/")).state(publish_from={DRIVER: said})) == []


def test_drivers_that_publish_what_they_have_not_staged() -> None:
    said = {DRIVER: "elsewhere"}
    assert found(stacked((B, "/")).state(publish_from=said)) == []
    finding = only(stacked((B, "/"), (A, "/")).state(publish_from=said))
    assert (finding.verdict, finding.repair, finding.workload) == ("refuse", [], None)
    assert "2 mounts are on top of each other" in finding.reason


LOOP = "7:0"


@pytest.mark.parametrize(
    ("loops", "right"),
    [
        ({LOOP: A}, True),
        ({LOOP: "7:1", "7:1": A}, True),
        ({LOOP: B}, False),
        ({LOOP: "7:1", "7:1": B}, False),
        ({LOOP: "7:1", "7:1": LOOP}, False),
        ({"7:1": A}, False),
        ({}, False),
    ],
)
@pytest.mark.parametrize("driver", ["", "staging"])
def test_loop_devices_on_a_file_of_the_volume(
    loops: dict[str, str], right: bool, driver: str
) -> None:
    state = stacked((LOOP, "/")).state(loops=loops, publish_from={DRIVER: driver})
    assert (found(state) == []) is right
    if not right:
        assert only(state).repair == []


@pytest.mark.parametrize(
    ("layer", "loops", "severity"),
    [
        (LOOP, {}, "minor"),
        (LOOP, {LOOP: "7:1"}, "minor"),
        (LOOP, {LOOP: B}, "critical"),
        (LOOP, {LOOP: "7:1", "7:1": LOOP}, "critical"),
        (B, {}, "critical"),
    ],
)
def test_a_loop_device_that_was_not_asked_is_not_wrong(
    layer: str, loops: dict[str, str], severity: str
) -> None:
    """Its file may be the volume's. The pod was moved off the node, while the devices of another
    tenant took the time of all.
    """
    said = {DRIVER: "staging"}
    finding = only(stacked((layer, "/")).state(loops=loops, publish_from=said))
    assert (finding.severity, finding.repair) == (severity, [])
    known = severity == "critical"
    assert (finding.code == "evidence_unreadable") is not known
    assert bool(finding.workload) is known
    assert finding.evidence["layers"][0]["is"] == ("wrong" if known else "unknown")
    # Nor is anything taken from above it.
    beside = stacked((A, "/"), (layer, "/")).state(loops=loops, publish_from=said)
    assert bool(only(beside).repair) is known


def test_a_loop_device_is_right_only_where_the_whole_filesystem_is_staged() -> None:
    """Where its file is in that, the kernel does not say."""
    lines = Lines()
    lines.add(staging("pv-a"), root="/export")
    lines.add(publish(), LOOP)
    assert only(lines.state(loops={LOOP: A}, publish_from=UNKNOWN)).verdict == "refuse"


def test_two_loop_devices_on_files_of_the_volume() -> None:
    state = stacked((LOOP, "/"), ("7:1", "/")).state(loops={LOOP: A, "7:1": A})
    finding = only(state)
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert "which is right cannot be told" in finding.reason
    # What is wrong goes from above the right one.
    state = stacked((LOOP, "/"), (B, "/")).state(loops={LOOP: A})
    assert taken(only(state)) == [4]


def unmounted(
    root: str = "", device: str = "8:1", said: str = "staging", over: str = ""
) -> PodMountState:
    """A pod has its staging folder, in which nothing is mounted; ``over``: it is by now."""
    lines = Lines()
    if over:
        lines.add(staging("pv-a"), over)
    lines.add(publish(), device, root or staging("pv-a"))
    return lines.state(publish_from={DRIVER: said})


@pytest.mark.parametrize("root", ["", f"{staging('pv-a')}/vol-a", f"{staging('pv-a')}//deleted"])
def test_a_pod_that_writes_to_the_disk_of_the_node(root: str) -> None:
    finding = only(unmounted(root))
    assert (finding.severity, finding.verdict, finding.repair) == ("critical", "refuse", [])
    assert finding.workload is None
    assert "the pod writes to the node's own disk" in finding.summary
    assert "copy it" in finding.reason
    # Mounted since, so that the next pod gets the volume, and this one still has not.
    assert only(unmounted(root, over=A)).severity == "critical"
    assert "the pod writes to the node's own disk" in only(unmounted(root, over=A)).summary


def test_what_is_not_the_staging_folder_on_the_disk_of_the_node() -> None:
    assert found(unmounted(device=B)) == []
    assert found(unmounted(root="/var/lib/private")) == []
    assert found(unmounted(root=f"{staging('pv-a')}2")) == []
    assert found(unmounted(root=staging("pv-b"))) == []
    assert found(unmounted(said="elsewhere")) == []
    # A driver of which nothing is known may do so, though hardly one does.
    finding = only(unmounted(said=""))
    assert (finding.severity, finding.verdict) == ("minor", "refuse")
    assert f"where the driver {DRIVER}" in finding.reason


def test_the_disk_of_the_node_is_a_filesystem_of_its_own() -> None:
    """Where the kubelet's folder is a mount, and its filesystem's root not the root of that."""
    lines = Lines()
    lines.add(ROOT, "8:2", "/kubelet")
    lines.add(publish(), "8:2", f"/kubelet{staging('pv-a')[len(ROOT) :]}")
    assert only(lines.state()).severity == "critical"
    lines = Lines()
    lines.add(ROOT, "8:2", "/kubelet")
    lines.add(publish(), "8:2", staging("pv-a"))
    assert found(lines.state()) == []


def test_a_volume_that_turned_read_only_is_the_pods_whatever_the_driver_does() -> None:
    for said, volumes in (("", ["pv-a"]), ("elsewhere", ["pv-a"]), ("staging", [])):
        state = stacked((B, "/")).state(publish_from={DRIVER: said})
        (stack,) = stacks.pod_stacks(state)
        assert ([stack.place.volume] if stack.has(B) else []) == volumes
        assert not stack.has("253:9")


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([(B, "/"), (A, "/")], "the wrong mount 3 is below a right one"),
        ([(B, "/"), (A, "/"), (B, "/")], "the wrong mount 3 is below a right one"),
        ([(A, "/"), (A, "/sub")], "different folders of the volume"),
    ],
)
def test_what_is_not_on_top(layers: list[tuple[str, str]], reason: str) -> None:
    finding = only(stacked(*layers).state())
    assert (finding.verdict, finding.repair, finding.workload) == ("refuse", [], None)
    assert reason in finding.reason


def test_one_read_only_and_one_not() -> None:
    lines = stacked((A, "/"))
    lines.add(publish(), options="ro")
    assert "one read-only and one not" in only(lines.state()).reason


def test_a_root_that_only_begins_alike() -> None:
    lines = Lines()
    lines.add(staging("pv-a"), root="/export")
    lines.add(publish(), root="/export2")
    assert only(lines.state()).evidence["layers"][0]["is"] == "wrong"


def test_layout_before_1_24_and_a_folder_of_the_driver() -> None:
    lines = Lines()
    lines.add(f"{ROOT}/plugins/kubernetes.io/csi/pv/pv-a/globalmount/vol-pv-a")
    lines.add(publish())
    assert found(lines.state()) == []
    lines.add(publish(), B)
    assert taken(only(lines.state())) == [4]


def inline(state: PodMountState, *points: str) -> PodMountState:
    """These volumes are the pod's own. Its owner has named them like a PersistentVolume."""
    notes = {
        f"{point.rpartition('/')[0]}/vol_data.json": VolumeNote(
            DRIVER, f"csi-{'0a' * 32}", point.split("/")[-2], "node1", inline=True
        )
        for point in points
    }
    return replace(state, notes={**state.notes, **notes})


def test_an_inline_volume_is_not_compared_with_its_namesake() -> None:
    """Its own mount was called wrong, since another volume is staged under its name."""
    lines = Lines()
    lines.add(f"{ROOT}/plugins/kubernetes.io/csi/pv/pv-a/globalmount")
    lines.add(publish(), B)
    assert only(lines.state()).evidence["layers"][0]["is"] == "wrong"
    assert found(inline(lines.state(), publish())) == []
    lines.add(publish(), "253:3")
    finding = only(inline(lines.state(), publish()))
    assert (finding.verdict, finding.repair, finding.workload) == ("report", [], None)
    assert finding.evidence["volumes"] == []
    assert found(inline(lines.state(), publish()), volumes=("pv-a",)) == []
    said = pure.unmatched(inline(lines.state(), publish()), PodMountOptions(volumes=("pv-a",)))
    # It is staged, and so it is on the node.
    assert said == []


@pytest.mark.parametrize(
    "beside",
    [
        VolumeNote(DRIVER, "vol-another"),
        VolumeNote("other.example.com", "vol-pv-a"),
        VolumeNote(problem="it is no JSON"),
    ],
)
def test_another_volume_in_the_old_staging_folder_is_no_measure(beside: VolumeNote) -> None:
    """It has only a name, which a volume of another time may have had."""
    lines = Lines()
    lines.add(f"{ROOT}/plugins/kubernetes.io/csi/pv/pv-a/globalmount")
    lines.add(publish(), B)
    state = lines.state()
    path = f"{ROOT}/plugins/kubernetes.io/csi/pv/pv-a/vol_data.json"
    assert found(replace(state, notes={**state.notes, path: beside})) == []


def test_volume_of_another_name_is_not_its_staging_mount() -> None:
    lines = Lines()
    lines.add(staging("pv-ab"), B)
    lines.add(publish())
    assert found(lines.state()) == []


def test_staging_with_two_devices() -> None:
    lines = stacked((A, "/"), (B, "/"))
    lines.add(f"{ROOT}/plugins/kubernetes.io/csi/pv/pv-a/globalmount", B)
    # Both are staged, so each layer is one of them.
    assert (
        "mounts of different devices (253:1, 253:2) are in its staging folder"
        in only(lines.state()).reason
    )
    lines = Lines()
    lines.add(staging("pv-a"), B)
    lines.add(staging("pv-a"), A)
    lines.add(publish(), A)
    lines.add(publish(), B)
    assert (
        "mounts of different devices (253:1, 253:2) are in its staging folder"
        in only(lines.state()).reason
    )


def test_unstaged() -> None:
    """One mount is all right, as far as anybody can tell."""
    lines = Lines()
    lines.add(publish())
    assert found(lines.state()) == []
    lines.add(publish(), B)
    finding = only(lines.state())
    assert (finding.verdict, finding.repair) == ("report", [])


def test_note_that_cannot_be_used() -> None:
    state = stacked((B, "/")).state()
    (path,) = state.notes
    finding = only(
        PodMountState(
            "node1", ROOT, state.table, {path: VolumeNote(problem=f"{path!r} cannot be read")}
        )
    )
    assert (finding.verdict, finding.severity) == ("refuse", "minor")
    # It is of another volume, whose staging mount would be the measure.
    finding = only(
        PodMountState("node1", ROOT, state.table, {path: VolumeNote(DRIVER, "vol-pv-b", "pv-b")})
    )
    assert "is of the volume pv-b, not pv-a" in finding.reason


def process(pod: str = "", uses: tuple[tuple[int, str], ...] = ()) -> Process:
    return Process(4711, "postgres", "mnt:[1]", pod, "", uses)


@pytest.mark.parametrize("layers", [[(A, "/"), (B, "/")], [(A, "/"), (A, "/")]])
def test_container_of_the_pod(layers: list[tuple[str, str]]) -> None:
    finding = only(stacked(*layers).state(processes=(process(UID),)))
    assert finding.verdict == "refuse"
    assert (
        "postgres (pid 4711) of a container of the pod runs; the workload must be moved"
        in finding.reason
    )
    assert finding.workload == {
        "volume": "pv-a",
        "driver": DRIVER,
        "handle": "vol-pv-a",
        "pods": [UID],
    }
    assert only(stacked(*layers).state(processes=(process("9" + UID[1:]),))).verdict == "repair"


def test_pod_folder_that_was_renamed() -> None:
    """Its containers could not be found by that name."""
    lines = Lines()
    lines.add(staging("pv-a"))
    lines.add(publish(uid="moved"))
    assert found(lines.state()) == []
    lines.add(publish(uid="moved"), B)
    assert "which is no uid" in only(lines.state()).reason
    # Of a static pod.
    lines = Lines()
    for device, point in (
        (A, staging("pv-a")),
        (A, publish(uid="f0" * 16)),
        (B, publish(uid="f0" * 16)),
    ):
        lines.add(point, device)
    assert only(lines.state()).verdict == "repair"


def test_process_inside() -> None:
    lines = stacked((A, "/"), (B, "/"))
    finding = only(lines.state(processes=(process(uses=((4, "open file"), (4, "root"))),)))
    assert (
        finding.verdict,
        "postgres (pid 4711) is inside (open file, root)" in finding.reason,
    ) == ("refuse", True)
    # In the layer that stays, and in the other volume itself.
    assert (
        only(lines.state(processes=(process(uses=((3, "open file"), (2, "root"))),))).verdict
        == "repair"
    )


@pytest.mark.parametrize(
    ("point", "device", "root", "verdict"),
    [
        (publish(), B, "/", "refuse"),
        (f"/host{publish()}", B, "/", "refuse"),
        (publish(), A, "/", "repair"),
        (publish(), B, "/other", "repair"),
        ("/data", B, "/", "repair"),
    ],
)
def test_process_inside_of_a_copy(point: str, device: str, root: str, verdict: str) -> None:
    """In another mount namespace; elsewhere there the device may be what another pod
    rightly has.
    """
    (copy,) = parse_mountinfo(f"900 800 {device} {root} {point} rw - ext4 /dev/x rw", "77")
    state = stacked((A, "/"), (B, "/")).state(
        processes=(process(uses=((900, "working directory"),)),), elsewhere=(copy,)
    )
    assert only(state).verdict == verdict


@pytest.mark.parametrize(
    ("namespace", "others", "verdict"),
    [
        # Its own namespace has the layer, or a copy of it.
        ("mnt:[1]", {"1": "mnt:[1]", "77": "mnt:[77]"}, "refuse"),
        ("mnt:[77]", {"1": "mnt:[1]", "77": "mnt:[77]"}, "refuse"),
        ("mnt:[88]", {"1": "mnt:[1]", "77": "mnt:[77]"}, "repair"),
        # In which namespace the copy is, or the layer itself, is not known.
        ("mnt:[88]", {"1": "mnt:[1]"}, "refuse"),
        ("mnt:[88]", {"77": "mnt:[77]"}, "refuse"),
    ],
)
def test_a_process_whose_uses_are_not_known(
    namespace: str, others: dict[str, str], verdict: str
) -> None:
    """It may be inside of what its namespace has, and holds back nothing else."""
    (copy,) = parse_mountinfo(f"900 800 {B} / /host{publish()} rw - ext4 /dev/x rw", "77")
    unread = Process(4711, "web", namespace, "", "", (), "it has too many files")
    state = stacked((A, "/"), (B, "/")).state(processes=(unread,), elsewhere=(copy,), spaces=others)
    finding = only(state)
    assert finding.verdict == verdict
    said = "whether web (pid 4711) is inside is not known: it has too many files"
    assert (said in finding.reason) is (verdict == "refuse")


@pytest.mark.parametrize(
    ("namespace", "verdict"), [("mnt:[1]", "refuse"), ("mnt:[88]", "repair"), ("", "refuse")]
)
def test_a_process_of_any_pod_holds_back_what_its_namespace_has(
    namespace: str, verdict: str
) -> None:
    """Its control group cannot be read; its uses can."""
    one = Process(4711, "web", namespace, "unknown", "", ())
    finding = only(stacked((A, "/"), (B, "/")).state(processes=(one,), spaces={"1": "mnt:[1]"}))
    assert finding.verdict == verdict
    said = "whether web (pid 4711) is of a container of the pod is not known"
    assert (said in finding.reason) is (verdict == "refuse")


def test_only_namespaces_with_a_wrong_mount_are_read() -> None:
    """A tenant's pod, which has its volume at another path, can add any number of processes."""
    copies = parse_mountinfo(f"900 800 {B} / /host{publish()} rw - ext4 /dev/x rw", "77")
    copies += parse_mountinfo(f"901 801 {B} / /data rw - ext4 /dev/x rw", "88")
    spaces = {"1": "mnt:[1]", "77": "mnt:[77]", "88": "mnt:[88]"}
    state = stacked((A, "/"), (B, "/")).state(elsewhere=tuple(copies), spaces=spaces)
    assert wrong_mounts.seen_in(state, stacks.suspicious_stacks(state)) == {"mnt:[1]", "mnt:[77]"}
    assert wrong_mounts.seen_in(state, []) == set()


def test_who_uses_a_layer_with_too_many_copies_is_not_known() -> None:
    """A pod may have any number of them, and a process may be inside of one that was left out."""
    for device, verdict in ((B, "refuse"), ("8:99", "repair")):
        finding = only(stacked((A, "/"), (B, "/")).state(crowded={device: "1498 mounts of pod x"}))
        assert finding.verdict == verdict
        assert ("it has 1498 mounts of pod x" in finding.reason) is (device == B)


def test_mounts_on_top_and_made_from_it() -> None:
    lines = stacked((A, "/"), (B, "/"))
    lines.add(f"{publish()}/sub dir".replace(" ", "\\040"), "0:50", fstype="tmpfs")
    assert f"another mount is on it, at '{publish()}/sub dir'" in only(lines.state()).reason
    lines = stacked((A, "/"), (B, "/"))
    lines.add(f"{ROOT}/pods/{UID}/volume-subpaths/pv-a/main/0", B, "/x")
    assert (
        f"the subPath mount {ROOT}/pods/{UID}/volume-subpaths/pv-a/main/0 was made from it"
        in only(lines.state()).reason
    )
    # Of the right one, and of another pod.
    lines = stacked((A, "/"), (B, "/"))
    lines.add(f"{ROOT}/pods/{UID}/volume-subpaths/pv-a/main/0", A, "/x")
    lines.add(f"{ROOT}/pods/9{UID[1:]}/volume-subpaths/pv-a/main/0", B, "/x")
    assert only(lines.state()).verdict == "repair"


SHARED = """1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
2 1 {A} / {staging} rw shared:2 - ext4 /dev/a rw
3 1 {A} / {publish} rw shared:2 - ext4 /dev/a rw
4 3 {B} / {publish} rw shared:3 - ext4 /dev/b rw
5 2 {B} / {staging} rw shared:3 - ext4 /dev/b rw
"""


def shared(more: str = "", upper: str = B, **state: Any) -> PodMountState:
    """What is mounted on the pod's mount came onto the staging mount, too, as it does where mounts
    are shared.
    """
    lines = Lines()
    lines.lines = (
        (SHARED + more)
        .format(A=A, B=upper, staging=staging("pv-a"), publish=publish(), other=staging("pv-b"))
        .split("\n")
    )
    return lines.state(**state)


def test_what_came_onto_the_staging_mount_is_not_the_volume() -> None:
    assert taken(only(shared("6 1 {B} / {other} rw shared:3 - ext4 /dev/b rw"))) == [4]
    # The same volume twice.
    assert taken(only(shared(upper=A))) == [4]


def test_what_no_other_volume_has_may_have_been_staged() -> None:
    """And have come from there to the pod."""
    finding = only(shared())
    assert (
        finding.verdict,
        "is on the staging mount, too: which one is the volume cannot be told" in finding.reason,
    ) == ("refuse", True)


def test_process_inside_of_what_goes_too() -> None:
    """At the staging mount, or of another pod of the volume."""
    other = "6 1 {B} / {other} rw shared:3 - ext4 /dev/b rw"
    finding = only(shared(other, processes=(process(uses=((5, "open file"),)),)))
    assert (finding.verdict, "postgres (pid 4711) is inside" in finding.reason) == ("refuse", True)
    second = publish(uid="9" + UID[1:])
    both = (
        f"{other}\n7 1 {{A}} / {second} rw shared:2 - ext4 /dev/a rw\n8 7 {{B}} / {second} rw "
        "shared:3 - ext4 /dev/b rw"
    )
    assert [finding.verdict for finding in found(shared(both))] == ["repair"] * 2
    assert [
        finding.verdict for finding in found(shared(both, processes=(process("9" + UID[1:]),)))
    ] == ["refuse"] * 2


def test_dead_fuse_is_left_to_others() -> None:
    lines = stacked((A, "/"))
    lines.add(publish(), "0:60", fstype="fuse.s3fs")
    assert found(lines.state()) == []
    assert found(lines.state(answers={"0:60": Answer("dead", error="ENOTCONN")})) == []
    assert taken(only(lines.state(answers={"0:60": Answer("ok")}))) == [4]


def test_what_covers_a_fuse_mount_everywhere_is_found() -> None:
    """No path leads to what is below it, so that is not asked, and may be dead."""
    lines = Renewing()
    lines.add(publish(), B)
    finding = only(lines.state(renewed=frozenset({NOTED})))
    assert (finding.severity, finding.repair) == ("critical", [])
    assert "whether the mount 3 below it answers is not known" in finding.reason
    assert finding.workload and finding.code == "evidence_unreadable"
    # That which the pod has is left to those who ask it.
    assert found(Renewing().state()) == []


def test_hostile_sources_can_be_shown() -> None:
    lines = stacked((A, "/"))
    lines.lines.append(f"3 3 {B} /a\\012b {publish()} rw - ext4 /dev/x\\012y rw")
    lines.lines[2] = lines.lines[2].replace("3 1", "3 1", 1)
    lines.lines[3] = lines.lines[3].replace("3 3", "4 3", 1)
    finding = only(lines.state())
    shown = finding.evidence["layers"][1]
    assert (shown["root"], shown["source"]) == ("'/a\\nb'", "'/dev/x\\ny'")
    assert "\n" not in finding.summary + finding.repair[0].target


def several(count: int, wrong: int) -> Lines:
    lines = Lines()
    for number in range(count):
        lines.add(staging(f"pv-{number}"), f"253:{number}")
        lines.add(publish(f"pv-{number}"), f"253:{number}")
        if number < wrong:
            lines.add(publish(f"pv-{number}"), "253:99")
    return lines


def owned(wrong: dict[str, int], fine: dict[str, int]) -> PodMountState:
    """Pods of these namespaces, each with a volume of its own, mounted wrongly or rightly."""
    lines, namespaces, number = Lines(), {}, 0
    for counts, broken in ((wrong, True), (fine, False)):
        for namespace, count in counts.items():
            for _each in range(count):
                number += 1
                uid = f"{number:08x}{UID[8:]}"
                namespaces[uid] = namespace
                point = publish(f"pv-{number}").replace(UID, uid)
                lines.add(staging(f"pv-{number}"), f"253:{number}")
                lines.add(point, f"253:{number}")
                if broken:
                    lines.add(point, "253:999")
    return lines.state(namespaces=namespaces)


def repaired(state: PodMountState, **options: Any) -> list[str]:
    return sorted(
        state.namespaces[finding.evidence["pod"]]
        for finding in found(state, **options)
        if finding.repair
    )


def test_one_namespace_does_not_use_up_the_others_repairs() -> None:
    """They were taken in the order of the mounts, and so all of one tenant's first."""
    state = owned({"evil": 8, "shop": 2, "bank": 1}, {})
    assert repaired(state, max_repairs=3) == ["bank", "evil", "shop"]
    # Where the node does not know namespaces, pods have their turns.
    unknown = replace(state, namespaces={})
    assert len([one for one in found(unknown, max_repairs=3) if one.repair]) == 3


def test_one_namespace_makes_no_outage_of_the_others() -> None:
    state = owned({"evil": 9, "shop": 1}, {"shop": 2, "bank": 1})
    assert repaired(state, accept_majority=False) == ["evil"] * 9 + ["shop"]
    # Most of most: that may be the driver.
    state = owned({"evil": 9, "shop": 2}, {"shop": 1, "bank": 1})
    assert repaired(state, accept_majority=False) == []
    reasons = {finding.reason for finding in found(state, accept_majority=False)}
    assert any(
        "2 of the node's 3 pod mounts (driver " in reason and "namespace shop" in reason
        for reason in reasons
    )
    # With many that are fine it hides none, either.
    state = owned({"shop": 2, "bank": 1}, {"evil": 50})
    assert repaired(state, accept_majority=False) == []


def test_majority_and_limit() -> None:
    findings = found(several(5, 3).state(), accept_majority=False)
    assert "3 of the node's 5 pod mounts (driver " in findings[0].reason
    for count, wrong, verdict in (
        (5, 3, "refuse"),
        (5, 2, "repair"),
        (3, 2, "refuse"),
        (3, 1, "repair"),
        (2, 1, "repair"),
        (1, 1, "refuse"),
    ):
        given = {
            finding.verdict
            for finding in found(several(count, wrong).state(), accept_majority=False)
        }
        assert given == {verdict}, (count, wrong)
    assert [finding.verdict for finding in found(several(5, 3).state(), accept_majority=True)] == [
        "repair"
    ] * 3
    # What nothing is known of says nothing of an outage.
    lines = several(5, 3)
    lines.add(publish("pv-4"), "253:4")
    verdicts = [
        finding.verdict
        for finding in found(lines.state(publish_from=UNKNOWN), accept_majority=False)
    ]
    assert sorted(verdicts) == ["refuse"] * 3 + ["repair"]
    limited = found(several(5, 2).state(), max_repairs=1)
    assert [finding.verdict for finding in limited] == ["repair", "refuse"]
    assert "max_repairs is 1" in limited[1].reason
    assert limited[1].code == "too_many_repairs"
    # What one does not look at counts all the same.
    assert (
        found(several(5, 3).state(), volumes=("pv-0",), accept_majority=False)[0].verdict
        == "refuse"
    )


def test_scope() -> None:
    state = several(5, 2).state()
    (by_path,) = found(state, paths=(publish("pv-1"),))
    (by_name,) = found(state, volumes=("pv-1", "pv-4"))
    assert by_path.name == by_name.name == publish("pv-1")
    assert by_path.named and by_name.named
    assert not found(state)[0].named


def test_a_scope_that_nothing_matches() -> None:
    """It may be misspelt, and then all is not well."""
    state = several(2, 0).state()
    options = PodMountOptions(paths=(publish("pv-1"), publish("pv-9")), volumes=("pv-0", "pv-8"))
    assert pure.unmatched(state, options) == [
        f"nothing is mounted at {publish('pv-9')}",
        "there is no mount of a volume pv-8",
    ]
    assert pure.unmatched(state, PodMountOptions()) == []
    said = PodMounts(Host(Deadline(9), 5), options).unmatched(state)
    assert said.endswith("volume pv-8: was it repaired already, is it on another, or misspelt?")


# STOR-08


def turned(
    super_options: str = "ro",
    staged: str = "rw",
    published: str = "rw",
    answer: Answer | None = None,
    fstype: str = "ext4",
    log: tuple[str, ...] = (),
    **backing: Any,
) -> PodMountState:
    lines = Lines()
    lines.add(staging("pv-a"), options=staged, super_options=super_options, fstype=fstype)
    lines.add(publish(), options=published, super_options=super_options, fstype=fstype)
    return lines.state(
        answers={A: answer or Answer("ok")},
        logs={A: log} if log else {},
        backings={A: Backing("dm-1", **backing)},
    )


EIO = Answer("error", "listing", "EIO", "Input/output error")
UNASKED = Answer("error", "statvfs", text="not asked: too many others do not answer")


def test_what_was_not_asked_has_not_given_up() -> None:
    """It was a critical finding about a healthy volume; what is known counts all the same."""
    finding = only(turned("rw", answer=UNASKED))
    assert (finding.severity, finding.code) == ("minor", "evidence_unreadable")
    assert finding.summary == "whether ext4 on /dev/mapper/253:1 answers is not known"
    assert "not asked: too many others" in finding.reason
    assert only(turned("ro", answer=UNASKED, errors={"errors_count": "2"})).severity == "critical"


LOG = ("[12.0] XFS (dm-1): Filesystem has been shut down due to log error (0x2).",)


@pytest.mark.parametrize(
    "state",
    [
        turned(errors={"errors_count": "2"}),
        turned(log=("[12.0] EXT4-fs (dm-1): Remounting filesystem read-only",)),
        turned(published="ro", errors={"errors_count": "2"}),
        turned("rw,emergency_ro"),
        # Some kernels tell it nowhere else.
        turned("rw", log=("[12.0] EXT4-fs (dm-1): Remounting filesystem read-only",)),
        turned("rw,shutdown"),
        turned("rw", answer=EIO, fstype="xfs", log=LOG),
        # A pod that only reads gets EIO, too.
        turned("ro", "ro", "ro", answer=EIO, fstype="xfs", log=LOG),
    ],
)
def test_turned_read_only(state: PodMountState) -> None:
    finding = only(state)
    assert (finding.control, finding.severity, finding.verdict) == ("STOR-08", "critical", "report")
    assert finding.name == staging("pv-a")
    assert finding.workload == {
        "volume": "pv-a",
        "driver": DRIVER,
        "handle": "vol-pv-a",
        "pods": [UID],
    }
    assert (finding.evidence["pods"], finding.evidence["volumes"]) == ([UID], ["pv-a"])


@pytest.mark.parametrize(
    "state",
    [
        turned("rw"),
        turned("rw", published="ro"),
        # Old errors do not count where nothing is wrong now.
        turned("rw", errors={"errors_count": "2"}),
        turned("ro", "ro", "ro"),
        turned("ro", "ro", "ro", errors={"errors_count": "2"}),
        turned("ro", read_only=True),
    ],
)
def test_read_only_on_purpose(state: PodMountState) -> None:
    assert found(state) == []


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (turned(), "nothing shows that an error was the reason"),
        (turned(errors={"errors_count": "0"}), "nothing shows that an error was the reason"),
        (turned("rw", answer=EIO, fstype="xfs"), "nothing shows that an error was the reason"),
        (
            turned("rw", answer=Answer("hung", "listing", text="no answer within 5.0 s")),
            "it does not answer: no answer within 5.0 s",
        ),
        (
            turned(errors={"errors_count": "2"}, obstacles=(DOWN,)),
            "a path is down: sda: blocked",
        ),
        (turned(errors={"errors_count": "2"}, read_only=True), "dm-1 itself is read-only"),
        (turned("ro", "ro", "ro", answer=EIO, read_only=True), "dm-1 itself is read-only"),
        # Old errors are no proof where it is not read-only.
        (
            turned("rw", answer=EIO, errors={"errors_count": "2"}),
            "nothing shows that an error was the reason",
        ),
    ],
)
def test_read_only_and_refused(state: PodMountState, reason: str) -> None:
    finding = only(state)
    assert (finding.verdict, finding.workload) == ("refuse", None)
    assert reason in finding.reason


@pytest.mark.parametrize(
    ("state", "severity"),
    [
        # An administrator's remount.
        (turned(), "minor"),
        (turned(errors={"errors_count": "0", "first_error_time": "0"}), "minor"),
        # The log may have been overwritten.
        (turned(errors={"write_errs": "12", "read_errs": "0"}), "critical"),
        (turned(errors={"write_errs": "10"}), "critical"),
        (turned(answer=EIO), "critical"),
        (turned(obstacles=(DOWN,)), "critical"),
        (turned(errors={"errors_count": "2"}, obstacles=(DOWN,)), "critical"),
    ],
)
def test_how_bad_it_is_that_it_is_refused(state: PodMountState, severity: str) -> None:
    finding = only(state)
    assert (finding.severity, finding.verdict, finding.workload) == (severity, "refuse", None)


def test_without_a_pod_there_is_nothing_to_move() -> None:
    lines = Lines()
    lines.add(staging("pv-a"), super_options="ro")
    finding = only(lines.state(backings={A: Backing("dm-1", errors={"errors_count": "1"})}))
    assert (finding.verdict, finding.workload) == ("report", None)


def test_no_workload_of_a_namesake_is_moved_for_an_inline_volume() -> None:
    """The role moves the pods of the PersistentVolume that a finding names."""
    errors = {A: Backing("dm-1", errors={"errors_count": "1"})}
    own = Lines()
    own.add(publish("pv-victim"), super_options="ro")
    finding = only(inline(own.state(backings=errors), publish("pv-victim")))
    assert (finding.verdict, finding.workload) == ("report", None)
    assert finding.evidence["volumes"] == []
    assert "delete the pod" in finding.reason
    # Nor where both are of one filesystem: to move one of them would not unmount it.
    other = publish("pv-victim", "9" + UID[1:])
    own.add(other, super_options="ro")
    finding = only(inline(own.state(backings=errors), publish("pv-victim")))
    assert (finding.verdict, finding.workload) == ("report", None)
    assert finding.evidence["volumes"] == ["pv-victim"]


def test_wrong_mount_of_it_is_not_its_volume() -> None:
    """Its own pod is moved, and not the one that has it by mistake."""
    lines = stacked((A, "/"), (B, "/"), super_options="ro")
    lines.lines[2] = lines.lines[2].replace(
        "ext4 /dev/mapper/253:1 ro", "ext4 /dev/mapper/253:1 rw"
    )
    lines.add(staging("pv-b"), B, super_options="ro")
    lines.add(publish("pv-b", "9" + UID[1:]), B, super_options="ro")
    backings = {device: Backing("dm-2", errors={"errors_count": "1"}) for device in (A, B)}
    (finding,) = [
        finding for finding in found(lines.state(backings=backings)) if finding.control == "STOR-08"
    ]
    assert finding.workload is not None and finding.workload["volume"] == "pv-b"


def test_where_else_it_is_mounted() -> None:
    lines = Lines()
    lines.add(staging("pv-a"), super_options="ro")
    lines.add("/mnt/rescue", super_options="ro")
    elsewhere = parse_mountinfo(
        f"900 800 {A} / /data rw - ext4 /dev/x ro\n901 800 {A} / {publish()} rw - ext4 /dev/x ro",
        "77",
    )
    state = lines.state(
        backings={A: Backing("dm-1", errors={"errors_count": "1"})}, elsewhere=tuple(elsewhere)
    )
    finding = only(state)
    assert (finding.verdict, "the node has it mounted at /mnt/rescue, too" in finding.reason) == (
        "refuse",
        True,
    )
    assert finding.evidence["also_mounted"] == [
        "/mnt/rescue in the mount namespace of pid 1",
        "/data in the mount namespace of pid 77",
    ]


def test_nothing_is_offered_in_an_outage() -> None:
    lines = Lines()
    for number in range(4):
        lines.add(
            staging(f"pv-{number}"), f"253:{number}", super_options="ro" if number < 3 else "rw"
        )
        lines.add(
            publish(f"pv-{number}"), f"253:{number}", super_options="ro" if number < 3 else "rw"
        )
    state = lines.state(
        backings={
            f"253:{number}": Backing(f"dm-{number}", errors={"errors_count": "1"})
            for number in range(3)
        }
    )
    findings = found(state, accept_majority=False)
    assert {finding.verdict for finding in findings} == {"refuse"}
    assert all(finding.workload is None for finding in findings)
    assert "3 of the node's 4 volume filesystems" in findings[0].reason
    assert {finding.verdict for finding in found(state, accept_majority=True)} == {"report"}
