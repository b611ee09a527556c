# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is decided about FUSE mounts that do not answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    likeness,
    model,
    service,
    stacks,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    plan as fuse_plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.limits import (
    Limits,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import (
    FuseOptions,
    FusePod,
    FuseState,
    FuseVolume,
    PodFolder,
    Target,
    Unfinished,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.runbook import (
    FuseRecovery,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import (
    ROOT,
    VolumeNote,
    parse_note,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    MountTable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.processes import Process
from ansible_collections.storage_ops.runbooks.tests.unit.support.fuse_volumes import (
    DIGEST,
    DRIVER,
    HANDLE,
    KEYS,
    OTHER_UID,
    POD_FOLDER,
    PUBLISH,
    PV,
    STAGE_FOLDER,
    STAGING,
    SUBPATH,
    UID,
    VOLUME,
)

OK, GONE = (
    Answer("ok"),
    Answer("dead", "statvfs", "ENOTCONN", "Transport endpoint is not connected"),
)
STUCK = Answer("hung", "listing", text="no answer within 5.0 s, abandoned as pid 99", left=99)
NOTES = {
    f"{STAGE_FOLDER}/vol_data.json": VolumeNote(DRIVER, HANDLE),
    f"{POD_FOLDER}/vol_data.json": VolumeNote(DRIVER, HANDLE, PV, "n1"),
}


def mount(number: int, point: str, device: str = "0:50", parent: int = 1, **more: Any) -> Mount:
    plain = Mount(
        number,
        parent,
        device,
        "/",
        point,
        ("rw", "nosuid"),
        0,
        0,
        False,
        "fuse.s3fs",
        "s3fs",
        ("rw", "allow_other"),
        "1",
    )
    return replace(plain, **more)


ROOT_MOUNT = mount(1, "/", "8:1", 0, fstype="ext4", shared=1)
MOUNTS = (mount(10, STAGING), mount(11, PUBLISH), mount(12, SUBPATH, root="/sub"))


def state(*mounts: Mount, answers: dict[str, Answer] | None = None, **more: Any) -> FuseState:
    facts: dict[str, Any] = {
        "notes": NOTES,
        "programs": {"s3fs": "/usr/bin/s3fs", "bindfs": "/usr/bin/bindfs"},
        "spare": {"/tmp": 512},
        **more,
    }
    return FuseState(
        "n1",
        ROOT,
        MountTable([ROOT_MOUNT, *(mounts or MOUNTS)]),
        answers or {"0:50": GONE},
        **facts,
    )


def options(**more: Any) -> FuseOptions:
    return FuseOptions(**{"volumes": (VOLUME,), "accept_majority": True, **more})


def only(found: FuseState, **more: Any) -> Finding:
    (finding,) = fuse_plan.plan(found, options(**more)).findings
    return finding


def verbs(finding: Finding) -> list[tuple[str, str]]:
    return [(action.verb, action.target) for action in finding.repair]


def test_one_finding_for_all_mounts_of_a_filesystem() -> None:
    finding = only(state())
    assert (finding.control, finding.name, finding.verdict) == ("STOR-05", STAGING, "repair")
    assert finding.evidence["mounts"] == [
        f"{STAGING} (staging)",
        f"{PUBLISH} (publish)",
        f"{SUBPATH} (subpath)",
    ]
    assert finding.evidence["answer"] == "0:50 statvfs: ENOTCONN"
    assert [verb for verb, _target in verbs(finding)] == [
        "mount",
        "replace_mount",
        "replace_mount",
        "replace_mount",
        "clean_up",
    ]
    assert [target for verb, target in verbs(finding) if verb == "replace_mount"] == [
        STAGING,
        PUBLISH,
        SUBPATH,
    ]
    assert finding.repair[3].command[-2:] == [
        f"{finding.repair[0].subject.recovery.folder}/mount/sub",
        SUBPATH,
    ]


ELSEWHERE = mount(20, "/mnt/mine")


@pytest.mark.parametrize(
    ("found", "applicable"),
    [
        (state(), True),
        # A mount of the driver's own shows that FUSE is used, though no volume is mounted now.
        (state(mount(20, f"{ROOT}/plugins/s3.example.com/cache")), True),
        (state(mount(20, f"{ROOT}2/pods")), False),
        (state(ELSEWHERE), False),
        (state(replace(MOUNTS[0], fstype="nfs4")), False),
        (state(ELSEWHERE, unfinished=(Unfinished("k", "n", (), ()),)), True),
        (replace(state(), root=""), False),
    ],
)
def test_fuse_controls_of_a_node_without_fuse(found: FuseState, applicable: bool) -> None:
    told = fuse_plan.not_applicable(found)
    assert list(told) == ([] if applicable else ["STOR-05", "STOR-06"])


def test_command_line_of_the_new_mount() -> None:
    action = only(
        state(), volumes=(replace(VOLUME, options=("use_path_request_style", "$x")),)
    ).repair[0]
    folder = action.subject.recovery.folder
    assert action.command[:5] == [
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={action.subject.recovery.unit}",
        f"--description=FUSE mount for {STAGING}",
    ]
    program = action.command[action.command.index("--") + 1 :]
    assert program[:4] == ["/usr/bin/s3fs", "-f", "bucket-a", f"{folder}/mount"]
    assert program[4:] == [
        *("-o", f"passwd_file={folder}/credentials", "-o", "url=https://s3"),
        *("-o", "use_path_request_style", "-o", "$$x", "-o", "allow_other"),
        *("-o", "ensure_diskfree=512"),
    ]
    assert action.subject.recovery.service.secret == "AKIDEXAMPLE:s3cr3t-key\n"
    assert "s3cr3t" not in repr(action.to_result()) + repr(action)


def properties(**changes: Any) -> dict[str, str]:
    command = only(state(), volumes=(replace(VOLUME, **changes),)).repair[0].command
    words = [
        word[len("--property=") :].partition("=")
        for word in command
        if word.startswith("--property=")
    ]
    return {name: value for name, _equals, value in words}


def test_a_server_has_limits_and_no_more_rights_than_to_mount() -> None:
    """With a listing without end s3fs took the node's memory; and it parses what a
    tenant writes.
    """
    found = properties()
    wanted = {
        "MemoryMax": "1024M",
        "TasksMax": "512",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "CAP_SYS_ADMIN",
    }
    wanted |= {
        "DevicePolicy": "closed",
        "DeviceAllow": "/dev/fuse rw",
        "LimitCORE": "0",
        "OOMScoreAdjust": "500",
    }
    assert wanted.items() <= found.items()
    # In a mount namespace of its own its mount would be seen by nobody.
    assert not {
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "ReadOnlyPaths",
        "PrivateDevices",
    } & set(found)
    own = properties(
        command=("s3fs", "{source}", "{target}"), credentials={}, memory_max=4096, tasks_max=64
    )
    assert (own["MemoryMax"], own["TasksMax"], own["NoNewPrivileges"]) == ("4096M", "64", "yes")
    assert "CapabilityBoundingSet" not in own


@pytest.mark.parametrize(
    ("known", "given", "memory", "tasks"),
    [
        (Limits(256 * 2**20, 128), {}, "256M", "128"),
        (Limits(256 * 2**20), {"memory_max": 2048}, "2048M", "512"),
        (Limits(20 * 2**20, 5), {}, "64M", "16"),
        (Limits(None, 64), {"tasks_max": 32}, "1024M", "32"),
        (Limits(8 * 2**30), {}, "8192M", "512"),
    ],
)
def test_a_server_has_the_limits_of_its_drivers_container(
    known: Limits, given: dict[str, int], memory: str, tasks: str
) -> None:
    command = (
        only(state(limits={DRIVER: known}), volumes=(replace(VOLUME, **given),)).repair[0].command
    )
    assert f"--property=MemoryMax={memory}" in command
    assert f"--property=TasksMax={tasks}" in command
    other = only(state(limits={"other": known})).repair[0].command
    assert "--property=MemoryMax=1024M" in other


@pytest.mark.parametrize(
    ("meminfo", "size"),
    [
        ("MemTotal:       32871284 kB\nMemFree: 4 kB\n", "8025M"),
        ("MemTotal:        4028412 kB\n", "2048M"),
        ("", "2048M"),
    ],
)
def test_all_servers_together_have_a_limit(meminfo: str, size: str) -> None:
    """Each had all that the driver's container may have: 30 volumes of a tenant 30 times that."""
    command = service.limit_command(meminfo)
    assert command[:4] == ["systemctl", "set-property", "--runtime", model.SLICE]
    assert command[4:] == [f"MemoryMax={size}"]


def test_a_server_of_another_user_is_not_replaced_by_one_of_root() -> None:
    mine = tuple(
        replace(each, super_options=("rw", "user_id=1000", "group_id=0")) for each in MOUNTS
    )
    assert "its server ran as another user than root (user_id=1000)" in only(state(*mine)).reason
    own = (replace(VOLUME, command=("s3fs", "{source}", "{target}"), credentials={}),)
    assert only(state(*mine), volumes=own).verdict == "repair"
    roots = tuple(replace(each, super_options=("rw", "user_id=0")) for each in MOUNTS)
    assert only(state(*roots)).verdict == "repair"


def test_mounts_that_answer_are_nothing_to_report() -> None:
    assert fuse_plan.plan(state(answers={"0:50": OK}), options()).findings == []


@pytest.mark.parametrize("fstype", ["fuseblk", "fusectl", "ext4"])
def test_what_no_process_serves_is_not_ours(fstype: str) -> None:
    assert stacks.superblocks(state(mount(10, STAGING, fstype=fstype)).table, ROOT) == {}


@pytest.mark.parametrize(
    "point",
    ["/mnt/s3", f"{ROOT}/pods/{UID}/other", f"{PUBLISH}/..", f"{STAGING}\n", f"{ROOT}er/pods"],
)
def test_only_places_of_the_kubelet_are_acted_on(point: str) -> None:
    found = state(*MOUNTS, mount(13, point))
    finding = only(found)
    assert point not in [target for _verb, target in verbs(finding)]
    assert finding.evidence["outside"] == [model.printable(point)]
    assert "\n" not in model.printable(point)
    assert stacks.superblocks(state(mount(13, point)).table, ROOT) == {}


FOLDER = "/var/lib/juicefs/volume/pvc-1-abcdef"
SERVER = Process(40, "juicefs", "mnt:[9]", OTHER_UID, "", ())


def kept(*more: Mount, **facts: Any) -> FuseState:
    """A driver that keeps its mount in a folder of its own, and binds it for pods."""
    return state(mount(9, FOLDER), mount(11, PUBLISH), *more, **facts)


@pytest.mark.parametrize("strategy", ["remount", "kubelet"])
def test_a_mount_of_the_drivers_own_is_not_left_dead(strategy: str) -> None:
    finding = only(kept(), strategy=strategy)
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert finding.evidence["outside"] == [FOLDER]
    assert f"the driver's own mount at {FOLDER}" in finding.reason
    assert "its server is gone, or of no pod" in finding.reason


def test_the_pod_of_its_server_is_named() -> None:
    """It has /dev/fuse open, and the mount in its mount namespace; so has not the pod
    that uses it.
    """
    copy = mount(70, FOLDER, pid="40")
    user = Process(41, "app", "mnt:[8]", UID, "", ())
    seen = mount(71, "/data", pid="41")
    processes = (SERVER, user)
    facts: dict[str, Any] = {"others": (copy, seen), "processes": processes, "servers": (40,)}
    finding = only(kept(**facts))
    assert f"its server may be that of the pod {OTHER_UID}: delete that pod" in finding.reason
    assert finding.evidence["servers"] == [f"juicefs (pid 40) of pod {OTHER_UID}"]
    for changed in ({"servers": ()}, {"servers": (41,), "others": (copy,)}, {"others": (seen,)}):
        assert OTHER_UID not in only(kept(**{**facts, **changed})).reason
    # On the node itself, where its mount is propagated to, it is the same one.
    host = Process(1, "systemd", "mnt:[1]", "", "", ())
    here = replace(SERVER, namespace="mnt:[1]")
    finding = only(kept(**{**facts, "others": (), "processes": (host, here)}))
    assert f"that of the pod {OTHER_UID}" in finding.reason


@pytest.mark.parametrize(
    "outside",
    [
        mount(9, FOLDER, root="/sub"),
        mount(9, FOLDER, "0:51"),
        mount(9, f"{ROOT}/pods/x"),
    ],
)
def test_other_mounts_elsewhere_are_not_the_drivers(outside: Mount) -> None:
    """A folder of it, another filesystem, and one that something lies on."""
    above = mount(19, f"{ROOT}/pods/x", "0:60", parent=9, fstype="tmpfs")
    more = (above,) if outside.point.startswith(ROOT) else ()
    answers = {"0:50": GONE, "0:51": OK}
    finding = only(state(outside, *more, mount(11, PUBLISH), answers=answers))
    assert finding.verdict == "repair"


def test_what_is_staged_is_bound_from_there() -> None:
    """Somebody's own bind of it elsewhere is only shown."""
    finding = only(state(*MOUNTS, mount(9, FOLDER)))
    assert (finding.verdict, finding.evidence["outside"]) == ("repair", [FOLDER])


def test_what_a_mount_higher_up_hides_is_not_acted_on() -> None:
    hidden = state(
        mount(10, STAGING), mount(11, PUBLISH), mount(20, f"{ROOT}/pods", "0:60", fstype="tmpfs")
    )
    finding = only(hidden)
    assert [target for verb, target in verbs(finding) if verb == "replace_mount"] == [STAGING]
    assert finding.evidence["outside"] == [PUBLISH]
    nothing = state(mount(11, PUBLISH), mount(20, f"{ROOT}/pods", "0:60", fstype="tmpfs"))
    assert fuse_plan.plan(nothing, options()).findings == []


# A filesystem in a file of the volume, as csi-s3 makes it with s3backer.
LOOP = mount(30, PUBLISH, "7:3", fstype="ext4", source="/dev/loop3")


def test_a_loop_device_keeps_the_file_of_the_dead_server() -> None:
    """A remount would end green, and the pod's filesystem would stay broken."""
    finding = only(state(mount(10, STAGING), LOOP))
    assert (finding.verdict, finding.code, finding.repair) == ("refuse", "in_use_held", [])
    assert finding.evidence["loops"] == [PUBLISH]
    assert f"a loop device at {PUBLISH} is on a file of it" in finding.reason
    # Also if its record cannot be read.
    unread = {**NOTES, f"{POD_FOLDER}/vol_data.json": VolumeNote(problem="broken")}
    known = replace(VOLUME, pods=(FusePod(UID, "ns", "p"),))
    assert only(state(mount(10, STAGING), LOOP, notes=unread), volumes=(known,)).repair == []
    # Or that of the dead mount, whose path has the handle's digest.
    staged = {**NOTES, f"{STAGE_FOLDER}/vol_data.json": VolumeNote(problem="broken")}
    assert only(state(mount(10, STAGING), LOOP, notes=staged)).code == "in_use_held"
    # btrfs shows another number.
    of_its_own = replace(LOOP, device="0:77", fstype="btrfs")
    assert only(state(mount(10, STAGING), of_its_own)).code == "in_use_held"


def test_a_source_that_a_fuse_program_gave_is_no_loop_device() -> None:
    named = mount(11, PUBLISH, source="/dev/loop3")
    assert stacks.loop_mounts(state(mount(10, STAGING), named).table, ROOT) == []


def test_a_covered_mount_may_be_reached_by_a_loop_device() -> None:
    above = mount(40, STAGING, "0:51", parent=10)
    finding = only(state(mount(10, STAGING), above, LOOP, answers={"0:50": GONE, "0:51": OK}))
    assert finding.verdict == "report"
    assert f"no process can reach it but by the loop device at {PUBLISH}" in finding.reason


@pytest.mark.parametrize(
    ("loop", "notes"),
    [
        # Another disk, another volume, and what is no volume of a pod.
        (replace(LOOP, device="8:16", source="/dev/sdb"), NOTES),
        (LOOP, {**NOTES, f"{POD_FOLDER}/vol_data.json": VolumeNote(DRIVER, "other", PV, "n1")}),
        (replace(LOOP, point=f"{ROOT}/pods/{UID}/volume-subpaths/{PV}/main/0"), NOTES),
        (replace(LOOP, point="/srv/files"), NOTES),
    ],
)
def test_other_devices_keep_nothing_of_it(loop: Mount, notes: dict[str, VolumeNote]) -> None:
    finding = only(state(mount(10, STAGING), loop, notes=notes))
    assert finding.verdict == "repair" and "loops" not in finding.evidence


def test_the_pod_with_a_loop_device_goes_for_the_strategy_kubelet() -> None:
    """Then the driver unmounts it, and the kubelet unstages the volume."""
    found = state(mount(10, STAGING), LOOP, folders=(PodFolder(UID, PV, DRIVER, HANDLE),))
    stays = kubelets(found, (FusePod(UID, "ns", "p"),), containers_timeout=60)
    assert (stays.verdict, stays.evidence["evict"]) == ("refuse", ["ns/p"])
    goes = kubelets(found, (FusePod(UID, "ns", "p", terminating=True),), containers_timeout=60)
    unread = {**NOTES, f"{POD_FOLDER}/vol_data.json": VolumeNote(problem="broken")}
    by_name = replace(VOLUME, volume=PV, pods=(FusePod(UID, "ns", "p", terminating=True),))
    told = only(replace(found, notes=unread), strategy="kubelet", volumes=(by_name,))
    assert (told.evidence["pods"], told.evidence["volumes"]) == ([UID], [PV])
    # By both, the playbook knows what to move.
    assert (goes.evidence["pods"], goes.evidence["volumes"]) == ([UID], [PV])
    assert verbs(goes) == [("wait_for_containers", STAGING), ("wait_unstaged", STAGING)]


def test_stacked_dead_layers_go_together_and_what_is_below_stays() -> None:
    below = mount(5, STAGING, "8:2", fstype="ext4")
    finding = only(
        state(
            below,
            mount(10, STAGING, parent=5),
            mount(11, STAGING, "0:51", parent=10),
            answers={"0:50": GONE, "0:51": GONE},
        )
    )
    assert sorted(finding.evidence["devices"]) == ["0:50", "0:51"]
    (target,) = finding.repair[0].subject.recovery.targets
    assert ([layer.id for layer in target.take], target.beneath) == ([11, 10], 5)


def test_dead_below_one_that_answers_is_only_reported() -> None:
    finding = only(
        state(
            mount(10, STAGING),
            mount(11, STAGING, "0:51", parent=10),
            answers={"0:50": GONE, "0:51": OK},
        )
    )
    assert (finding.verdict, finding.repair, finding.evidence["covered"]) == (
        "report",
        [],
        [STAGING],
    )


def test_who_is_asked() -> None:
    """One mount of each filesystem, the staging one if it can be had; what is buried under broken
    ones comes later.
    """
    stacked = (mount(10, STAGING), mount(11, STAGING, "0:51", parent=10), mount(12, PUBLISH))
    table = MountTable([ROOT_MOUNT, *stacked])
    found = stacks.superblocks(table, ROOT)
    assert {device: stacks.to_ask(table, superblock) for device, superblock in found.items()} == {
        "0:50": PUBLISH,
        "0:51": STAGING,
    }
    table = MountTable([ROOT_MOUNT, *stacked[:2]])
    found = stacks.superblocks(table, ROOT)
    assert stacks.to_ask(table, found["0:50"]) == ""
    assert stacks.buried(table, found, {"0:51": GONE}) == [stacked[0]]
    assert stacks.buried(table, found, {"0:51": OK}) == []
    assert stacks.buried(table, found, {"0:51": GONE, "0:50": GONE}) == []


def test_a_renewed_staging_mount_is_used() -> None:
    found = state(
        mount(10, STAGING, "0:51"), mount(11, PUBLISH), answers={"0:50": GONE, "0:51": OK}
    )
    finding = only(found, volumes=())
    assert verbs(finding)[:2] == [("adopt_mount", PUBLISH), ("replace_mount", PUBLISH)]
    assert finding.repair[1].command[-2:] == [STAGING, PUBLISH]
    other = replace(
        found,
        table=MountTable(
            [ROOT_MOUNT, mount(10, STAGING, "0:51", fstype="fuse.rclone"), mount(11, PUBLISH)]
        ),
    )
    assert only(other, volumes=()).verdict == "refuse"
    part = mount(10, STAGING, "0:51", root="/sub")
    other = replace(found, table=MountTable([ROOT_MOUNT, part, mount(11, PUBLISH)]))
    assert only(other, volumes=()).verdict == "refuse"
    assert only(replace(found, answers={"0:50": GONE}), volumes=()).verdict == "refuse", "not asked"


def test_a_staging_mount_of_something_else_is_not_used() -> None:
    new = mount(10, STAGING, "0:51", source="bucket-b")
    old = mount(11, PUBLISH, source="bucket-a")
    finding = only(state(new, old, answers={"0:50": GONE, "0:51": OK}), volumes=())
    assert finding.verdict == "refuse"
    assert finding.reason == "the new mount is of 'bucket-b', the dead one was of 'bucket-a'"


def test_what_lies_below_a_mount_that_was_taken_off_is_not_the_renewed_one() -> None:
    """An interrupted run took the dead mount off the staging folder, where an older one answers."""
    staging = Target(STAGING, "staging", (), "/", (), 10)
    left = Unfinished(
        "abc", STAGING, ("0:50",), (staging, Target(PUBLISH, "publish", (), "/", (), 1))
    )
    below = mount(10, STAGING, "0:51")
    found = state(below, mount(11, PUBLISH), answers={"0:50": GONE, "0:51": OK}, unfinished=(left,))
    finding = only(found, volumes=())
    assert finding.verdict == "refuse"
    assert "nothing says what is to be mounted" in finding.reason


RIGHT_ONE = (
    "give the right one in 'sources', or let the driver mount it again for new pods (strategy "
    "kubelet)"
)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sources": ()}, f"no source of pvc-1 is known: {RIGHT_ONE}"),
        ({"sources": ("",)}, "no source of pvc-1 is known"),
        (
            {"sources": ("bucket-a", "bucket-b", "bucket-a")},
            f"more than one candidate source: 'bucket-a', 'bucket-b': {RIGHT_ONE}",
        ),
        ({"recipe": "rclone"}, "rclone is not on this host"),
        ({"unreadable": "no closing quotation"}, "no closing quotation: give them in 'options'"),
        ({"credentials": {"access_key": "x"}}, "the credentials lack secret_key"),
        (
            {"command": ("s3fs", "{source}", "{target}"), "credentials": {}, "doubt": "whose?"},
            "whose?",
        ),
        (
            {"command": ("s3fs", "-o", "key=s3cr3t-key", "{source}", "{target}")},
            "the command line would contain the credential secret_key",
        ),
        (
            {"options": ("passwd=s3cr3t-key",)},
            "the command line would contain the credential secret_key",
        ),
        (
            {"credentials": {**KEYS, "secret_key": "a\nb"}},
            "has characters that no credentials file can hold",
        ),
        ({"sources": ("-o evil",)}, "the source '-o evil' cannot be one"),
        ({"endpoint": "https://s3,passwd_file=/etc/shadow"}, "cannot be one"),
        (
            {"handle": "bucket-b"},
            "'volumes' has the volume handle bucket-b, the kubelet's note bucket-a",
        ),
        ({"volume": "pvc-2", "handle": ""}, "nothing says what is to be mounted"),
    ],
)
def test_refused_for_what_is_to_be_mounted(changes: dict[str, Any], reason: str) -> None:
    finding = only(state(), volumes=(replace(VOLUME, **changes),))
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert reason in finding.reason
    assert "s3cr3t-key" not in repr(finding.to_result())


def test_refused_when_two_entries_say_it() -> None:
    assert (
        "2 entries of 'volumes' say"
        in only(state(), volumes=(VOLUME, replace(VOLUME, sources=("b",)))).reason
    )


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            state(parents={PUBLISH: "'/var/lib' cannot be entered: it is a link, or no folder"}),
            "it is a link",
        ),
        (
            state(*MOUNTS, mount(30, f"{STAGING}/inner", "8:9", parent=10, fstype="ext4")),
            "another mount is inside it",
        ),
        (state(mount(10, SUBPATH, root="/sub//deleted")), "was deleted"),
        # Of such a path only the beginning is kept: it cannot be mounted again.
        (state(mount(10, SUBPATH, root="/sub" * 500)), "too long to be mounted again"),
        (
            state(notes={f"{STAGE_FOLDER}/vol_data.json": VolumeNote("other.driver", HANDLE)}),
            "names the driver other.driver",
        ),
        (
            state(notes={**NOTES, f"{POD_FOLDER}/vol_data.json": VolumeNote(DRIVER, "x", PV)}),
            "name more than one volume",
        ),
        (state(systemd=False), "systemd does not run here"),
    ],
)
def test_refused_for_what_is_there(found: FuseState, reason: str) -> None:
    finding = only(found)
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert reason in finding.reason


