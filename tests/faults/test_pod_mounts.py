# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts of pods that are not their volume (STOR-07): real bind mounts on real multipath maps,
mounted as the kubelet and a driver do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from lab.common import patient
from lab.state import READY, State
from lab.vm import Vm
from support.fixtures import fresh_node
from support.node import Node, Outcome

UID = "0a1b2c3d-1111-2222-3333-444455556666"
OTHER_UID = "9a1b2c3d-1111-2222-3333-444455556666"
CSI = Path(__file__).resolve().parents[1] / "lab/mounts/csi.py"
ROOT = "/var/lib/kubelet"
# Of 64 MB.
LUN_SECTORS = 131072
# Filesystems on LUN 1 to 3 (mpatha to mpathc); ``--unsupported``, since xfs wants 300 MB.
VOLUMES = State(
    name="volumes",
    files={"/usr/local/sbin/csi.py": CSI.read_bytes()},
    commands=(
        "mkfs.ext4 -q -E lazy_itable_init=0 /dev/mapper/mpatha && mkfs.ext4 -q /dev/mapper/mpathc",
        "mkfs.xfs -q -f --unsupported /dev/mapper/mpathb && udevadm settle -t 20",
        # The first mount of a kind has its driver to load.
        "for map in mpatha mpathb; do mount /dev/mapper/$map /mnt && umount /mnt; done",
    ),
    before=READY,
)


class Mounts:
    """The volumes pv-a (LUN 1, ext4) and pv-b (LUN 2, xfs), each staged and published to a pod.

    pv-c (LUN 3) is only staged. The node began in the state VOLUMES.
    """

    def __init__(
        self,
        node: Node,
        *,
        root: str = ROOT,
        old: bool = False,
        flaky: Sequence[int] = (),
        volumes: bool = True,
    ) -> None:
        self.node = node
        self.root, self.old = root, old
        self._tables: dict[int, str] = {}
        self.devices = {lun: f"/dev/mapper/{node.map_of(lun)[0]}" for lun in (1, 2, 3)}
        for lun in flaky:
            self._tables[lun] = f"0 {LUN_SECTORS} linear {self.devices[lun]} 0"
            node.sh(
                f"dmsetup create volume{lun} --table '{self._tables[lun]}' && udevadm settle -t 20"
            )
            self.devices[lun] = f"/dev/mapper/volume{lun}"
        self.point, self.other = self.point_of(UID, "pv-a"), self.point_of(OTHER_UID, "pv-b")
        self.staging, self.wrong = self.staging_of("pv-a"), self.staging_of("pv-b")
        if volumes:
            staged = (
                f"stage pv-{name} {self.devices[lun]}"
                for lun, name in ((1, "a"), (2, "b"), (3, "c"))
            )
            self.csi(" , ".join([*staged, f"publish {UID} pv-a", f"publish {OTHER_UID} pv-b"]))
            node.sh(
                f"echo A > {self.staging}/data; echo B > {self.wrong}/data; sync -f "
                f"{self.staging}; sync -f {self.wrong}"
            )

    def staging_of(self, volume: str) -> str:
        """Where the kubelet stages a volume."""
        csi = f"{self.root}/plugins/kubernetes.io/csi"
        digest = hashlib.sha256(f"vol-{volume}".encode()).hexdigest()
        return (
            f"{csi}/pv/{volume}/globalmount"
            if self.old
            else f"{csi}/csi.huawei.com/{digest}/globalmount"
        )

    def point_of(self, uid: str, volume: str) -> str:
        """Where a pod has it."""
        return f"{self.root}/pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount"

    def csi(self, arguments: str) -> str:
        """What the kubelet or the driver does."""
        return self.node.sh(
            f"KUBELET_ROOT={self.root} OLD_LAYOUT={int(self.old)} python3 "
            f"/usr/local/sbin/csi.py {arguments}"
        )

    def break_device(self, lun: int) -> None:
        """Every request to a flaky device fails from now on."""
        self._load(lun, f"{self._tables[lun].partition(' linear')[0]} error")

    def mend_device(self, lun: int) -> None:
        """And is served again."""
        self._load(lun, self._tables[lun])

    def _load(self, lun: int, table: str) -> None:
        name = f"volume{lun}"
        self.node.sh(
            f"dmsetup suspend --noflush --nolockfs {name} && dmsetup load {name} --table '{table}' "
            f"&& dmsetup resume {name}"
        )

    def pod(self, uid: str, folder: str = "/") -> int:
        """A container's process, at work in a folder; its pid."""
        return int(
            self.csi(f"pod {uid} sh -c {self.node.quote(f'cd {folder} && exec sleep 1000')}")
        )

    def table(self) -> list[str]:
        """Every mount: what a run that changes nothing leaves alone."""
        return self.node.sh("cat /proc/self/mountinfo").splitlines()

    def layers(self, point: str = "") -> int:
        """How many mounts lie at a point."""
        return sum(line.split(" ")[4] == (point or self.point) for line in self.table())

    def repair(self, check: bool = False, **options: object) -> Outcome:
        """Run csi_mount_repair. Mostly the node has one volume in a test, which is broken, and that
        is what is meant.

        On a busy machine an emulated node takes long to read its processes.
        """
        given = {
            "accept_majority": True,
            "command_timeout": patient(30),
            "deadline": patient(300),
        }
        return self.node.ansible("csi_mount_repair", check, **{**given, **options})

    def refused(self, *reasons: str, point: str = "", **options: object) -> dict[str, object]:
        """Run it for real, and see it refuse the mount point for these reasons and
        change nothing.
        """
        before = self.table()
        outcome = self.repair(**options)
        finding = outcome.finding(point or self.point)
        assert finding["verdict"] == "refuse", finding
        for reason in reasons:
            assert reason in finding["reason"], finding["reason"]
        assert (outcome.outcomes, outcome.changed) == ([], False)
        assert self.table() == before
        return finding


