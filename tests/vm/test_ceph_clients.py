# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real kernel's RBD client, fenced and given back too early: why the node itself is asked before
it is released.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from lab.ceph.cluster import Ceph
from lab.vm import SSH_OPTIONS
from support.node import Node
from support.storage import Storage

IMAGE = "rbd/data"


class Krbd:
    """The kernel's RBD client of the VM; the cluster, which listens on the host's loopback, is on
    the guest's loopback, too.
    """

    def __init__(self, node: Node, ceph: Ceph) -> None:
        self.node, self.ceph = node, ceph
        (osd,) = ceph.json("osd", "dump")["osds"]
        (mon,) = ceph.json("mon", "dump")["mons"]
        # Kernels before 5.11 speak nothing but the old protocol.
        self.mon, self.osd = (
            next(
                address["addr"]
                for address in found["public_addrs"]["addrvec"]
                if address["type"] == "v1"
            )
            for found in (mon, osd)
        )
        forwards = [
            word for address in (self.mon, self.osd) for word in ("-R", f"{address}:{address}")
        ]
        ssh = ["ssh", *SSH_OPTIONS, "-i", str(node.vm.image.ssh_key), "-p", str(node.vm.port), "-N"]
        # So that it ends with a guest that has been reset.
        ssh += ["-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15"]
        self.tunnel = subprocess.Popen(
            [*ssh, *forwards, "root@127.0.0.1"], stdin=subprocess.DEVNULL
        )
        node.wait(
            lambda: all(node.sh(f"ss -Hltn src {address}") for address in (self.mon, self.osd)),
            "the cluster is in reach",
        )
        node.sh("modprobe rbd")

    def close(self) -> None:
        """End the connection; what is still mapped goes with the guest's next reset."""
        self.tunnel.terminate()
        self.tunnel.wait(10)

    def map(self, image: str) -> str:
        """Map an image, as ``rbd map`` does; its device."""
        before = set(self._devices())
        key = self.ceph.run("auth", "get-key", "client.admin").strip()
        pool, name = image.split("/")
        # By standard input: a command line can be read by everybody.
        request = f"{self.mon} name=admin,secret={key} {pool} {name} -"
        self.node.vm.run("cat > /sys/bus/rbd/add_single_major", stdin=request)
        (number,) = set(self._devices()) - before
        return f"/dev/rbd{number}"

    def unmap(self, device: str) -> None:
        """Give an image back."""
        self.node.sh(f"echo {device.removeprefix('/dev/rbd')} > /sys/bus/rbd/remove_single_major")

    def write(self, device: str, text: str) -> str:
        """Write past all caches; what the system said, empty when it went well."""
        result = self.node.vm.run(
            f"dd of={device} bs=4096 count=1 oflag=direct iflag=fullblock conv=sync status=none",
            check=False,
            stdin=text.ljust(4096),
        )
        return result.stderr.strip() or ("" if result.rc == 0 else f"rc {result.rc}")

    def _devices(self) -> list[str]:
        return self.node.sh("ls /sys/bus/rbd/devices").split()


@pytest.fixture
def krbd(node: Node, storage: Storage) -> Iterator[Krbd]:
    """The cluster, in reach of the node's kernel."""
    storage.ceph.create_image("data")
    client = Krbd(node, storage.ceph)
    yield client
    client.close()


def clients(node: Node, check: bool = False) -> dict[str, Any]:
    """What the node shows, once all of it could be read."""
    outcome = node.ansible("ceph_client_info", check)
    assert not outcome.failed, outcome.msg
    assert not outcome.changed
    assert (outcome.findings, outcome.outcomes) == ([], [])
    found: dict[str, Any] = outcome.result["clients"]
    assert found["problem"] == ""
    return found


def content(ceph: Ceph) -> str:
    """The first words of the image, whoever asks."""
    target = ceph.folder / "content"
    target.unlink(missing_ok=True)
    ceph.rbd("export", "--no-progress", IMAGE, str(target))
    return target.read_bytes()[:4096].decode(errors="replace").strip()


def test_fenced_client_writes_again_once_it_is_released(node: Node, krbd: Krbd) -> None:
    ceph = krbd.ceph
    none = clients(node)
    assert none["clients"] == []
    assert none["boot_id"] == node.sh("cat /proc/sys/kernel/random/boot_id")

    device = krbd.map(IMAGE)
    assert krbd.write(device, "before the fence") == ""
    (mapped,) = clients(node)["clients"]
    (watcher,) = ceph.watchers(IMAGE)
    assert mapped == {
        "kind": "krbd",
        "device": device,
        "pool": "rbd",
        "namespace": "",
        "image": "data",
        "snapshot": "",
        "client": f"client.{watcher['client']}",
        "address": "127.0.0.1",
        "entry": watcher["address"],
        "fsid": ceph.fsid,
        "in_use": [],
    }
    assert clients(node, check=True)["clients"] == [mapped]

    ceph.run("osd", "blocklist", "add", mapped["entry"], "3600")
    assert "Input/output error" in krbd.write(device, "after the fence")
    assert ceph.watchers(IMAGE) == []
    assert content(ceph) == "before the fence"
    # The node cannot tell that it is fenced, so it counts for as long as the image is mapped.
    assert clients(node)["clients"] == [mapped]

    ceph.run("osd", "blocklist", "rm", mapped["entry"])
    node.wait(lambda: not krbd.write(device, "after the release"), "it writes again")
    assert content(ceph) == "after the release"
    # It writes, and nobody sees it: the watch does not come back. Only the node knows.
    assert ceph.watchers(IMAGE) == []
    assert clients(node)["clients"] == [mapped]

    krbd.unmap(device)
    assert clients(node) == none


@pytest.mark.variation
def test_what_an_image_is_used_for(node: Node, krbd: Krbd) -> None:
    """Also where only another mount namespace has it mounted, as a container's."""
    device = krbd.map(IMAGE)
    node.sh(f"mkfs.ext4 -q {device} && mkdir -p /mnt/data")
    node.sh(
        f"setsid unshare -m sh -c 'mount {device} /mnt/data && exec "
        "sleep 600' > /dev/null 2>&1 < /dev/null &"
    )
    node.wait(lambda: bool(clients(node)["clients"][0]["in_use"]), "it is mounted")
    (client,) = clients(node)["clients"]
    assert client["in_use"][0].startswith("mounted at /mnt/data in the mount namespace of pid ")
    assert "/mnt/data" not in node.sh("cat /proc/self/mounts")