def test_what_was_said_of_another_node_is_not_used() -> None:
    for strategy in ("remount", "kubelet"):
        assert (
            "the kubelet calls this node n1, but 'volumes' is about the node n2"
            in only(state(), node="n2", strategy=strategy).reason
        )
    assert only(state(), node="n1").verdict == "repair"


def test_a_command_of_ones_own_runs_without_systemd() -> None:
    own = replace(VOLUME, command=("bindfs", "{source}", "{target}"), credentials={})
    action = only(state(systemd=False), volumes=(own,)).repair[0]
    assert action.command == [
        "/usr/bin/bindfs",
        "bucket-a",
        f"{action.subject.recovery.folder}/mount",
    ]


def test_what_hung_in_earlier_runs_only_is_left_alone() -> None:
    """Its server may have lost their requests, and answer all others."""
    finding = only(
        state(answers={"0:50": replace(STUCK, asked=False)}), abort_hung_connections=True
    )
    assert (finding.control, finding.verdict, finding.code) == (
        "STOR-06",
        "refuse",
        "evidence_unreadable",
    )
    assert "and may answer" in finding.reason


def test_a_hung_mount_needs_leave() -> None:
    hung = state(answers={"0:50": STUCK}, waiting={"0:50": "connection 50: 1 requests wait"})
    finding = only(hung)
    assert (finding.control, finding.verdict) == ("STOR-06", "refuse")
    assert "abort_hung_connections" in finding.reason
    assert finding.evidence["held"] == [99]
    finding = only(hung, abort_hung_connections=True)
    # A hung one is not cut before there is something to take its place.
    assert [verb for verb, _target in verbs(finding)][:3] == [
        "mount",
        "abort_connection",
        "replace_mount",
    ]
    write = ["write", "/sys/fs/fuse/connections/50/abort", "1"]
    assert finding.repair[1].command == [
        "mount",
        "-t",
        "fusectl",
        "fusectl",
        "/sys/fs/fuse/connections",
        "then",
        *write,
    ]
    there = replace(
        hung,
        table=MountTable(
            [*hung.table.mounts, mount(3, "/sys/fs/fuse/connections", "0:9", fstype="fusectl")]
        ),
    )
    assert only(there, abort_hung_connections=True).repair[1].command == write
    # What hangs where only a mount that answers is met is left alone.
    covered = (
        mount(10, STAGING),
        mount(11, PUBLISH, "0:51"),
        mount(12, PUBLISH, "0:52", parent=11),
        mount(13, SUBPATH, "0:51"),
    )
    covered = (*covered, mount(14, SUBPATH, parent=13), mount(15, SUBPATH, "0:53", parent=14))
    found = state(*covered, answers={"0:50": GONE, "0:51": STUCK, "0:52": OK, "0:53": OK})
    findings = fuse_plan.plan(
        found, options(abort_hung_connections=True, accept_majority=True)
    ).findings
    assert [
        (
            finding.verdict,
            [action for action in finding.repair if action.verb == "abort_connection"],
        )
        for finding in findings
    ] == [("repair", [])]