@pytest.fixture
def volumes(vm: Vm) -> Iterator[Node]:
    """See VOLUMES."""
    yield from fresh_node(vm, VOLUMES)


@pytest.fixture
def mounts(volumes: Node) -> Mounts:
    """See Mounts."""
    return Mounts(volumes)


# The scenario pod_mounts of molecule goes the same four ways each time.
@pytest.mark.variation
def test_wrong_source_four_ways(mounts: Mounts) -> None:
    """Only the wrong layer goes, whoever else uses what it is."""
    node, point = mounts.node, mounts.point
    assert mounts.repair().findings == []
    # The node's mounts are shared, so this comes onto the staging mount, too, as it does on nodes
    # of clusters.
    node.sh(f"mount --bind {mounts.wrong} {point}")
    assert (node.sh(f"cat {point}/data"), mounts.layers(mounts.staging)) == ("B", 2)
    # Another pod is at work in the volume that was mounted here by mistake.
    mounts.pod(OTHER_UID, mounts.other)
    before = mounts.table()
    check = mounts.repair(check=True)
    assert (check.changed, check.outcomes) == (True, [("unmount", "planned")]), check.findings
    assert mounts.table() == before
    run = mounts.repair()
    assert not run.failed, run.msg
    assert run.outcomes == [("unmount", "done")]
    finding = run.finding(point)
    assert (finding["control"], finding["severity"], finding["verdict"]) == (
        "STOR-07",
        "critical",
        "repair",
    )
    assert [layer["is"] for layer in finding["evidence"]["layers"]] == ["the volume", "wrong"]
    assert (node.sh(f"cat {point}/data"), mounts.layers(), mounts.layers(mounts.staging)) == (
        "A",
        1,
        1,
    )
    # Nothing else went.
    assert len(before) - len(mounts.table()) == 2
    assert set(mounts.table()) < set(before)
    for check_mode in (False, True):
        again = mounts.repair(check=check_mode)
        assert (again.changed, again.findings) == (False, [])


@pytest.mark.variation
def test_tangle_of_shared_mounts(mounts: Mounts) -> None:
    """What is mounted on a mount of B comes onto every mount of B, and goes from all of them at
    once.
    """
    node, point = mounts.node, mounts.point
    clean = mounts.table()
    for source in (mounts.staging, mounts.staging, mounts.wrong, mounts.staging_of("pv-c")):
        node.sh(f"mount --bind {source} {point}")
    assert mounts.layers(mounts.other) > 1
    run = mounts.repair()
    assert not run.failed, run.msg
    assert {finding["object"]["name"] for finding in run.findings} == {point, mounts.other}
    assert {outcome for _action, outcome in run.outcomes} == {"done"}
    assert mounts.table() == clean
    assert mounts.repair().findings == []


