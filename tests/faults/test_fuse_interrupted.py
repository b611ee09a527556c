# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""fuse_remount is killed after any step, or the world changes under it: the next run finishes, and
no secret is left.
"""

from __future__ import annotations

import pytest
from support.mounts import (
    DRIVER,
    ROOT,
    Kubelet,
    Volume,
    apart,
    bindfs,
    die,
    layers,
    lists,
    remount,
    start,
)
from support.node import Node
from support.selection import variation

SECRET = "pl4nted-s3cret"
BINDFS = ["bindfs", "-f", "{options}", "{source}", "{target}"]


def known(volume: Volume) -> list[dict[str, object]]:
    credentials = {"secret_key": SECRET}
    return [
        {
            "volume": volume.name,
            "sources": ["/srv/data"],
            "command": BINDFS,
            "credentials": credentials,
        }
    ]


def dead_volume(node: Node) -> tuple[Volume, list[str]]:
    """A staging mount and two publish mounts, all of a dead server."""
    volume = Kubelet(node).volume()
    server = bindfs(node, volume.stage())
    points = [volume.staging, volume.publish(), volume.publish("-o ro")]
    die(node, server)
    return volume, points


def healed(node: Node, points: list[str]) -> None:
    """One new filesystem at all points, and nothing else left."""
    assert {len(layers(node, point)) for point in points} == {1}
    assert len({layers(node, point)[0][0] for point in points}) == 1
    for point in points:
        assert lists(node, point) == ["file", "sub"]
    assert "ro" in node.sh(f"findmnt -n -o VFS-OPTIONS {points[2]}").split(",")
    assert node.sh("ls -A /run/storage_ops/fuse") == ""
    assert node.sh("pgrep -c -x bindfs") == "1"


def kill_when(node: Node, condition: str) -> None:
    """Kill the module, which is the oldest of its processes, as soon as something has come true."""
    module = "pgrep -o -f '^/usr/bin/python3 .*AnsiballZ_fuse_remount'"
    start(
        node,
        "sh -c "
        f"{node.quote(f'until {condition}; do :; done; kill -9 $({module}); touch /run/killed')}",
    )


@pytest.mark.parametrize(
    "when",
    ["a dead mount is taken off", variation("the new mount is there"), variation("all have it")],
)
def test_killed(node: Node, when: str) -> None:
    volume, points = dead_volume(node)
    device = layers(node, volume.staging)[0][0]
    left = f"$(grep -c ' {device} ' /proc/1/mountinfo)"
    condition = {
        "the new mount is there": "grep -q /run/storage_ops/fuse/.*/mount /proc/1/mountinfo",
        "a dead mount is taken off": f"[ {left} -le 2 ]",
        "all have it": f"[ {left} = 0 ]",
    }[when]
    kill_when(node, condition)
    failed, text = node._ad_hoc(
        "fuse_remount",
        False,
        "root",
        apart({"volumes": known(volume), "accept_majority": True}),
        pipelining="0",
    )
    assert failed, text
    assert '"actions"' not in text, f"it came to its end: {text}"
    node.wait(lambda: node.sh("ls /run/killed", check=False) != "", "it was killed")
    node.wait(
        lambda: node.sh(f"grep -rl {SECRET} /run", check=False) == "",
        "the unit has removed the credentials",
    )

    run = remount(node, volumes=known(volume))
    assert not run.failed, run.msg
    healed(node, points)
    again = remount(node, volumes=known(volume))
    assert (again.findings, again.changed) == ([], False)


@pytest.mark.variation
def test_a_new_mount_that_is_none_changes_nothing(node: Node) -> None:
    """The program ends, does not mount in time, mounts something that does not list: taken back,
    and the dead mounts are as they were.
    """
    volume, points = dead_volume(node)
    before = [layers(node, point) for point in points]
    for command, reason in (
        (
            ["sh", "-c", "echo the bucket is gone >&2; exit 1 # {source} {target}"],
            "the bucket is gone",
        ),
        (["sleep", "60"], "no FUSE mount came up within 3 s"),
        (
            ["bindfs", "-f", "-p", "0000", "--force-user=nobody", "{source}/none", "{target}"],
            "no FUSE mount came up",
        ),
    ):
        run = remount(node, remount_timeout=3, volumes=[{**known(volume)[0], "command": command}])
        assert run.failed
        assert reason in run.msg
        assert SECRET not in str(run.result)
        assert run.outcomes == [
            ("mount", "failed"),
            *[("replace_mount", "skipped")] * 3,
            ("clean_up", "skipped"),
            ("stop_service", "done"),
        ]
        assert [layers(node, point) for point in points] == before
        assert node.sh("ls -A /run/storage_ops/fuse") == ""
        # The slice of all of them stays.
        assert node.sh("systemctl list-units --all --no-legend 'storage_ops-*.service'") == ""
    assert not remount(node, volumes=known(volume)).failed
    healed(node, points)


def driver_container(node: Node, memory: str, tasks: str) -> None:
    """A process that has what the container of a driver has: its socket's folder, what it mounts
    for pods, and limits.
    """
    slices = f"/sys/fs/cgroup/kubepods.slice/kubepods-pod{'0' * 32}.slice"
    group = f"{slices}/cri-containerd-{'e' * 64}.scope"
    parents = ["/sys/fs/cgroup", *(group.rsplit("/", up)[0] for up in (2, 1))]
    node.sh(f"mkdir -p {group} /mnt/csi {ROOT}/plugins/{DRIVER}")
    for parent in parents:
        node.sh(f"echo '+memory +pids' > {parent}/cgroup.subtree_control")
    node.sh(f"echo {memory} > {group}/memory.max && echo {tasks} > {group}/pids.max")
    mounts = (
        f"mount --bind {ROOT}/plugins/{DRIVER} /mnt/csi && mount --rbind {ROOT}/pods "
        f"{ROOT}/pods && mount --make-shared {ROOT}/pods"
    )
    inner = f"echo $$ > {group}/cgroup.procs && {mounts} && touch /run/driver && exec sleep 3600"
    start(node, f"unshare --mount --propagation private sh -c {node.quote(inner)}")
    node.wait(
        lambda: node.sh("ls /run/driver", check=False) != "", "the driver's container is there"
    )


def test_one_tenants_volumes_keep_no_other_from_its_repair(node: Node) -> None:
    """Most mounts are of one tenant, broken, and cannot be mounted: neither an outage of the
    others' server, nor the end of the run.
    """
    volumes = {
        name: Kubelet(node).volume(name) for name in ("evil-1", "evil-2", "good-1", "good-2")
    }
    servers = {name: bindfs(node, volume.stage()) for name, volume in volumes.items()}
    entries = [
        {
            **known(volume)[0],
            "handle": volume.handle,
            "endpoint": f"https://{name[:4]}",
            "command": ["false"] if "evil" in name else BINDFS,
        }
        for name, volume in volumes.items()
    ]
    for name in ("evil-1", "evil-2", "good-1"):
        die(node, servers[name])
    before = [layers(node, volumes[name].staging) for name in ("evil-1", "evil-2")]

    driver_container(node, "200M", "300")
    guarded = remount(node, volumes=entries, accept_majority=False)
    assert not guarded.failed, guarded.msg
    verdicts = {
        name: guarded.finding(volumes[name].staging) for name in ("evil-1", "evil-2", "good-1")
    }
    assert {name: finding["verdict"] for name, finding in verdicts.items()} == {
        "evil-1": "refuse",
        "evil-2": "refuse",
        "good-1": "repair",
    }
    assert (
        "2 of the node's 2 FUSE mounts of s3.csi.example.com at 'https://evil' look broken"
        in verdicts["evil-1"]["reason"]
    )

    shown = node.sh("systemctl show --property=MemoryMax,TasksMax 'storage_ops-fuse-*'").split()
    assert sorted(shown) == ["MemoryMax=209715200", "TasksMax=300"], "as the driver's own container"

    die(node, servers["good-2"])
    run = remount(node, volumes=entries)
    assert run.failed
    assert run.result["undone"] == [volumes["evil-1"].staging, volumes["evil-2"].staging]
    assert "mount" in run.finding(volumes["evil-1"].staging)["reason"]
    assert [layers(node, volumes[name].staging) for name in ("evil-1", "evil-2")] == before
    assert [action["outcome"] for action in run.finding(volumes["good-2"].staging)["repair"]] == [
        "done"
    ] * 3
    for name in ("good-1", "good-2"):
        assert lists(node, volumes[name].staging) == ["file", "sub"]
    assert node.sh("ls -A /run/storage_ops/fuse") == ""


@pytest.mark.variation
def test_the_server_of_the_new_mount_dies_after_an_interruption(node: Node) -> None:
    """What was made is dead, too, and so it is made once more."""
    volume, points = dead_volume(node)
    device = layers(node, volume.staging)[0][0]
    kill_when(node, f"[ $(grep -c ' {device} ' /proc/1/mountinfo) -le 1 ]")
    node._ad_hoc(
        "fuse_remount",
        False,
        "root",
        apart({"volumes": known(volume), "accept_majority": True}),
        pipelining="0",
    )
    node.wait(lambda: node.sh("ls /run/killed", check=False) != "", "it was killed")
    die(node, int(node.sh("pgrep -x bindfs")))
    run = remount(node, volumes=known(volume))
    assert not run.failed, run.msg
    healed(node, points)