@pytest.mark.parametrize(("answer", "verdict"), [(GONE, "report"), (STUCK, "refuse")])
def test_a_client_that_passes_on_what_its_servers_answer(answer: Answer, verdict: str) -> None:
    """It may well live, and come back with them."""
    finding = only(
        state(
            mount(10, STAGING, fstype="fuse.glusterfs", source="host:/vol"),
            answers={"0:50": answer},
        )
    )
    assert (finding.verdict, finding.repair) == (verdict, [])
    assert ("its client may live" in finding.reason) == (verdict == "report")


@pytest.mark.parametrize(
    ("fstype", "source", "origin"),
    [
        ("fuse.s3fs", "s3fs", ""),
        ("fuse.geesefs", "bucket:folder/", "bucket:folder"),
        ("fuse", "/srv/data", "/srv/data"),
        ("fuse", "/dev/fuse", "/dev/fuse"),
        ("fuse.rclone", "lab{Xy}:bucket/a", "bucket/a"),
        ("fuse.rclone", ":s3,endpoint='https://h:1':bucket", "bucket"),
        ("fuse.juicefs", "JuiceFS:one", "JuiceFS:one"),
        ("fuse.ceph-fuse", "ceph-fuse", ""),
    ],
)
def test_what_a_mount_is_of(fstype: str, source: str, origin: str) -> None:
    assert likeness.origin_of(mount(10, STAGING, fstype=fstype, source=source)) == origin


def test_a_new_mount_must_be_like_the_dead_one() -> None:
    old = mount(
        10,
        STAGING,
        source="a:b",
        super_options=("rw", "default_permissions", "allow_other"),
    )
    finding = only(state(old))
    recovery = finding.repair[0].subject.recovery
    assert (recovery.origin, recovery.kept) == ("a:b", ("allow_other", "default_permissions"))
    new = replace(old, id=20, device="0:60")
    assert likeness.unlike(recovery, new) == ""
    assert (
        likeness.unlike(recovery, replace(new, source="a:c"))
        == "the new mount is of 'a:c', the dead one was of 'a:b'"
    )
    assert (
        likeness.unlike(recovery, replace(new, source="s3fs"))
        == "the new mount is of 's3fs', the dead one was of 'a:b'"
    )
    # What another program calls its sources cannot be compared.
    assert likeness.unlike(recovery, replace(new, source="bindfs", fstype="fuse.bindfs")) == ""
    lost = replace(new, super_options=("rw", "default_permissions"))
    assert (
        likeness.unlike(recovery, lost) == "the new mount lacks allow_other, which the dead one had"
    )
    assert "dead filesystem" in likeness.unlike(recovery, old)
    stacked = only(
        state(
            old,
            mount(11, STAGING, "0:51", 10, source="c"),
            answers={"0:50": GONE, "0:51": GONE},
        )
    )
    assert "have different sources: a:b, c" in stacked.reason


LABEL = "context=system_u:object_r:container_file_t:s0"
PAIR = 'context="system_u:object_r:container_file_t:s0:c1,c2"'