@pytest.mark.variation
def test_only_a_wrong_mount(mounts: Mounts) -> None:
    """Where the volume is not below it, a container may start on what is left: the workload must be
    moved, running or not.
    """
    node, point = mounts.node, mounts.point
    node.sh(f"umount {point} && mount --bind {mounts.wrong} {point}")
    pid = mounts.pod(UID)
    finding = mounts.refused(
        f"sleep (pid {pid}) of a container of the pod runs", "the workload must be moved"
    )
    assert finding["workload"] == {
        "volume": "pv-a",
        "driver": "csi.huawei.com",
        "handle": "vol-pv-a",
        "pods": [UID],
    }
    node.sh(f"kill {pid}")
    node.wait(lambda: not node.process_state(pid), "it ended")
    finding = mounts.refused("the volume is not below it", "the workload must be moved")
    assert (finding["severity"], finding["workload"]["volume"]) == ("critical", "pv-a")
    # With the volume below it, it goes.
    node.sh(
        f"umount {point} && mount --bind {mounts.staging} {point} "
        f"&& mount --bind {mounts.wrong} {point}"
    )
    run = mounts.repair(volumes=["pv-a"])
    assert (run.failed, run.outcomes, mounts.layers()) == (False, [("unmount", "done")], 1)
    assert (node.sh(f"cat {point}/data"), node.sh(f"cat {mounts.other}/data")) == ("A", "B")
    assert mounts.repair().findings == []


@pytest.mark.variation
def test_processes_inside(mounts: Mounts) -> None:
    """In the node's mount namespace and in another one; somebody who is in the right layer is in
    nobody's way.
    """
    node, point = mounts.node, mounts.point
    inside = f"cd {point} && exec sleep 1000"
    node.sh(f"sh -c {node.quote(inside)} >/dev/null 2>&1 & echo $!")
    # Private, so that nothing comes onto other mounts, nor goes from them.
    node.sh(f"mount --make-private {point} && mount --bind {mounts.wrong} {point}")
    assert mounts.layers(mounts.staging) == 1
    pid = int(node.sh(f"unshare -m sh -c {node.quote(inside)} >/dev/null 2>&1 & echo $!"))
    node.wait(lambda: node.sh(f"cat /proc/{pid}/comm") == "sleep", "it is inside")
    mounts.refused(f"sleep (pid {pid}) is inside (working directory)")
    # Named, so that the task fails.
    assert mounts.repair(paths=[point]).failed
    node.sh(f"kill {pid}; exec 3>/dev/null; sleep 0.2")
    pid = int(
        node.sh(
            f"sh -c {node.quote(f'exec 3> {point}/data; exec sleep 1000')} "
            ">/dev/null 2>&1 & echo $!"
        )
    )
    node.wait(lambda: node.sh(f"cat /proc/{pid}/comm") == "sleep", "it is inside")
    mounts.refused(f"sleep (pid {pid}) is inside (open file)")
    node.sh(f"kill {pid}")
    node.wait(lambda: not node.process_state(pid), "it ended")
    assert mounts.repair().outcomes == [("unmount", "done")]
    assert node.sh(f"cat {point}/data") == "A"


@pytest.mark.variation
def test_what_cannot_be_told(mounts: Mounts) -> None:
    """A wrong layer underneath, a mount on top, another volume's note, a note that is a link, and
    what is not the kubelet's.
    """
    node, point = mounts.node, mounts.point
    note = f"{point.rpartition('/')[0]}/vol_data.json"
    node.sh(
        f"umount {point} && mount --bind {mounts.wrong} {point} && mount --make-private {point} && "
        f"mount --bind {mounts.staging} {point}"
    )
    mounts.refused("is below a right one")
    node.sh(f"umount {point} && mkdir '{point}/a b' && mount -t tmpfs none '{point}/a b'")
    mounts.refused(f"another mount is on it, at {point + '/a b'!r}")
    node.sh(f"umount '{point}/a b' && mv {note} /root/note && ln -s /root/note {note}")
    mounts.refused("the kubelet's note of the volume cannot be used")
    node.sh(f"rm {note} && sed s/pv-a/pv-b/g /root/note > {note}")
    mounts.refused("is of the volume pv-b, not pv-a")
    before = mounts.table()
    for path in ("/mnt", f"{ROOT}/../../mnt", f"{point}/../mount", f"{point}/a b"):
        run = mounts.repair(paths=[path])
        assert (run.failed, "is not a mount point that the kubelet creates" in run.msg) == (
            True,
            True,
        ), run.msg
    assert mounts.table() == before


