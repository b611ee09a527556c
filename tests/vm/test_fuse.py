# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""s3fs on a real S3 server dies under a volume: remounted by fuse_remount, or left to the
kubelet. The rest is in tests/faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lab.ceph.gateway import Gateway
from support.mounts import (
    Bucket,
    Kubelet,
    bindfs,
    die,
    layers,
    lists,
    mounts,
    remount,
    start,
    verbose,
)
from support.node import Node
from support.storage import Storage

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.recipes import (
    RECIPES,
)


@pytest.fixture
def bucket(node: Node, storage: Storage) -> Iterator[Bucket]:
    """A bucket with two files."""
    gateway = Gateway(storage.ceph)
    gateway.start()
    bucket = Bucket(node, gateway)
    yield bucket
    bucket.close()
    gateway.close()


@pytest.mark.smoke
def test_buckets_are_mounted_anew_and_no_secret_is_seen(node: Node, bucket: Bucket) -> None:
    """Content before, ENOTCONN after kill -9, content again, also when all connections are closed;
    a second run changes nothing.
    """
    kubelet = Kubelet(node)
    volume, other = kubelet.volume(), kubelet.volume("pvc-2")
    servers = [bucket.s3fs(volume.stage()), bucket.rclone(other.stage())]
    published = [volume.publish(), other.publish()]
    told = {
        "volumes": [bucket.told(volume, options=["use_path_request_style"]), bucket.told(other)]
    }
    for server, point in zip(servers, published, strict=True):
        assert lists(node, point) == ["file", "sub"]
        die(node, server)
        assert "Transport endpoint is not connected" in node.sh(f"ls {point} 2>&1", check=False)

    before = mounts(node)
    planned = remount(node, check=True, **told)
    assert [action for action, _outcome in planned.outcomes] == [
        "mount",
        "replace_mount",
        "replace_mount",
        "clean_up",
    ] * 2
    assert mounts(node) == before

    watcher = start(node, "sh -c 'while sleep 0.2; do ps -eo args; done > /tmp/seen'")
    said = verbose(node, **told)
    assert "2 repaired and proven" in said, said
    node.sh(f"kill {watcher}")
    node.vm._close_connections()
    for point in published:
        assert lists(node, point) == ["file", "sub"]
        assert node.sh(f"cat {point}/sub/file") == "inner"
    # Of every recipe: one that no test mounts with the real program has no place in the collection.
    types = [layers(node, one.staging)[-1][1] for one in (volume, other)]
    assert types == [recipe.fstype for recipe in RECIPES.values()]
    assert [len(layers(node, point)) for point in (*published, volume.staging, other.staging)] == [
        1
    ] * 4

    node.sh(
        "journalctl > /tmp/journal; systemctl cat 'storage_ops-fuse-*' > /tmp/unit; systemctl show "
        "'storage_ops-fuse-*' > /tmp/shown"
    )
    for line in (
        "MemoryMax=1073741824",
        "TasksMax=512",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=cap_sys_admin",
        "DevicePolicy=closed",
    ):
        assert node.sh(f"grep -c -x {line} /tmp/shown", check=False) == "2", line
    # Both in one slice, which has a limit; a node of this size has the least.
    groups = node.sh("grep ^ControlGroup= /tmp/shown").split()
    ours = "/storage_ops.slice/storage_ops-fuse.slice/"
    assert [group.partition("=")[2].startswith(ours) for group in groups] == [True] * 2
    assert node.sh(f"cat /sys/fs/cgroup{ours}memory.max") == str(2048 * 2**20)
    assert "passwd_file=/run/storage_ops/fuse/" in node.sh("cat /tmp/seen")
    assert "rclone mount --config=/run/storage_ops/fuse/" in node.sh("cat /tmp/shown")
    for secret in bucket.secrets:
        assert secret not in said
        assert secret not in str(planned.result)
        places = "/tmp/seen /tmp/journal /tmp/unit /tmp/shown /run /etc /var/lib/systemd"
        assert node.sh(f"grep -rl {secret} {places} 2> /dev/null", check=False) == ""
    assert node.sh("ls -A /run/storage_ops/fuse") == ""
    again = remount(node, **told)
    assert (again.findings, again.changed) == ([], False)


GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/fuse_mounts.md"


@pytest.mark.variation
def test_the_example_for_a_program_without_a_recipe(node: Node, bucket: Bucket) -> None:
    """The command of the guide, with s3fs in place of ossfs, which is a fork of it."""
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "exec ossfs " in block]
    (driver,) = yaml.safe_load(example)["fuse_recovery_drivers"].values()
    command = [word.replace("exec ossfs ", "exec s3fs ") for word in driver["command"]]
    volume = Kubelet(node).volume()
    server = bucket.s3fs(volume.stage(), "sub")
    published = volume.publish()
    die(node, server)
    told = bucket.told(
        volume,
        sources=[f"{bucket.name}/sub"],
        options=["use_path_request_style"],
        command=command,
    )
    watcher = start(node, "sh -c 'while sleep 0.2; do ps -eo args; done > /tmp/seen'")
    assert remount(node, volumes=[told]).msg == "1 finding, 1 repaired and proven"
    node.sh(f"kill {watcher}")
    assert lists(node, published) == ["file"]
    assert node.sh(f"cat {published}/file") == "inner"
    assert "passwd_file=/run/storage_ops/fuse/" in node.sh("cat /tmp/seen")
    for secret in bucket.secrets:
        assert node.sh(f"grep -rl {secret} /tmp/seen /run 2> /dev/null", check=False) == ""
    assert node.sh("ls -A /run/storage_ops/fuse") == ""


SECRETS = {
    "file": "[x]\nsecret_access_key = TOPSECRET1\n",
    "slash": "back\\TOPSECRET2",
    "quotes": 'it\'s "TOPSECRET3"',
    "letters": "TOPSECRET4\u00fc\u00e9",
}


@pytest.mark.variation
def test_no_secret_is_in_the_journal(node: Node) -> None:
    """Whatever is in it: Ansible writes what a module was called with to the node's journal."""
    volume = Kubelet(node).volume()
    server = bindfs(node, volume.stage())
    volume.publish()
    die(node, server)
    own = {
        "volume": volume.name,
        "sources": ["/srv/data"],
        "command": ["bindfs", "-f", "{options}", "{source}", "{target}"],
    }
    said = verbose(node, volumes=[{**own, "credentials": SECRETS}])
    assert "1 repaired and proven" in said, said
    node.sh("journalctl > /tmp/journal")
    assert "Invoked with" in node.sh("cat /tmp/journal")
    assert "TOPSECRET" not in said
    assert node.sh("grep -c TOPSECRET /tmp/journal", check=False).strip() == "0"


@pytest.mark.variation
@pytest.mark.parametrize(
    "region",
    [
        "x\ntype = webdav\nurl = http://127.0.0.1:9\nbearer_token_command = touch /tmp/owned",
        "x\ntype = combine\nupstreams = bucket-a=/",
    ],
)
def test_a_secret_is_no_command_for_the_node(node: Node, bucket: Bucket, region: str) -> None:
    """rclone would run the first as root, and show the node's root folder by the second."""
    volume = Kubelet(node).volume()
    server = bucket.rclone(volume.stage())
    published = volume.publish()
    die(node, server)
    before = mounts(node)
    run = remount(node, volumes=[bucket.told(volume, region=region)], strict=True)
    assert run.failed and "cannot be one" in run.msg
    assert mounts(node) == before
    assert node.sh("ls /tmp/owned", check=False) == ""
    assert remount(node, volumes=[bucket.told(volume, region="default")]).msg.startswith(
        "1 finding, 1 repaired"
    )
    assert lists(node, published) == ["file", "sub"]