def labelled(*options: str) -> Mount:
    # As mountinfo is read: at every comma.
    words = ",".join(("rw", *options, "max_read=1")).split(",")
    return mount(10, STAGING, super_options=tuple(words))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), ()),
        (("seclabel",), ()),
        ((LABEL,), (LABEL,)),
        ((PAIR, "user_id=0"), (PAIR,)),
        ((f"fs{LABEL}", f"root{PAIR}"), (f"fs{LABEL}", f"root{PAIR}")),
        (("subcontext=x",), ()),
    ],
)
def test_labels_of_selinux(options: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert likeness.contexts(labelled(*options)) == found


@pytest.mark.parametrize("label", [LABEL, PAIR])
def test_a_new_mount_must_have_the_label_of_the_dead_one(label: str) -> None:
    dead = labelled(label)
    finding = only(state(dead))
    assert finding.verdict == "refuse"
    assert f"the dead mount has {label}, without which SELinux may keep" in finding.reason
    given = replace(VOLUME, options=(LABEL,))
    (recovery,) = {action.subject.recovery for action in only(state(dead), volumes=(given,)).repair}
    assert recovery.kept == (label,)
    new = replace(dead, id=20, device="0:60")
    assert likeness.unlike(recovery, new) == ""
    for other in (labelled(), labelled(f"{LABEL}:c9")):
        why = likeness.unlike(recovery, replace(other, id=20, device="0:60"))
        assert why == f"the new mount lacks {label}, which the dead one had"


@pytest.mark.parametrize("recipe", ["", "geesefs"])
def test_a_program_without_a_recipe(recipe: str) -> None:
    """The refusal has each way out; the user's own command is one of them."""
    dead = mount(10, STAGING, fstype="fuse.geesefs", source="a:b")
    entry = replace(VOLUME, recipe=recipe)
    finding = only(state(dead), volumes=(entry,))
    assert (finding.verdict, finding.code) == ("refuse", "mount_unknown")
    assert finding.reason.endswith(
        "give one of s3fs, rclone, or a command, or let the driver mount it again for new pods "
        "(strategy kubelet)"
    )
    own = replace(entry, command=("geesefs", "{source}", "{target}"), credentials={})
    found = only(state(dead, programs={"geesefs": "/bin/geesefs"}), volumes=(own,))
    assert found.verdict == "repair", found.reason


@pytest.mark.parametrize(
    ("recipe", "given", "added"),
    [
        ("s3fs", (), ["allow_other", "default_permissions"]),
        ("s3fs", ("ro,allow_other", "-o default_permissions"), []),
        ("s3fs", ("-oallow_root",), ["default_permissions"]),
        ("rclone", ("--allow-non-empty",), ["--allow-other", "--default-permissions"]),
        ("rclone", ("--allow-other=true",), ["--default-permissions"]),
    ],
)
def test_options_that_are_carried_over(
    recipe: str, given: tuple[str, ...], added: list[str]
) -> None:
    found = state(
        mount(10, STAGING, super_options=("rw", "allow_other", "default_permissions")),
        programs={recipe: f"/bin/{recipe}"},
    )
    command = (
        only(found, volumes=(replace(VOLUME, recipe=recipe, options=given),)).repair[0].command
    )
    assert [
        word
        for word in command
        if word in ("allow_other", "default_permissions", "--allow-other", "--default-permissions")
    ] == added


@pytest.mark.parametrize(
    ("given", "added"),
    [
        (("ro",), ["ensure_diskfree=512"]),
        # Both together, or one twice, s3fs refuses.
        (("ensure_diskfree=9",), []),
        (("-o allow_other,free_space_ratio=5",), []),
        (("tmpdir=/big",), ["ensure_diskfree=700"]),
        # It measures only the cache, where there is one.
        (("tmpdir=/big", "-ouse_cache=/more"), ["ensure_diskfree=90"]),
        (("use_cache=",), ["ensure_diskfree=512"]),
    ],
)
def test_a_server_leaves_room_on_the_nodes_disk(given: tuple[str, ...], added: list[str]) -> None:
    """s3fs keeps each open file, and a tenant's server may have one of any size: it filled the disk
    of the node, and the kubelet evicted the pods of others.
    """
    found = state(spare={"/tmp": 512, "/big": 700, "/more": 90})
    command = only(found, volumes=(replace(VOLUME, options=given),)).repair[0].command
    own = [word for word in command if "ensure_diskfree" in word and word not in given]
    assert own == added
    # How much that is depends on the node. rclone has a limit of its own.
    finding = only(state(spare={}), volumes=(replace(VOLUME, options=("tmpdir=/big",)),))
    assert finding.verdict == "refuse" and "how large the file system of /big is" in finding.reason
    assert finding.code == "evidence_unreadable"
    rclone = state(mount(10, STAGING, fstype="fuse.rclone"), programs={"rclone": "/r"}, spare={})
    assert only(rclone, volumes=(replace(VOLUME, recipe="rclone"),)).verdict == "repair"


def test_nobody_needs_to_remove_the_credentials() -> None:
    """The unit does, when the mount lists or the program has ended; where there are none, it does
    nothing.
    """
    command = only(state()).repair[0].command
    start, stop = (
        next(word for word in command if f"Exec{what}Post=" in word) for what in ("Start", "Stop")
    )
    assert all(
        word.endswith('/credentials"') and "rm -f /run/storage_ops/fuse/" in word
        for word in (start, stop)
    )
    own = replace(VOLUME, command=("bindfs", "{source}", "{target}"), credentials={})
    assert not any("Post=" in word for word in only(state(), volumes=(own,)).repair[0].command)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"endpoint": "https://user:hidden@s3"}, "the endpoint has a password in it"),
        ({"sources": ("redis://:hidden@host/1",)}, "the source has a password in it"),
        (
            {"sources": ("redis://:hid@den@host/1", "b")},
            "more than one candidate source: 'b', 'redis://********@host/1'",
        ),
        (
            {"endpoint": "https://user:hidden@s3,x"},
            "the endpoint 'https://********@s3,x' cannot be one",
        ),
        ({"options": ("ro,passwd=hidden",)}, "the option 'passwd' is a secret"),
        (
            {"options": ("--s3-secret-access-key=hidden",)},
            "the option 's3-secret-access-key' is a secret",
        ),
        ({"options": ("url=http://u:hidden@host",)}, "the option has a password in it"),
        (
            {"options": ("--s3-sse-customer-key=hidden",)},
            "the option 's3-sse-customer-key' is a secret",
        ),
        (
            {"options": ("--s3-sse-customer-key-base64=hidden",)},
            "the option 's3-sse-customer-key-base64' is a secret",
        ),
        ({"options": ("--sse-c=hidden",)}, "the option 'sse-c' is a secret"),
        (
            {"options": ("ro,ssl_client_cert=/c:PEM:/k:PEM:hidden",)},
            "the option 'ssl_client_cert' is a secret",
        ),
        # In one word of the user's, as a shell would take it.
        ({"options": ("--s3-sse-customer-key hidden",)}, "'s3-sse-customer-key' is a secret"),
        # What csi_volume_info has hidden is no value of a program's.
        ({"options": ("x_access_key=(hidden)",)}, "the option 'x_access_key' is a secret"),
        ({"options": ("(hidden, 5000 characters)",)}, "an option is a secret"),
    ],
)
def test_passwords_where_everybody_sees_them(changes: dict[str, Any], reason: str) -> None:
    finding = only(state(), volumes=(replace(VOLUME, **changes),))
    assert finding.verdict == "refuse"
    assert reason in finding.reason
    assert "hidden" not in repr(finding.to_result())


def test_options_that_name_no_secret() -> None:
    """Names of keys that are known to the server, of files, and switches."""
    given = (
        *("passwd_file=/p", "use_session_token", "--s3-sse-kms-key-id=arn:aws:kms:x", "use_sse=1"),
        *("ssl_client_cert=/c:PEM:/k:PEM", "ssl_client_cert=/c", "ssl_client_cert=/c:PEM:/k:PEM:"),
        *("load_sse_c=/keys", "--s3-sse-customer-algorithm=AES256", "key_cache=1"),
    )
    assert service._secret_options(replace(VOLUME, options=given)) == []


RCLONE = state(
    mount(10, STAGING, fstype="fuse.rclone"),
    programs={"rclone": "/usr/bin/rclone", "s3fs": "/usr/bin/s3fs"},
)


def test_buckets_of_one_name_on_two_servers_share_no_cache() -> None:
    """rclone uploads what it finds there when it starts, by the names of remote and bucket."""

    def cache(endpoint: str, source: str = "data") -> str:
        changes = {"recipe": "rclone", "endpoint": endpoint, "sources": (source,)}
        finding = only(RCLONE, volumes=(replace(VOLUME, credentials=KEYS, **changes),))
        service = finding.repair[0].subject.recovery.service
        (found,) = [one for one in service.environment if one.startswith("RCLONE_CACHE_DIR=/")]
        assert "RCLONE_VFS_CACHE_MAX_SIZE=1G" in service.environment
        return str(found)

    assert cache("https://s3.a") == cache("https://s3.a")
    assert len({cache("https://s3.a"), cache("https://s3.b"), cache("https://s3.a", "other")}) == 3


EVIL = "x\ntype = webdav\nbearer_token_command = touch /tmp/owned"
OWN = ("s3fs", "-f", "{source}", "{target}", "-o", "endpoint={region}")


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        (RCLONE, {"region": EVIL}),
        (RCLONE, {"region": "x\ntype = combine\nupstreams = bucket-a=/"}),
        (RCLONE, {"endpoint": EVIL}),
        (RCLONE, {"sources": (EVIL,)}),
        (RCLONE, {"credentials": {**KEYS, "access_key": EVIL}}),
        (RCLONE, {"credentials": {**KEYS, "session_token": EVIL}}),
        (RCLONE, {"recipe": EVIL}),
        (RCLONE, {"command": OWN, "region": "x,logfile=/etc/cron.d/x"}),
        (RCLONE, {"command": OWN, "region": "eu", "sources": ("b,logfile=/x",)}),
        (RCLONE, {"command": OWN, "region": "x" * 1_400_000}),
    ],
)
def test_nothing_in_a_secret_becomes_a_line_or_an_option(
    found: FuseState, changes: dict[str, Any]
) -> None:
    """Each of these gave a tenant a command, a file or the root folder of the node."""
    finding = only(found, volumes=(replace(VOLUME, **changes),))
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert finding.reason.isprintable() and len(finding.reason) < 1000


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"endpoint": EVIL}, "the endpoint 'x"),
        ({"region": EVIL}, "the region 'x"),
        ({"options": ("a" * 5_000,)}, "the option of 5000 characters"),
    ],
)
def test_a_value_is_refused_even_where_the_command_does_not_use_it(
    changes: dict[str, Any], reason: str
) -> None:
    """It is no word of its kind, so whoever gave it meant something else by it."""
    own = replace(VOLUME, command=("s3fs", "-f", "{source}", "{target}"), **changes)
    finding = only(state(), volumes=(own,))
    assert (finding.verdict, finding.code, finding.repair) == ("refuse", "value_refused", [])
    assert reason in finding.reason


@pytest.mark.parametrize(
    "option", ["passwd_file=/x", "use_session_token", "mp_umask=0", "dbglevel=info"]
)
def test_options_that_are_no_secrets(option: str) -> None:
    assert only(state(), volumes=(replace(VOLUME, options=(option,)),)).verdict == "repair"


def test_users_in_addresses() -> None:
    """A name alone is no secret."""
    known = ("mysql://user:@(host)/db", "https://user@host", "bucket:folder")
    assert [fuse_plan.masked(text) for text in known] == list(known)
    dead = state(mount(10, STAGING, source="redis://:hidden@host"))
    assert only(dead).evidence["source"] == "redis://********@host"


@pytest.mark.parametrize(
    "point", [f"{ROOT}/pods/{UID}/volumes/kubernetes.io~empty-dir/{PV}", SUBPATH]
)
def test_a_pods_own_name_for_a_volume_means_no_entry(point: str) -> None:
    found = state(mount(10, point))
    assert "nothing says" in only(found, volumes=(replace(VOLUME, handle=""),)).reason
    assert only(found, volumes=(replace(VOLUME, paths=(point,)),)).verdict == "repair"
    assert only(found).evidence["volumes"] == []


