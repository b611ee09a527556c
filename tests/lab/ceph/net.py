# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A network namespace of its own with addresses of both families, for a Ceph of IPv6 or of both: a
host has just one local address of IPv6, and tests change nothing of the host's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..common import LabError, wait
from ..kubernetes.process import Process
from ..qemu import tail

IPV4, IPV6 = "IPv4", "IPv6"
# Where the monitor and the OSD are, and the networks by which the OSD finds its addresses.
SERVERS = {IPV4: "10.77.0.1", IPV6: "fd00:77::1"}
NETWORKS = {IPV4: "10.77.0.0/24", IPV6: "fd00:77::/64"}
# Of clients. Those of IPv4 are in 127.0.0.0/8, as in any Ceph of the lab's.
CLIENTS = ("fd00:77::11", "fd00:77::12")
# Ceph takes no address of lo for an OSD's (netmask of src/common/ipaddr.cc).
MAKE = """
set -e
ip link set lo up
ip link add lab type veth peer name end
ip link set end up
ip addr add {IPv4}/24 dev lab
ip addr add {IPv6}/64 dev lab nodad
ip link set lab up
for address in {clients}; do ip addr add $address/128 dev lo; done
echo ready
exec sleep infinity
"""


class Net:
    """The namespace, until its process ends."""

    def __init__(self, folder: Path) -> None:
        self.process = Process(folder, "net")
        self._python = folder / "python3"

    def start(self, tied: bool) -> None:
        """Make it."""
        script = MAKE.format(**SERVERS, clients=" ".join(CLIENTS))
        self.process.start(["unshare", "--net", "sh", "-c", script], tied)

        def ready() -> bool:
            self.process.check()
            return "ready" in self.process.log.read_text()

        try:
            wait(ready, "the network is there", 20)
        except LabError as exc:
            raise LabError(f"{exc}\n{tail(self.process.log)}") from exc
        inside = " ".join(self.inside)
        self._python.write_text(f'#!/bin/sh\nexec {inside} /usr/bin/python3 "$@"\n')
        self._python.chmod(0o755)

    @property
    def inside(self) -> list[str]:
        """What runs a command in it."""
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net"]

    @property
    def python(self) -> str:
        """An interpreter that runs in it, for a host of Ansible's."""
        return str(self._python)


def settings_of(families: Sequence[str]) -> dict[str, str]:
    """How daemons find their addresses of these families, as lines of ceph.conf; empty for none."""
    if not families:
        return {}
    # With public_addr there is only that one.
    networks = ",".join(NETWORKS[family] for family in families)
    binds = [f"ms_bind_{name.lower()} = {str(name in families).lower()}" for name in NETWORKS]
    place = f"public_network = {networks}\ncluster_network = {networks}"
    return {"binds": "\n".join(binds), "place": place}