def test_planted_links_and_names(volumes: Node) -> None:
    """The kubelet's folder itself may be a link; in it none is followed, and what is no name of
    Kubernetes' is left alone.
    """
    node = volumes
    node.sh(
        "mkdir -p /data/kubelet && rm -rf /var/lib/kubelet && ln -s /data/kubelet /var/lib/kubelet"
    )
    mounts = Mounts(node, root="/data/kubelet", old=True)
    pods = "/data/kubelet/pods"
    bad = [
        f"{pods}/new\nline/volumes/kubernetes.io~csi/pv-a/mount",
        f"{pods}/{UID}/volumes/kubernetes.io~csi/..a/mount",
        "/mnt/outside",
    ]
    for folder in bad:
        quoted = node.quote(folder)
        node.sh(
            f"mkdir -p {quoted} && mount --bind {mounts.staging} "
            f"{quoted} && mount --make-private {quoted}"
        )
        node.sh(f"mount --bind {mounts.wrong} {quoted}")
    node.sh(f"mount --make-private {mounts.point} && mount --bind {mounts.wrong} {mounts.point}")
    before = mounts.table()
    run = mounts.repair(paths=[mounts.point.replace("/data", "/var/lib")])
    assert (run.failed, run.outcomes) == (False, [("unmount", "done")]), run.msg
    assert len(set(before) - set(mounts.table())) == 1
    assert mounts.repair().findings == []
    # Somebody puts a link to another pod's folder in the place of a pod's. The mount goes with the
    # folder, and is no pod's any more.
    node.sh(
        f"mount --bind {mounts.wrong} {mounts.point} && mv {pods}/{UID} {pods}/moved && ln -s "
        f"{OTHER_UID} {pods}/{UID}"
    )
    mounts.refused(
        "its pod cannot be moved, which is no uid", point=mounts.point.replace(UID, "moved")
    )


def test_killed_in_the_middle(mounts: Mounts) -> None:
    """The next run goes on where it ended."""
    node, point = mounts.node, mounts.point
    node.sh(f"mount --make-private {point}")
    for _layer in range(3):
        node.sh(f"mount --bind {mounts.wrong} {point} && mount --make-private {point}")
    module = "pgrep -o -f '^/usr/bin/python3 .*AnsiballZ_csi_mount_repair'"
    watch = (
        f"while [ $(grep -c ' {point} ' /proc/self/mountinfo) = "
        f"4 ]; do :; done; kill -9 $({module})"
    )
    node.sh(f"setsid sh -c {node.quote(watch)} >/dev/null 2>&1 </dev/null &")
    failed, text = node._ad_hoc(
        "csi_mount_repair", False, "root", {"accept_majority": True}, pipelining="0"
    )
    assert failed and '"actions"' not in text, text
    assert 1 < mounts.layers() < 4
    run = mounts.repair()
    assert not run.failed, run.msg
    assert (node.sh(f"cat {point}/data"), mounts.layers()) == ("A", 1)
    assert mounts.repair().findings == []


@pytest.mark.variation
def test_most_of_the_node_looks_wrong(mounts: Mounts) -> None:
    node = mounts.node
    for number in range(4):
        uid = f"{number}{UID[1:]}"
        mounts.csi(f"publish {uid} pv-c")
        point = mounts.point_of(uid, "pv-c")
        node.sh(
            f"mount --make-private {point}"
            + (f"&& mount --bind {mounts.wrong} {point}" if number else "")
        )
    node.sh(f"mount --make-private {mounts.point} && mount --bind {mounts.wrong} {mounts.point}")
    mounts.refused("4 of the node's 6 pod mounts", accept_majority=False)
    run = mounts.repair(max_repairs=3)
    assert sorted(finding["verdict"] for finding in run.findings) == [
        "refuse",
        "repair",
        "repair",
        "repair",
    ]
    assert run.outcomes == [("unmount", "done")] * 3
    assert mounts.repair().outcomes == [("unmount", "done")]