@pytest.mark.parametrize(
    ("entry", "matches"),
    [
        (FuseVolume(volume=PV, pods=(FusePod(UID),)), True),
        (FuseVolume(handle=HANDLE), True),
        (FuseVolume(handle=HANDLE, driver="other"), False),
        (FuseVolume(paths=(PUBLISH,)), True),
        (FuseVolume(paths=("/mnt",), volume="x", handle="y"), False),
    ],
)
@pytest.mark.parametrize("notes", [NOTES, {}])
def test_which_entry_is_meant(
    entry: FuseVolume, matches: bool, notes: dict[str, VolumeNote]
) -> None:
    """By name, handle (of which the staging path has the digest) or path, with and without the
    kubelet's notes.
    """
    finding = only(
        state(notes=notes), volumes=(replace(entry, sources=("bucket-a",), credentials=KEYS),)
    )
    assert (finding.verdict == "repair") == matches


def test_a_name_alone_means_an_entry_if_the_kubelet_has_noted_it() -> None:
    entry = FuseVolume(volume=PV, sources=("bucket-a",), credentials=KEYS)
    assert only(state(), volumes=(entry,)).verdict == "repair"
    assert only(state(notes={}), volumes=(entry,)).code == "mount_unknown"


def test_options_of_a_mount_are_kept() -> None:
    found = state(
        mount(10, STAGING),
        mount(11, PUBLISH, options=("ro", "nosuid", "relatime")),
        mount(12, SUBPATH, super_options=("ro",)),
    )
    targets = {
        target.point: target.flags for target in only(found).repair[0].subject.recovery.targets
    }
    assert targets == {STAGING: ("nosuid",), PUBLISH: ("ro", "nosuid"), SUBPATH: ("ro", "nosuid")}


# the strategy kubelet


def left_behind(**more: Any) -> FuseState:
    return state(folders=(PodFolder(UID, PV, DRIVER, HANDLE),), **more)


def process(number: int, pod: str, namespace: str = "mnt:[1]", container: str = "") -> Process:
    return Process(number, "sleep", namespace, pod, container, ())


def kubelets(found: FuseState, pods: tuple[FusePod, ...] | None = (), **more: Any) -> Finding:
    return only(found, strategy="kubelet", volumes=(replace(VOLUME, pods=pods),), **more)


@pytest.mark.parametrize(
    "pods", [(), (FusePod(UID, "ns", "p", terminating=True),), (FusePod(OTHER_UID),)]
)
def test_left_behind_by_pods_that_are_gone(pods: tuple[FusePod, ...]) -> None:
    finding = kubelets(left_behind(), pods)
    assert finding.evidence["pods"] == [UID]
    assert verbs(finding) == [
        ("unmount", PUBLISH),
        ("unmount", SUBPATH),
        ("wait_unstaged", STAGING),
    ]


def test_staging_that_no_pod_has_any_more() -> None:
    staged = state(mount(10, STAGING))
    assert verbs(kubelets(staged)) == [("unmount", STAGING)]
    still = kubelets(
        replace(staged, folders=(PodFolder(OTHER_UID, "another-name", DRIVER, HANDLE),))
    )
    assert "still has folders of this volume" in still.reason
    assert verbs(
        kubelets(replace(staged, folders=(PodFolder(OTHER_UID, "pvc-9", DRIVER, "x"),)))
    ) == [("unmount", STAGING)]


@pytest.mark.parametrize(
    ("pods", "more", "reason"),
    [
        (None, {}, "are still wanted is not known"),
        # A process that has ended since.
        (
            (),
            {"others": (mount(77, "/data", pid="8"),)},
            "in the mount namespace of pid 8, at /data",
        ),
        (
            (FusePod(UID, "ns", "p"),),
            {"processes": (process(7, UID),)},
            "ns/p is not being deleted: evict the pods first",
        ),
        # Of a user who knows no more of it.
        ((FusePod(UID),), {}, f"pod {UID} is not being deleted"),
        ((), {"processes": (process(7, UID),)}, "containers of its pods run: sleep (pid 7)"),
        (
            (),
            {
                "others": (mount(77, "/data", pid="8"),),
                "processes": (process(8, OTHER_UID, "mnt:[2]"),),
            },
            "in the mount namespace of sleep (pid 8), at /data",
        ),
    ],
)
def test_kubelet_refuses(
    pods: tuple[FusePod, ...] | None, more: dict[str, Any], reason: str
) -> None:
    finding = kubelets(left_behind(**more), pods)
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert reason in finding.reason


def test_a_process_that_has_ended_leaves_those_of_its_namespace() -> None:
    """As what a probe has begun in a container, or kubectl exec."""
    copy = mount(77, "/data", pid="8")
    terminating = (FusePod(UID, "ns", "p", terminating=True),)

    def found(*processes: Process) -> Finding:
        given = left_behind(others=(copy,), spaces={"8": "mnt:[2]"}, processes=processes)
        return kubelets(given, terminating, containers_timeout=60)

    own, strange = process(7, UID, "mnt:[2]"), process(9, OTHER_UID, "mnt:[2]")
    assert found(own).repair
    # One that may be in it, and one that has its number by now.
    assert "of sleep (pid 9), at /data" in found(own, process(9, OTHER_UID, "")).reason
    assert "of pid 8, at /data" in found(process(8, UID, "mnt:[3]")).reason
    # Also if another pod's process has entered it.
    assert "in the mount namespace of sleep (pid 9), at /data" in found(own, strange).reason
    assert "in the mount namespace of pid 8, at /data" in found(process(7, UID, "mnt:[3]")).reason


def test_a_crowd_of_mounts_that_was_not_looked_at_is_told() -> None:
    """A tenant can have 100,000 in a namespace of his own."""
    crowd = {"0:50": "2000 mounts in the mount namespace of pid 9, of which 1000 were looked at"}
    assert f"it has {crowd['0:50']}" in kubelets(left_behind(crowded=crowd)).reason
    finding = only(state(crowded=crowd))
    assert (finding.verdict, finding.evidence["containers"]) == (
        "repair",
        [f"more: {crowd['0:50']}"],
    )


def test_two_entries_do_not_say_which_pods_are_wanted() -> None:
    twice = (replace(VOLUME, pods=()), replace(VOLUME, pods=()))
    finding = only(left_behind(), strategy="kubelet", volumes=twice)
    assert finding.verdict == "refuse"
    assert "are still wanted is not known" in finding.reason


def test_containers_get_their_time() -> None:
    running = left_behind(processes=(process(7, UID),))
    finding = kubelets(running, (FusePod(UID, "ns", "p", terminating=True),), containers_timeout=60)
    assert verbs(finding)[0] == ("wait_for_containers", STAGING)


def test_a_pod_that_stays_is_an_obstacle_with_or_without_processes() -> None:
    """Whether it is the only one is told, for whoever could evict it."""
    for found in (left_behind(), left_behind(processes=(process(7, UID),))):
        finding = kubelets(found, (FusePod(UID, "ns", "p"),), containers_timeout=60)
        assert (finding.verdict, finding.evidence["evict"]) == ("refuse", ["ns/p"])
    stays = (FusePod(UID, "ns", "p"),)
    before = left_behind(answers={"0:50": replace(STUCK, asked=False)})
    unasked = kubelets(before, stays, containers_timeout=60, abort_hung_connections=True)
    assert "evict" not in unasked.evidence and not unasked.repair
    hung = left_behind(answers={"0:50": STUCK})
    assert "evict" not in kubelets(hung, stays, containers_timeout=60).evidence
    assert kubelets(hung, stays, containers_timeout=60, abort_hung_connections=True).evidence[
        "evict"
    ] == ["ns/p"]
    assert (
        "evict"
        not in kubelets(
            left_behind(parents={PUBLISH: "it is a link"}), stays, containers_timeout=60
        ).evidence
    )
    assert (
        "evict" not in kubelets(left_behind(), stays, containers_timeout=60, max_repairs=0).evidence
    )


def test_copies_that_follow_the_node_do_not_count() -> None:
    """A CSI driver's container shares the kubelet's folder with the node, and so loses a mount when
    the node does.
    """
    parent = mount(70, "/", "8:1", 60, fstype="ext4", master=1, pid="8")
    follower = mount(71, PUBLISH, parent=70, pid="8")
    alone = replace(parent, master=0)
    driver = (process(8, OTHER_UID, "mnt:[2]", "c" * 64),)
    assert kubelets(left_behind(others=(parent, follower), processes=driver)).verdict == "repair"
    assert kubelets(left_behind(others=(alone, follower), processes=driver)).verdict == "refuse"
    assert stacks.stale(left_behind(others=(parent, follower), processes=driver), {"0:50"}) == []
    (entry,) = stacks.stale(left_behind(others=(alone, follower), processes=driver), {"0:50"})
    assert entry == {
        "pod": OTHER_UID,
        "container": "c" * 64,
        "pid": 8,
        "point": PUBLISH,
        "device": "0:50",
    }


# after an interruption

LEFT = Unfinished(
    "abc",
    STAGING,
    ("0:40",),
    (Target(STAGING, "staging", (), "/", (), 1), Target(PUBLISH, "publish", (), "/", ("ro",), 1)),
    fstype="fuse.s3fs",
    begun=True,
)
NEW = mount(40, "/run/storage_ops/fuse/abc/mount", "0:55")


def test_an_interrupted_run_is_finished_with_the_mount_it_made() -> None:
    """The staging mount is replaced, the publish mount still dead; then it is gone, and nothing is
    there.
    """
    left = replace(LEFT, targets=tuple(replace(target, beneath=0) for target in LEFT.targets))
    found = state(
        NEW,
        mount(10, STAGING, "0:55"),
        mount(11, PUBLISH),
        answers={"0:50": GONE, "0:55": OK},
        unfinished=(left,),
    )
    assert verbs(only(found, volumes=())) == [
        ("adopt_mount", PUBLISH),
        ("replace_mount", PUBLISH),
        ("clean_up", "/run/storage_ops/fuse/abc"),
    ]
    bare = state(NEW, mount(10, STAGING, "0:55"), answers={"0:55": OK}, unfinished=(left,))
    finding = only(bare, volumes=())
    assert verbs(finding) == [
        ("adopt_mount", STAGING),
        ("replace_mount", PUBLISH),
        ("clean_up", "/run/storage_ops/fuse/abc"),
    ]
    assert finding.repair[1].command == [
        "mount",
        "--bind",
        "-o",
        "ro",
        "/run/storage_ops/fuse/abc/mount",
        PUBLISH,
    ]
    gone = replace(bare, absent=(PUBLISH,))
    assert verbs(only(gone, volumes=())) == [("clean_up", "/run/storage_ops/fuse/abc")]
    died = replace(bare, table=MountTable([ROOT_MOUNT, NEW]), answers={"0:55": GONE})
    first, *_rest, own, tidy = only(died, volumes=(replace(VOLUME, paths=(STAGING,)),)).repair
    assert (first.verb, first.target) == ("mount", STAGING)
    # Mounts that were repaired may live in the unit of the first.
    assert first.subject.recovery.unit != "storage_ops-fuse-abc.service"
    assert (own.target, tidy.target) == (first.subject.recovery.folder, "/run/storage_ops/fuse/abc")
    assert "systemctl" not in tidy.command
    assert only(died, volumes=()).verdict == "refuse"
    done = state(
        NEW,
        mount(10, STAGING, "0:55"),
        mount(11, PUBLISH, "0:55"),
        answers={"0:55": OK},
        unfinished=(left,),
    )
    assert verbs(only(done, volumes=())) == [("clean_up", "/run/storage_ops/fuse/abc")]


