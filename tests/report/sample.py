# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports of fleets that do not exist, for tests, benchmarks and pictures: results as the audits
return them, and the files made of them.

python -P tests/report/sample.py --hosts 40 --findings 60 --runs 30 FOLDER
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.action.compliance_report import SPEC, Request
from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance import (
    affected,
    assembly,
    files,
    history,
    model,
    reading,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance.selection import (
    make_exceptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.controls import CONTROLS

RUNBOOKS = "storage_ops.runbooks"
NEXT_YEAR = datetime.now(UTC) + timedelta(days=200)
# Accepted for a while, accepted until a while ago, and one that matches nothing.
EXCEPTIONS = [
    {
        "select": "[?control=='STOR-10' && starts_with(host, 'worker-1')]",
        "owner": "platform team",
        "reason": "these nodes get the new image in January, which limits the open files",
        "expires": f"{NEXT_YEAR:%Y-%m-%d}",
    },
    {
        "select": "[?control=='STOR-03' && severity=='minor']",
        "owner": "storage team",
        "reason": "LUNs of the old array are being removed",
        "expires": "2025-09-30",
    },
    {
        "select": "[?host=='worker-gone']",
        "owner": "A. Person",
        "reason": "new mainboard on order",
        "expires": f"{NEXT_YEAR:%Y-%m-%d}",
    },
]


@dataclass
class Results:
    """What the audits returned: by host, and of the cluster."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> list[reading.Row]:
        """The rows that a report is made from."""
        rows = [reading.read_result(name, "node", result) for name, result in self.nodes.items()]
        return [
            row for row in [*rows, reading.read_result("cluster", "cluster", self.cluster)] if row
        ]


def make_results(hosts: int, findings: int, seed: int = 1) -> Results:
    """A fleet of that size with that many findings; some hosts cannot be reached, and some controls
    cannot be read.
    """
    dice = random.Random(seed)
    names = [f"worker-{number:0{len(str(hosts))}d}" for number in range(1, hosts + 1)]
    results = Results(
        {
            name: {"changed": False, "msg": "nothing to do", "findings": [], "actions": []}
            for name in names
        },
        {},
    )
    results.cluster = {"changed": False, "msg": "nothing to do", "findings": [], "actions": []}
    # What has nothing to look at there.
    for name in names[::5]:
        results.nodes[name]["not_applicable"] = {
            "STOR-04": "there is no iSCSI session, no target in the database of open-iscsi, and no "
            "CSI driver that uses iSCSI",
            "STOR-09": "no NFS share is mounted in the kubelet's folder",
        }
    lost = names[3::37]
    ill = [
        name
        for name in dice.sample(names, max(1, min(hosts, findings // 3 or 1)))
        if name not in lost
    ] or names[:1]
    for number in range(findings):
        kind = dice.choices(KINDS, weights=[weight for weight, _make in KINDS])[0]
        finding = kind[1](dice, dice.choice(ill), number)
        where = (
            results.nodes[finding["object"]["node"]]
            if CONTROLS[finding["control"]].where == "node"
            else results.cluster
        )
        where["findings"].append(finding)
    for number, name in enumerate(lost):
        results.nodes[name] = UNSEEN[number % len(UNSEEN)](name)
    for name in names[11::53]:
        if "findings" in results.nodes[name]:
            results.nodes[name].update(
                failed=True,
                msg="STOR-09 could not be assessed",
                not_assessed={"STOR-09": "mount.nfs is not installed"},
            )
    return results


UNSEEN: list[Callable[[str], dict[str, Any]]] = [
    lambda name: {
        "unreachable": True,
        "changed": False,
        "msg": f"Failed to connect to the host via ssh: ssh: connect to host {name} port 22: "
        "Connection timed out",
    },
    lambda _name: {"failed": True, "changed": False, "msg": "Missing sudo password"},
    lambda _name: {
        "failed": True,
        "changed": False,
        "msg": "the host did not answer within 300 seconds",
    },
]


def _finding(
    control: str,
    severity: str,
    kind: str,
    name: str,
    node: str,
    summary: str,
    verdict: str,
    reason: str,
    **more: Any,
) -> dict[str, Any]:
    thing = {
        "kind": kind,
        **({"namespace": more.pop("namespace")} if "namespace" in more else {}),
        "name": name,
        "node": node,
    }
    runbook, repair = more.pop("runbook"), more.pop("repair", [])
    return {
        "control": control,
        "severity": severity,
        "object": thing,
        "summary": summary,
        "evidence": more,
        "verdict": verdict,
        "reason": reason,
        "runbook": f"{RUNBOOKS}.{runbook}",
        "repair": [
            {
                "action": verb,
                "target": target,
                "command": command,
                "outcome": "planned",
                "seconds": 0.0,
            }
            for verb, target, command in repair
        ],
    }


def _wwid(dice: random.Random) -> str:
    return f"36{dice.getrandbits(120):030x}"


def _dead_map(dice: random.Random, node: str, _number: int) -> dict[str, Any]:
    name, wwid, disks = (
        f"mpath{chr(97 + dice.randrange(26))}",
        _wwid(dice),
        [f"sd{chr(98 + dice.randrange(20))}{letter}" for letter in "abcd"],
    )
    return _finding(
        "STOR-01",
        "major",
        "multipath map",
        name,
        node,
        f"{name}: the array serves the LUN on none of its 4 paths any more",
        "repair",
        "nothing holds it open, and 3 observations over 60 s agree",
        runbook="clean_residual_paths",
        repair=[
            ("flush_map", name, ["multipath", "-f", name]),
            *(
                ("delete_path", disk, ["write", f"/sys/block/{disk}/device/delete", "1"])
                for disk in disks
            ),
        ],
        wwid=wwid,
        vendor="EMC",
        product="SYMMETRIX",
        paths=[
            f"{disk} {dice.randrange(4)}:0:{place}:{dice.randrange(64)} failed faulty running"
            for place, disk in enumerate(disks)
        ],
        serving=0,
        open_count=0,
        holders=[],
    )


def _reused(dice: random.Random, node: str, _number: int) -> dict[str, Any]:
    name, wwid, other = f"mpath{chr(97 + dice.randrange(26))}", _wwid(dice), _wwid(dice)
    return _finding(
        "STOR-02",
        "critical",
        "multipath map",
        name,
        node,
        f"{name} was made for {wwid}, but 2 of its 4 paths read {other}: another volume's data",
        "refuse",
        f"{name} is mounted at /var/lib/kubelet/plugins/kubernetes.io/csi/pv/pvc-7/globalmount: "
        "move its pods first",
        runbook="clean_residual_paths",
        wwid=wwid,
        read=[other],
        paths=[f"sd{letter} reads {other if letter in 'bc' else wwid}" for letter in "abcd"],
        open_count=1,
    )


def _disk(dice: random.Random, node: str, _number: int) -> dict[str, Any]:
    disk, hctl = (
        f"sd{chr(98 + dice.randrange(20))}{chr(97 + dice.randrange(26))}",
        f"{dice.randrange(4)}:0:0:{dice.randrange(64)}",
    )
    return _finding(
        "STOR-03",
        "minor",
        "SCSI disk",
        disk,
        node,
        f"{disk} ({hctl}): the array no longer serves it",
        "repair",
        "in no map, not mounted, and it answers 'logical unit not supported'",
        runbook="clean_residual_paths",
        repair=[("delete_path", disk, ["write", f"/sys/block/{disk}/device/delete", "1"])],
        hctl=hctl,
        sense="ILLEGAL REQUEST, asc 0x25 ascq 0x00",
    )


def _iscsi(_dice: random.Random, node: str, _number: int) -> dict[str, Any]:
    return _finding(
        "STOR-04",
        "major",
        "kernel module",
        "iscsi_tcp",
        node,
        "iscsi_tcp is not loaded, so no iSCSI volume can be attached",
        "repair",
        "the module is there for the running kernel 6.1.0-31-amd64",
        runbook="load_iscsi_modules",
        repair=[("load_module", "iscsi_tcp", ["modprobe", "iscsi_tcp"])],
        kernel="6.1.0-31-amd64",
        iscsid="active (running)",
    )


def _published(dice: random.Random) -> tuple[str, str, str]:
    """The uid of a pod, a volume of it, and where the kubelet has that for it."""
    pod = f"{dice.getrandbits(32):08x}-5c1d-4f0e-9d7a-{dice.getrandbits(48):012x}"
    volume = f"pvc-{dice.getrandbits(32):08x}"
    return pod, volume, f"/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~csi/{volume}/mount"


def _fuse(dice: random.Random, node: str, _number: int) -> dict[str, Any]:
    pod, volume, path = _published(dice)
    dead = dice.random() < 0.8
    return _finding(
        "STOR-05" if dead else "STOR-06",
        "major",
        "FUSE mount",
        path,
        node,
        "the process behind the mount is gone: every access fails "
        "with 'Transport endpoint is not connected'"
        if dead
        else "the mount did not answer for 10 s",
        "repair" if dead else "refuse",
        "the driver's node pod can mount it again"
        if dead
        else "process 4711 (s3fs) still runs, and may yet answer",
        runbook="recover_fuse_mounts",
        repair=[
            (
                "remount",
                f"pod {pod}",
                ["s3fs", "bucket", "/var/lib/kubelet/…", "-o", "passwd_file=…"],
            )
        ]
        if dead
        else [],
        fstype="fuse.s3fs",
        errno="ENOTCONN" if dead else "",
        volumes=[volume],
        mounts=[f"{path} (publish)"],
        containers=[f"nginx ({dice.getrandbits(48):012x})"],
    )


def _pod_mount(dice: random.Random, node: str, _number: int) -> dict[str, Any]:
    pod, volume, path = _published(dice)
    return _finding(
        "STOR-07",
        "critical",
        "pod mount",
        path,
        node,
        "what is mounted is /dev/mapper/mpathc, and the volume's staging mount is "
        "/dev/mapper/mpathk: the pod may write to another volume",
        "refuse",
        "the pod must be moved first: -e pod_mounts_reattach=true",
        runbook="repair_pod_mounts",
        pod=pod,
        volumes=[volume],
        points=[path],
        staged="/dev/mapper/mpathk (253:11)",
        mounted="/dev/mapper/mpathc (253:3)",
    )


def _read_only(dice: random.Random, node: str, _number: int) -> dict[str, Any]:
    pod, volume, path = _published(dice)
    return _finding(
        "STOR-08",
        "critical",
        "volume filesystem",
        path,
        node,
        "ext4 turned read-only after I/O errors; its pod can no longer write",
        "repair",
        "the device is healthy again",
        runbook="repair_pod_mounts",
        kernel=[
            "EXT4-fs error (device dm-3): ext4_journal_check_start:83: comm postgres: Detected "
            "aborted journal",
            "EXT4-fs (dm-3): Remounting filesystem read-only",
        ],
        volumes=[volume],
        pods=[pod],
    )


def _nfs(dice: random.Random, node: str, _number: int) -> dict[str, Any]:
    address = f"192.0.2.{dice.randrange(1, 255)}"
    return _finding(
        "STOR-09",
        "major",
        "NFS share",
        f"{address}:/vol/pvc",
        node,
        f"{address}:/vol/pvc cannot be mounted: TCP 2049 of {address} does not answer",
        "report",
        "packets are dropped: by a firewall or security group on the way, by a route that "
        "leads elsewhere, or the host is off",
        runbook="check_nfs",
        addresses=[address],
        routes=[f"{address}: dev eth1 src 192.0.2.10"],
        ports=[
            f"nfs at {address} TCP 2049: no answer (3.03 s): timed out",
            f"portmapper at {address} TCP 111: ok (0.11 s)",
        ],
    )


def _nofile(_dice: random.Random, node: str, _number: int) -> dict[str, Any]:
    return _finding(
        "STOR-10",
        "minor",
        "container runtime",
        "containerd",
        node,
        "containerd and its containers may open 1073741816 files each",
        "report",
        "write /etc/systemd/system/containerd.service.d/50-storage_ops-nofile.conf and restart "
        "containerd.service",
        runbook="check_nfs",
        unit_limit="infinity",
        process_limit=1073741816,
        limit_nofile_max=1048576,
    )


def _attachment(dice: random.Random, node: str, number: int) -> dict[str, Any]:
    name = f"csi-{dice.getrandbits(256):064x}"
    control, what = dice.choice(
        [
            ("STOR-11", f"keeps PersistentVolume pvc-{number} on {node}, where no pod needs it"),
            (
                "STOR-13",
                f"PersistentVolume pvc-{number} is attached to {node}, and the node's "
                "volumesAttached does not list it",
            ),
            (
                "STOR-14",
                f"the attachment of PersistentVolume pvc-{number} to {node} lacks hostLunId",
            ),
        ]
    )
    return _finding(
        control,
        "major",
        "VolumeAttachment",
        name,
        node,
        f"{name[:12]}… {what}",
        "repair" if control == "STOR-11" else "report",
        "seen in two observations; the volume is Released",
        runbook="repair_volumeattachments",
        repair=[
            (
                "delete_volumeattachment",
                name,
                ["DELETE", f"/apis/storage.k8s.io/v1/volumeattachments/{name}"],
            )
        ]
        if control == "STOR-11"
        else [],
        driver="csi-unity.dellemc.com",
        volume=f"pvc-{number}",
        age_seconds=86000,
        pods=[],
    )


def _waiting(dice: random.Random, node: str, number: int) -> dict[str, Any]:
    return _finding(
        "STOR-15",
        "major",
        "pod",
        f"web-{number}",
        node,
        f"has been waiting on {node} for 12 min: its volume is not attached pvc-{number}",
        "report",
        "the controller manager attaches other volumes: look in its log for this one",
        namespace=dice.choice(["shop", "billing", "kube-system"]),
        runbook="triage",
        volumes=[f"pvc-{number}"],
    )


def _lost(_dice: random.Random, node: str, number: int) -> dict[str, Any]:
    return _finding(
        "STOR-16",
        "critical",
        "Node",
        node,
        node,
        f"{node} has been lost for 600 s and holds 1 volumes that no other node can use",
        "report",
        "fence it first",
        runbook="fail_over_volumes",
        volumes=[f"pvc-{number} (shop/data-{number}, rbd.csi.ceph.com)"],
        watchers=["192.0.2.52:0/319745466"],
    )


KINDS: list[tuple[int, Callable[[random.Random, str, int], dict[str, Any]]]] = [
    (20, _dead_map),
    (2, _reused),
    (22, _disk),
    (3, _iscsi),
    (14, _fuse),
    (1, _pod_mount),
    (2, _read_only),
    (9, _nfs),
    (16, _nofile),
    (6, _attachment),
    (4, _waiting),
    (1, _lost),
]


def request(folder: Path, **params: Any) -> Request:
    """What the module would be asked."""
    return Request(
        {
            **{name: option.get("default") for name, option in SPEC.items()},
            "folder": str(folder),
            **params,
        }
    )


def users(rows: list[reading.Row]) -> dict[str, Any]:
    """What volume_user_info answers on the volumes and pods that the findings name."""
    asked = affected.question(finding for row in rows for finding in row.findings)
    spaces, kinds = ("shop", "billing", "logging"), ("Deployment web", "StatefulSet db")
    known = [
        {
            "uid": uid,
            "namespace": spaces[number % 3],
            "name": f"{kinds[number % 2].split()[1]}-{number}",
            "node": "worker-1",
            "owner": kinds[number % 2],
            "claims": [],
        }
        for number, uid in enumerate(asked["pods"])
    ]
    volumes = [
        {"name": name, "claim": f"{spaces[number % 3]}/data-{number}", "pods": 2}
        for number, name in enumerate(asked["volumes"])
    ]
    # The cluster's findings are the last: one of their volumes has very many pods.
    volumes[-1:] = [{**volume, "pods": 900} for volume in volumes[-1:]]
    of_claims = [
        {
            "uid": f"{volume['name']}-{place}",
            "namespace": volume["claim"].split("/")[0],
            "name": f"api-{volume['name']}-{place}",
            "node": "worker-1",
            "owner": "Deployment api",
            "claims": [volume["claim"]],
        }
        for volume in volumes
        for place in range(min(volume["pods"], 20))
    ]
    return {"volumes": volumes, "pods": [*known, *of_claims], "unread": 0}


def _earlier(
    results: Results, others: Results, nights: int, dice: random.Random
) -> list[reading.Row]:
    """The fleet so many nights ago: some of what is found now was not there yet, and some of what
    was there is gone.
    """
    since, until = random.Random(1), random.Random(2)
    rows = {row.name: row for row in results.rows()}
    for row in rows.values():
        row.findings = [
            finding
            for finding in row.findings
            if since.randrange(120) >= nights or since.random() < 0.6
        ]
    for row in others.rows():
        gone = [
            finding
            for finding in row.findings
            if until.randrange(100) < nights or dice.random() < 0.01
        ]
        rows[row.name].findings += [] if rows[row.name].reason else gone
    return list(rows.values())


def write(
    folder: Path, hosts: int, findings: int, seed: int = 1, runs: int = 0, **params: Any
) -> dict[str, Any]:
    """Write everything a run writes, after so many earlier runs; returns what the
    module returns.
    """
    params = {
        "title": "Storage compliance",
        "fleet": "example",
        "exceptions": EXCEPTIONS,
        **params,
    }
    asked, dice, previous = request(folder, **params), random.Random(seed), None
    results, others = (
        make_results(hosts, findings, seed),
        make_results(hosts, findings // 2, seed + 1),
    )
    for nights in range(0 if asked.partial else runs, 0, -1):
        finished = datetime.now(UTC) - timedelta(days=nights)
        occasion = model.Occasion(
            asked.params["title"],
            asked.params["fleet"],
            finished - timedelta(minutes=4),
            finished,
            "0.1.0",
        )
        exceptions = make_exceptions(params["exceptions"], datetime.now(UTC).date())
        report = assembly.build(
            _earlier(results, others, nights, dice), asked.scope, exceptions, occasion, previous
        )
        previous = history.keep(report, previous)
        files.keep_run(str(folder), report["run"]["id"], previous, asked.params["keep"])
    asked.begun = datetime.now(UTC) - timedelta(minutes=3, seconds=48)
    rows = results.rows()
    return asked.write(rows, users(rows))


def main() -> None:
    """As a program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hosts", type=int, default=40)
    parser.add_argument("--findings", type=int, default=60)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    written = write(options.folder, options.hosts, options.findings, options.seed, options.runs)
    print(written["msg"], *written["files"], sep="\n")


if __name__ == "__main__":
    main()