def test_what_an_interrupted_run_made_dies_too() -> None:
    """The old and the new filesystem are replaced by one, although they share no mount point."""
    mounts = (NEW, mount(10, STAGING, "0:55"), mount(11, PUBLISH))
    finding = only(state(*mounts, answers={"0:50": GONE, "0:55": GONE}, unfinished=(LEFT,)))
    assert sorted(finding.evidence["devices"]) == ["0:50", "0:55"]
    assert [verb for verb, _target in verbs(finding)] == [
        "mount",
        "replace_mount",
        "replace_mount",
        "clean_up",
        "clean_up",
    ]
    assert finding.repair[-1].target == "/run/storage_ops/fuse/abc"


def test_what_was_made_and_never_proven_is_made_again() -> None:
    """In the same unit, since nothing can live there yet; where nothing is dead any more, that is
    stopped.
    """
    left = replace(LEFT, begun=False, credentials=True)
    finding = only(state(NEW, *MOUNTS, answers={"0:50": GONE, "0:55": OK}, unfinished=(left,)))
    assert finding.repair[0].verb == "mount"
    assert finding.repair[0].subject.recovery.unit == "storage_ops-fuse-abc.service"
    assert [action.target for action in finding.repair if action.verb == "clean_up"] == [
        "/run/storage_ops/fuse/abc"
    ]
    assert finding.evidence["credentials"] == ["/run/storage_ops/fuse/abc/credentials"]
    alone = only(
        state(
            NEW,
            mount(10, STAGING, "0:56"),
            answers={"0:55": OK, "0:56": OK},
            unfinished=(left,),
            absent=(PUBLISH,),
        )
    )
    assert alone.evidence["credentials"] == ["/run/storage_ops/fuse/abc/credentials"]
    assert alone.repair[0].command[4:7] == ["systemctl", "stop", "storage_ops-fuse-abc.service"]


def test_a_note_cannot_lead_out_of_the_kubelets_folder() -> None:
    planted = replace(
        LEFT,
        targets=(
            Target("/etc", "publish", (), "/", (), 0),
            Target(f"{ROOT}/pods/../..", "publish", (), "/", (), 0),
        ),
    )
    finding = only(state(NEW, answers={"0:55": OK}, unfinished=(planted,)))
    assert verbs(finding) == [("clean_up", "/run/storage_ops/fuse/abc")]


# inline volumes, which their pod's owner names

# Another tenant's PersistentVolume, staged where kubelets before 1.24 stage it.
VICTIM = replace(
    VOLUME, volume="pv-victim", handle="rg#victimacct#container", pods=(FusePod(OTHER_UID, "ns"),)
)
LEGACY = f"{ROOT}/plugins/kubernetes.io/csi/pv/pv-victim"


def published(volume: str, uid: str = UID) -> str:
    return f"{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/{volume}"


def inline_note(volume: str = "pv-victim", uid: str = UID) -> dict[str, VolumeNote]:
    """As the kubelet writes it (kubernetes pkg/volume/csi/csi_mounter.go)."""
    data = {
        "attachmentID": f"csi-{'0a' * 32}",
        "driverName": DRIVER,
        "nodeName": "n1",
        "specVolID": volume,
        "volumeHandle": f"csi-{hashlib.sha256((uid + volume).encode()).hexdigest()}",
        "volumeLifecycleMode": "Ephemeral",
    }
    path = f"{published(volume, uid)}/vol_data.json"
    return {path: parse_note(json.dumps(data), path)}


def pv_note(entry: FuseVolume, uid: str = OTHER_UID) -> dict[str, VolumeNote]:
    path = f"{published(entry.volume, uid)}/vol_data.json"
    return {path: VolumeNote(entry.driver, entry.handle, entry.volume, "n1")}


def staged_as(driver: str, handle: str) -> dict[str, VolumeNote]:
    return {f"{LEGACY}/vol_data.json": VolumeNote(driver, handle)}


def by_the_old_path(notes: dict[str, VolumeNote], uid: str = UID) -> FuseState:
    """A pod's dead mount of pv-victim, or of what its owner calls so, and a staging mount of that
    name which answers.
    """
    return state(
        mount(10, f"{LEGACY}/globalmount", "0:51"),
        mount(11, f"{published('pv-victim', uid)}/mount"),
        answers={"0:50": GONE, "0:51": OK},
        notes=notes,
    )


def test_an_inline_volume_does_not_get_the_data_of_its_namesake() -> None:
    """It was bound to the staging mount of another tenant's PersistentVolume (N5)."""
    staged = staged_as(DRIVER, VICTIM.handle)
    for volumes in ((), (VICTIM,), (replace(VICTIM, handle=""),), (replace(VICTIM, pods=None),)):
        for strategy in ("remount", "kubelet"):
            found = by_the_old_path({**staged, **inline_note()})
            finding = only(found, volumes=volumes, strategy=strategy)
            assert (finding.verdict, finding.repair) == ("refuse", [])
            assert finding.code == ("mount_unknown" if strategy == "remount" else "pods_wanted")
            assert finding.evidence["volumes"] == []


@pytest.mark.parametrize(
    ("beside", "used"),
    [
        (staged_as(DRIVER, VICTIM.handle), True),
        (staged_as(DRIVER, "rg#anotheracct#container"), False),
        (staged_as("other.example.com", VICTIM.handle), False),
        ({f"{LEGACY}/vol_data.json": VolumeNote(problem="it is no JSON")}, False),
        ({}, False),
    ],
)
def test_the_old_staging_path_counts_by_the_note_in_it(
    beside: dict[str, VolumeNote], used: bool
) -> None:
    """The path has only a name. It counted by that alone, whatever volume was staged there."""
    finding = only(by_the_old_path({**beside, **pv_note(VICTIM, UID)}), volumes=())
    assert (finding.verdict == "repair") == used
    assert used == any(action.verb == "adopt_mount" for action in finding.repair)


def test_an_interrupted_repair_of_an_inline_volume_is_not_finished_with_its_namesake() -> None:
    """Its dead mount is gone, so only the path was left, and it has the name."""
    point = f"{published('pv-victim')}/mount"
    left = replace(LEFT, begun=False, targets=(Target(point, "publish", (), "/", (), 0),))
    found = state(ELSEWHERE, unfinished=(left,), notes=inline_note())
    for pods in (None, VICTIM.pods):
        finding = only(found, volumes=(replace(VICTIM, handle="", pods=pods),))
        assert (finding.verdict, finding.code) == ("refuse", "mount_unknown")
    noted = replace(found, notes=pv_note(VICTIM, UID))
    assert only(noted, volumes=(VICTIM,)).verdict == "repair"


UNREAD = VolumeNote(problem="it is no JSON")
# An interrupted run was about the staging mount at a path that has only a name, and about a pod's.
POD_POINT = f"{published('pv-victim', OTHER_UID)}/mount"
NAMED = replace(
    LEFT,
    targets=(
        Target(f"{LEGACY}/globalmount", "staging", (), "/", (), 0),
        Target(POD_POINT, "publish", (), "/", (), 0),
    ),
    handles=((DRIVER, VICTIM.handle),),
)


@pytest.mark.parametrize(
    ("noted", "beside", "adopted"),
    [
        (NAMED.handles, staged_as(DRIVER, VICTIM.handle), True),
        (NAMED.handles, staged_as(DRIVER, "another"), False),
        (NAMED.handles, staged_as("other.example.com", VICTIM.handle), False),
        (NAMED.handles, {f"{LEGACY}/vol_data.json": UNREAD}, False),
        (NAMED.handles, {}, False),
        # As an older version has noted it.
        ((), staged_as(DRIVER, VICTIM.handle), False),
    ],
)
@pytest.mark.parametrize("dead", [True, False])
def test_the_mount_of_an_interrupted_run_is_used_for_its_own_volume(
    noted: tuple[tuple[str, str], ...], beside: dict[str, VolumeNote], adopted: bool, dead: bool
) -> None:
    """A PersistentVolume of the same name may be another by now: its pods got the old one's data.
    The point has a dead mount again, or is still as the interrupted run has left it.
    """
    left = replace(NAMED, handles=noted, targets=NAMED.targets[:1])
    mounts = [NEW, *([mount(10, f"{LEGACY}/globalmount")] if dead else [])]
    answers = {"0:55": OK, **({"0:50": GONE} if dead else {})}
    found = state(*mounts, answers=answers, notes=beside, unfinished=(left,))
    findings = fuse_plan.plan(found, options(volumes=())).findings
    used = [one.verb for finding in findings for one in finding.repair if one.verb != "clean_up"]
    assert used == (["adopt_mount", "replace_mount"] if adopted else [])


@pytest.mark.parametrize(
    ("noted", "beside", "made"),
    [
        (NAMED.handles, {f"{LEGACY}/vol_data.json": UNREAD}, True),
        (NAMED.handles, {}, True),
        ((), staged_as(DRIVER, VICTIM.handle), True),
        (NAMED.handles, staged_as(DRIVER, "another"), False),
    ],
)
def test_a_point_that_may_be_of_another_volume_gets_a_new_mount(
    noted: tuple[tuple[str, str], ...], beside: dict[str, VolumeNote], made: bool
) -> None:
    """Where nothing is mounted by now. One that is known to be another's gets none."""
    left = replace(NAMED, handles=noted, targets=NAMED.targets[:1])
    finding = only(
        state(NEW, answers={"0:55": OK}, notes=beside, unfinished=(left,)), volumes=(VICTIM,)
    )
    wanted = ["mount", "replace_mount", "clean_up"] if made else []
    assert [verb for verb, _target in verbs(finding)] == [*wanted, "clean_up"]


def test_another_volume_of_the_same_name_is_repaired_by_itself() -> None:
    """What the interrupted run was about otherwise is still finished, with its own mount."""
    other = replace(VICTIM, handle="another")
    mounts = (NEW, mount(10, f"{LEGACY}/globalmount"), mount(11, POD_POINT, "0:51"))
    found = state(
        *mounts,
        answers={"0:50": GONE, "0:51": GONE, "0:55": OK},
        notes={**staged_as(DRIVER, "another"), **pv_note(VICTIM)},
        unfinished=(NAMED,),
    )
    findings = fuse_plan.plan(found, options(volumes=(other, VICTIM))).findings
    made = {finding.name: [verb for verb, _target in verbs(finding)] for finding in findings}
    assert made == {
        f"{LEGACY}/globalmount": ["mount", "replace_mount", "clean_up"],
        POD_POINT: ["adopt_mount", "replace_mount", "clean_up"],
    }
    bare = replace(found, table=MountTable([ROOT_MOUNT, *mounts[:2]]))
    findings = fuse_plan.plan(bare, options(volumes=(other, VICTIM))).findings
    targets = {
        finding.name: [target for verb, target in verbs(finding) if verb == "replace_mount"]
        for finding in findings
    }
    assert targets == {f"{LEGACY}/globalmount": [f"{LEGACY}/globalmount"], STAGING: [POD_POINT]}


def test_the_key_of_what_was_begun_for_another_volume_is_not_used_again() -> None:
    """Its server may serve mounts in use, in a unit of that name."""
    other = replace(VICTIM, handle="another")
    found = state(
        mount(10, f"{LEGACY}/globalmount"), notes=staged_as(DRIVER, "another"), unfinished=()
    )
    again = only(found, volumes=(other,)).repair[0].subject.recovery.key
    left = replace(NAMED, key=again, targets=NAMED.targets[:1])
    (finding, tidied) = fuse_plan.plan(
        replace(found, unfinished=(left,)), options(volumes=(other,))
    ).findings
    assert finding.repair[0].subject.recovery.key not in ("", again)
    assert verbs(tidied) == [("clean_up", f"/run/storage_ops/fuse/{again}")]


def test_what_an_interrupted_run_was_about_is_noted_again() -> None:
    """Else the run after the next one would not know it."""
    left = replace(NAMED, targets=NAMED.targets[1:])
    (finding,) = fuse_plan.plan(
        state(NEW, answers={"0:55": OK}, notes=pv_note(VICTIM), unfinished=(left,)), options()
    ).findings
    assert finding.repair[0].verb == "adopt_mount"
    assert finding.repair[0].subject.recovery.handles == NAMED.handles


@pytest.mark.parametrize(
    ("pods", "repaired"),
    [
        ((FusePod(UID, "ns"),), True),
        ((FusePod(OTHER_UID, "ns"),), False),
        ((), False),
        (None, False),
    ],
)
def test_a_name_in_a_path_counts_only_for_pods_of_the_volume(
    pods: tuple[FusePod, ...] | None, repaired: bool
) -> None:
    """Without its note, a mount may be of an inline volume of that name."""
    found = state(
        mount(11, f"{published('pv-victim')}/mount"),
        notes={f"{published('pv-victim')}/vol_data.json": UNREAD},
    )
    finding = only(found, volumes=(replace(VICTIM, pods=pods),))
    assert (finding.verdict == "repair") == repaired
    # One more pod, which the cluster does not know, is one too many.
    two = state(
        mount(11, f"{published('pv-victim')}/mount"),
        mount(12, f"{published('pv-victim', 'b' * 8)}/mount"),
        notes={},
    )
    assert only(two, volumes=(replace(VICTIM, pods=pods),)).verdict == "refuse"


def of_two_tenants(dead: int, inline: Answer, endpoint: str) -> list[str]:
    """What becomes of the victim's three volumes, where four inline volumes have the name of one.

    ``dead``: how many of the three are. ``inline``: what those four answer.
    """
    notes: dict[str, VolumeNote] = {}
    mounts, answers, volumes = [], {}, []
    for number in range(3):
        entry = replace(
            VICTIM,
            volume=f"pv-victim{number}",
            handle=f"container-{number}",
            endpoint=endpoint,
        )
        volumes.append(entry)
        notes |= pv_note(entry)
        point = f"{published(entry.volume, OTHER_UID)}/mount"
        mounts.append(mount(20 + number, point, f"0:{60 + number}"))
        answers[f"0:{60 + number}"] = GONE if number < dead else OK
    spaces = {OTHER_UID: "shop"}
    for number in range(4):
        uid = f"{number}{UID[1:]}"
        spaces[uid] = "mallory"
        notes |= inline_note("pv-victim0", uid)
        point = f"{published('pv-victim0', uid)}/mount"
        mounts.append(mount(40 + number, point, f"0:{80 + number}"))
        answers[f"0:{80 + number}"] = inline
    found = state(*mounts, answers=answers, notes=notes, namespaces=spaces)
    plan = fuse_plan.plan(found, options(volumes=tuple(volumes), accept_majority=False))
    mine = [finding for finding in plan.findings if OTHER_UID in finding.name]
    assert len(mine) == dead
    return [finding.code or finding.verdict for finding in mine]


@pytest.mark.parametrize("endpoint", ["https://s3", ""])
def test_namesakes_do_not_count_in_the_outage_guard(endpoint: str) -> None:
    """Four inline volumes with the name of a PersistentVolume set its guard up, or lifted it (N6).

    Also where no endpoint is known, which is one for all volumes of a driver.
    """
    assert of_two_tenants(1, GONE, endpoint) == ["repair"]
    assert of_two_tenants(3, OK, endpoint) == ["majority_broken"] * 3


def at_one_endpoint(**dead_of_all: tuple[int, int]) -> dict[str, set[str]]:
    """What becomes of the dead volumes of each namespace, all of which are at one endpoint, with
    one Secret. Given are how many volumes of each are dead, and how many there are.
    """
    notes: dict[str, VolumeNote] = {}
    mounts, answers, volumes, spaces = [], {}, [], {}
    number = 0
    for space, (dead, total) in dead_of_all.items():
        for count in range(total):
            number += 1
            uid = f"{number:08}{UID[8:]}"
            spaces[uid] = space
            name, handle = f"pv-{space}-{count}", f"c-{number}"
            pods = (FusePod(uid, space),)
            volume = replace(VICTIM, volume=name, handle=handle, pods=pods, endpoint="https://s3")
            volumes.append(volume)
            notes[f"{published(name, uid)}/vol_data.json"] = VolumeNote(DRIVER, handle, name)
            mounts.append(mount(100 + number, f"{published(name, uid)}/mount", f"0:{50 + number}"))
            answers[f"0:{50 + number}"] = GONE if count < dead else OK
    found = state(*mounts, answers=answers, notes=notes, namespaces=spaces)
    plan = fuse_plan.plan(found, options(volumes=tuple(volumes), accept_majority=False))
    told: dict[str, set[str]] = {}
    for finding in plan.findings:
        space = next(space for uid, space in spaces.items() if uid in finding.name)
        told.setdefault(space, set()).add(finding.code or finding.verdict)
    return told


def test_a_tenant_with_many_dead_volumes_is_no_outage_of_the_others() -> None:
    """Its servers end at its will, by what it puts into a bucket."""
    others = dict.fromkeys("bcde", (0, 1))
    assert at_one_endpoint(victim=(1, 1), evil=(9, 9), **others) == {
        "victim": {"repair"},
        "evil": {"repair"},
    }
    # Most of the tenants have lost most of what they have; of one it is little.
    down = at_one_endpoint(victim=(1, 1), evil=(9, 9), b=(1, 3), c=(1, 1), d=(0, 1))
    assert down == {
        "victim": {"majority_broken"},
        "evil": {"majority_broken"},
        "b": {"repair"},
        "c": {"majority_broken"},
    }
    # Of a single one, most of it.
    assert at_one_endpoint(shop=(2, 3)) == {"shop": {"majority_broken"}}
    assert at_one_endpoint(shop=(2, 4)) == {"shop": {"repair"}}


def test_pods_are_not_evicted_for_an_inline_volume_with_the_name_of_theirs() -> None:
    """The role moves the pods of the volumes that a finding names (N17)."""
    found = state(
        mount(10, f"{published('pv-victim', OTHER_UID)}/mount", "0:51"),
        mount(11, f"{published('pv-victim')}/mount"),
        answers={"0:50": GONE, "0:51": OK},
        notes={**inline_note(), **pv_note(VICTIM)},
    )
    leaving = (FusePod(OTHER_UID, "ns", "p", terminating=True),)
    for handle in (VICTIM.handle, ""):
        finding = only(
            found,
            strategy="kubelet",
            containers_timeout=60,
            volumes=(replace(VICTIM, handle=handle, pods=leaving),),
        )
        assert (finding.verdict, finding.code) == ("refuse", "pods_wanted")
        assert finding.evidence["volumes"] == [] and "evict" not in finding.evidence


def test_a_folder_of_an_inline_volume_does_not_hold_up_its_namesake() -> None:
    """As any volume of a pod with the name of a PersistentVolume did."""
    staged = state(mount(10, STAGING), folders=(PodFolder(OTHER_UID, "", DRIVER, "csi-0a"),))
    assert verbs(kubelets(staged)) == [("unmount", STAGING)]


# bounds and scope


def many(dead: int, total: int) -> FuseState:
    folders = [
        f"{ROOT}/pods/{UID}/volumes/kubernetes.io~csi/pvc-{number}" for number in range(total)
    ]
    answers = {f"0:{number + 50}": GONE if number < dead else OK for number in range(total)}
    return state(
        *(
            mount(number + 50, f"{folder}/mount", f"0:{number + 50}")
            for number, folder in enumerate(folders)
        ),
        answers=answers,
        notes={
            f"{folder}/vol_data.json": VolumeNote(DRIVER, f"handle-{number}", f"pvc-{number}")
            for number, folder in enumerate(folders)
        },
    )


UNASKED = Answer("error", "statvfs", text="not asked: too many others do not answer")


def test_what_was_not_asked_is_told_and_is_no_sign_that_others_work() -> None:
    """Two of four hung, and the others were not asked: an outage looked like less."""
    some = many(2, 4)
    found = replace(some, answers={**some.answers, "0:52": UNASKED, "0:53": UNASKED})
    plan = fuse_plan.plan(found, options(volumes=entries(4), accept_majority=False))
    broken, unknown = plan.findings[:2], plan.findings[2:]
    assert [finding.code for finding in broken] == ["majority_broken"] * 2
    assert len(unknown) == 2
    for finding in unknown:
        assert (finding.severity, finding.verdict) == ("minor", "report")
        assert finding.summary.endswith("answers is not known")
        assert finding.reason.startswith(
            "not asked: too many others do not answer: repair the mounts"
        )


def entries(total: int) -> tuple[FuseVolume, ...]:
    return tuple(replace(VOLUME, volume=f"pvc-{number}", handle="") for number in range(total))


@pytest.mark.parametrize(
    ("dead", "total", "refused"),
    [
        (3, 5, True),
        (2, 4, False),
        (4, 4, True),
        (1, 1, True),
        (1, 2, False),
        (2, 3, True),
        (1, 3, False),
    ],
)
def test_a_majority_is_an_outage(dead: int, total: int, refused: bool) -> None:
    findings = fuse_plan.plan(
        many(dead, total), options(volumes=entries(total), accept_majority=False)
    ).findings
    assert {finding.verdict for finding in findings} == {"refuse" if refused else "repair"}
    accepted = fuse_plan.plan(
        many(dead, total), options(volumes=entries(total), accept_majority=True)
    )
    assert {finding.verdict for finding in accepted.findings} == {"repair"}


def of_tenants(*whose: tuple[str, bool, str, str]) -> tuple[FuseState, tuple[FuseVolume, ...]]:
    """One mount for each (endpoint, dead, namespace of the Secret, namespace of the pod)."""
    volumes = tuple(
        replace(entry, endpoint=endpoint, secret_namespace=secret, pods=(FusePod(UID, pod),))
        for entry, (endpoint, _dead, secret, pod) in zip(entries(len(whose)), whose)
    )
    found = many(0, len(whose))
    answers = {f"0:{number + 50}": GONE if each[1] else OK for number, each in enumerate(whose)}
    return replace(found, answers=answers), volumes


def verdicts(*whose: tuple[str, bool, str, str], **more: Any) -> dict[str, str]:
    """By the number of the volume, of those that are dead."""
    found, volumes = of_tenants(*whose)
    plan = fuse_plan.plan(found, options(volumes=volumes, **{"accept_majority": False, **more}))
    return {
        finding.evidence["volumes"][0].rpartition("-")[2]: finding.verdict
        for finding in plan.findings
    }


EVIL, GOOD = ("https://evil", True, "", "mallory"), ("https://s3", False, "", "alice")
GOOD_DEAD = ("https://s3", True, "", "alice")


def test_one_tenants_broken_mounts_are_no_outage_of_the_others_server() -> None:
    found = verdicts(EVIL, EVIL, EVIL, EVIL, GOOD_DEAD, GOOD, GOOD)
    assert found == {"0": "refuse", "1": "refuse", "2": "refuse", "3": "refuse", "4": "repair"}
    # An endpoint that is not known is one for all of the driver's.
    unknown = [("", dead, "", "x") for dead in (True, True, True, False)]
    assert set(verdicts(*unknown).values()) == {"refuse"}
    # The same server, spelled otherwise.
    assert verdicts(GOOD_DEAD, GOOD_DEAD, ("HTTPS://S3/", False, "", "bob"), GOOD) == {
        "0": "repair",
        "1": "repair",
    }


@pytest.mark.parametrize("endpoint", ["https://s3", "https://other", ""])
def test_who_writes_a_secret_lifts_no_others_guard(endpoint: str) -> None:
    """Mounts that answer, with whatever endpoint in the Secret, do not count for the server of
    others, which is gone.
    """
    healthy = [(endpoint, False, "mallory", "mallory")] * 5
    for theirs in (
        GOOD_DEAD,
        ("https://s3", True, "kube-system", "alice"),
        ("", True, "", "alice"),
    ):
        assert set(verdicts(theirs, theirs, *healthy).values()) == {"refuse"}
        # Nor do those that are broken set it up.
        broken = [(endpoint, True, "mallory", "mallory")] * 5
        others = (theirs[0], False, *theirs[2:])
        assert verdicts(theirs, others, *broken)["0"] == "repair"


def test_which_remote_is_in_an_outage_is_told() -> None:
    found, volumes = of_tenants(("https://s3", True, "shop", "shop"))
    noted = {
        f"{ROOT}/pods/{UID}/volumes/kubernetes.io~csi/pvc-0/vol_data.json": VolumeNote(
            DRIVER, HANDLE, "pvc-0", "n1"
        )
    }
    (finding,) = fuse_plan.plan(
        replace(found, notes=noted), options(volumes=volumes, accept_majority=False)
    ).findings
    said = (
        f"1 of the node's 1 FUSE mounts of {DRIVER} at 'https://s3' with Secrets in shop look "
        "broken at once"
    )
    assert said in finding.reason


def test_drivers_are_counted_apart() -> None:
    """By the path of a staging mount; one that is not known is one more driver."""
    points = [
        f"{ROOT}/plugins/kubernetes.io/csi/{driver}/{DIGEST}/globalmount"
        for driver in ("a.example", "b.example", "c.example")
    ]
    mounts = [mount(number + 50, point, f"0:{number + 50}") for number, point in enumerate(points)]
    mounts.append(mount(60, f"{ROOT}/plugins/kubernetes.io/csi/pv/pvc-9/globalmount", "0:60"))
    answers = {"0:50": GONE, "0:51": OK, "0:52": OK, "0:60": OK}
    (finding,) = fuse_plan.plan(
        state(*mounts, answers=answers, notes={}),
        options(volumes=(replace(VOLUME, driver="a.example"),), accept_majority=False),
    ).findings
    assert "1 of the node's 1 FUSE mounts of a.example" in finding.reason


def test_what_an_interrupted_run_left_waits_for_the_end_of_an_outage() -> None:
    bare = replace(
        LEFT, targets=tuple(replace(target, beneath=0) for target in LEFT.targets), begun=False
    )
    there = [
        mount(number, point, "0:60") for number, point in ((70, PUBLISH.replace(UID, OTHER_UID)),)
    ]
    found = state(*there, answers={"0:60": GONE}, unfinished=(bare,), notes={})
    (_dead, left) = sorted(
        fuse_plan.plan(found, options(accept_majority=False)).findings,
        key=lambda finding: "interrupted" in finding.summary,
    )
    assert (left.verdict, "look broken at once" in left.reason) == ("refuse", True)


def test_each_namespace_has_its_turn() -> None:
    """Else the broken volumes of one would use up max_repairs in every run."""
    evil = ("https://s3", True, "", "mallory")
    more = {"max_repairs": 2, "accept_majority": True}
    found = verdicts(evil, evil, evil, GOOD_DEAD, **more)
    assert found == {"0": "repair", "3": "repair", "1": "refuse", "2": "refuse"}
    assert list(found) == ["0", "3", "1", "2"]


def taken(*ids: int) -> MountTable:
    """The staging point with these layers: 5 lies below, 10 and 11 are dead, 40 is new."""
    devices = {5: "0:30", 10: "0:50", 11: "0:50", 40: "0:55"}
    below = 1
    layers = []
    for number in ids:
        layers.append(
            mount(
                number,
                STAGING,
                devices.get(number, "0:99"),
                below,
                **({"fstype": "tmpfs"} if number == 5 else {}),
            )
        )
        below = number
    return MountTable([ROOT_MOUNT, *layers])


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        ((5, 10, 11), stacks.AS_BEFORE),
        ((5, 10), stacks.TAKEN_OFF),
        ((5,), stacks.TAKEN_OFF),
        ((5, 40), stacks.NEW),
        ((5, 10, 40), stacks.OTHER),
        ((40,), stacks.OTHER),
        ((5, 40, 41), stacks.OTHER),
        ((), stacks.OTHER),
        ((10, 11), stacks.OTHER),
        ((5, 10, 11, 12), stacks.OTHER),
    ],
)
def test_what_became_of_a_mount_point(ids: tuple[int, ...], what: str) -> None:
    dead = (mount(11, STAGING), mount(10, STAGING))
    target = Target(STAGING, "staging", dead, "/", (), 5)
    assert stacks.point_is(target, taken(*ids), ("0:50",)) == what


def test_no_more_repairs_than_allowed() -> None:
    plan = fuse_plan.plan(many(5, 20), options(volumes=entries(20), max_repairs=2))
    assert [finding.verdict for finding in plan.findings] == ["repair"] * 2 + ["refuse"] * 3
    assert "max_repairs is 2" in plan.findings[-1].reason
    assert plan.findings[-1].code == "too_many_repairs"


def test_named_paths() -> None:
    found = state(
        *MOUNTS,
        mount(20, f"{PUBLISH[:-11]}pvc-2/mount", "0:51"),
        answers={"0:50": GONE, "0:51": OK},
    )
    well = f"{PUBLISH[:-11]}pvc-2/mount"
    findings = {
        finding.name: finding
        for finding in fuse_plan.plan(found, options(paths=(SUBPATH, well, "/a\nb"))).findings
    }
    assert all(finding.named for finding in findings.values())
    assert findings[STAGING].verdict == "repair"
    assert findings[well].reason == "it answers: there is nothing to repair"
    assert findings["'/a\\nb'"].reason == "no FUSE mount of the kubelet is there"
    assert [finding.name for finding in fuse_plan.plan(found, options(paths=(well,))).findings] == [
        well
    ]


@pytest.mark.parametrize(("error", "found"), [("EIO", 1), ("EACCES", 0)])
def test_errors_are_only_reported(error: str, found: int) -> None:
    """That of a mount which only its user may enter is none."""
    findings = fuse_plan.plan(
        state(answers={"0:50": Answer("error", "listing", error, "words")}), options()
    ).findings
    assert [(finding.verdict, finding.severity) for finding in findings] == [
        ("report", "minor")
    ] * found


def test_a_mount_point_is_found_whatever_its_name_is() -> None:
    """What is told of it for people has the kind of the mount behind the path, in brackets."""
    root = "/data (ssd)/kubelet"
    point = f"{root}/pods/{UID}/volumes/kubernetes.io~csi/{PV}/mount"
    found = replace(state(mount(10, point)), root=root)
    finding = only(found, paths=(point,))
    assert (finding.named, finding.control, finding.name) == (True, "STOR-05", point)
    assert finding.evidence["mounts"] == [f"{point} (publish)"]
    other = f"{root}/pods/{OTHER_UID}/volumes/kubernetes.io~csi/{PV}/mount"
    both = replace(state(mount(10, point), mount(11, other)), root=root)
    finding = only(both, paths=(other,))
    assert (finding.named, finding.control, finding.name) == (True, "STOR-05", point)


class Counted(tuple[Mount, ...]):
    """Mounts that count how often one of them is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Mount]:
        for one in super().__iter__():
            Counted.looks += 1
            yield one


def test_a_tenants_thousands_of_copies_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was compared with all: six namespaces took 71 s, and the answer 24 MB."""
    long = "/" + "/".join(["x" * 199] * 20)
    crowd = [
        mount(number, f"{long}/{number}", pid=str(pid), parent=1)
        for pid in (21, 22, 23)
        for number in range(100, 1100)
    ]
    few = mount(7, "/data", pid="31", parent=1)
    processes = tuple(
        process(number, UID if number < 30 else OTHER_UID, f"mnt:[{number}]", f"{number}" * 32)
        for number in (21, 22, 23, 31)
    )
    monkeypatch.setattr(Counted, "looks", 0)
    others = Counted((*crowd, few))
    found = FuseRecovery(cast(Any, SimpleNamespace(deadline=None)), options())
    monkeypatch.setattr(
        found, "_stale", stacks.stale(state(others=others, processes=processes), {"0:50"})
    )
    assert Counted.looks <= 3 * len(others)
    told, left_out = engine._facts(found)
    assert len(json.dumps(told)) < 500_000
    assert OTHER_UID in [entry["pod"] for entry in told["stale"]]
    assert left_out[0].evidence["left_out"] == [f"{UID}: {3001 - len(told['stale'])}"]
