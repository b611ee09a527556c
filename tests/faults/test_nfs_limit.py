# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limit of open files of a real containerd with a real container (STOR-10): found, and put
right by the playbook when asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from faults.test_nfs_mounts import SHARE, nfs
from lab.state import READY, State
from lab.vm import Vm
from support.cluster import Played
from support.fixtures import fresh_node
from support.node import COLLECTION, Node, remote_environment

__all__ = ["nfs"]

HUGE = 1073741816
DROP_IN = "/etc/systemd/system/containerd.service.d/50-storage_ops-nofile.conf"
POD = "0b1e3f3c-6d0a-4c6e-9f5e-1f1e0d5a7c11"
# As AWX's survey sends them.
SURVEY = {
    "target": "node1\n",
    "nfs_check_write_limit": "true",
    "nfs_check_restart_runtime": "true",
    "nfs_check_options": "",
}


# Infinity means what systemd itself has. On Debian that is 2^20; on other distributions it is 2^30,
# as here from now on.
UNLIMITED = f"sysctl -qw fs.nr_open={HUGE} && prlimit --pid 1 --nofile=:{HUGE}"
# A containerd whose unit says infinity, as Debian's does, and a container.
CONTAINERS = State(
    name="containers",
    commands=(
        UNLIMITED,
        "systemctl start containerd",
        "mkdir -p /srv/root/bin && cp /bin/busybox /srv/root/bin/sleep",
        "ctr run -d --rootfs /srv/root web /bin/sleep 999999",
    ),
    before=READY,
)


def unlimited(node: Node) -> None:
    """As from now on in UNLIMITED."""
    node.sh(UNLIMITED)


@pytest.fixture
def containers(vm: Vm) -> Iterator[Node]:
    """See CONTAINERS."""
    yield from fresh_node(vm, CONTAINERS)


def limit(node: Node) -> int:
    """The running containerd's own."""
    pid = node.sh("systemctl show -P MainPID containerd")
    return int(node.sh(f"awk '/open files/ {{print $5}}' /proc/{pid}/limits"))


def container(node: Node) -> str:
    """The container's process."""
    return node.sh('ctr task ls | awk \'$1 == "web" && $3 == "RUNNING" {print $2}\'')


def play(node: Node, check: bool = False, **extra: str) -> Played:
    """The playbook, as AWX runs it."""
    command = [
        "ansible-playbook",
        f"{COLLECTION}.check_nfs",
        "-i",
        str(node.vm.inventory()),
        "-e",
        json.dumps({**SURVEY, **extra}),
    ]
    command += ["--check"] if check else []
    return Played.of(command, remote_environment())


@pytest.mark.variation
def test_unit_and_running_process(containers: Node) -> None:
    """They disagree in more than one way, and each has its own next step."""
    node = containers
    finding = node.ansible("nfs_mount_check").finding("containerd")
    assert finding["summary"] == f"containerd and its containers may open {HUGE} files each"
    assert (finding["control"], finding["severity"], finding["evidence"]["unit_limit"]) == (
        "STOR-10",
        "major",
        "infinity",
    )
    assert (
        f"write {DROP_IN} with the lines '[Service]' and 'LimitNOFILE=1048576'" in finding["reason"]
    )

    node.sh(
        f"mkdir {DROP_IN.rpartition('/')[0]} && printf "
        f"'[Service]\\nLimitNOFILE=1048576\\n' > {DROP_IN}"
    )
    finding = node.ansible("nfs_mount_check").finding("containerd")
    assert finding["reason"].startswith(
        "systemd has not read the unit's files since they were changed: run 'systemctl "
        "daemon-reload'"
    )

    node.sh("systemctl daemon-reload")
    finding = node.ansible("nfs_mount_check", check=True).finding("containerd")
    assert finding["summary"] == f"containerd and its containers may still open {HUGE} files each"
    assert finding["evidence"] == {
        **finding["evidence"],
        **{
            "unit_limit": "1048576",
            "process_limit": HUGE,
            "limit_after_restart": 1048576,
            "drop_ins": [DROP_IN],
        },
    }

    # A CSI driver that was started before keeps what it got.
    slice_name = f"kubepods-besteffort-pod{POD.replace('-', '_')}.slice"
    node.sh(
        f"systemd-run -q --slice={slice_name} -p LimitNOFILE={HUGE} sh -c 'sleep 999; :' "
        "csi-plugin && systemctl restart containerd"
    )
    outcome = node.ansible("nfs_mount_check")
    assert [finding["object"]["name"] for finding in outcome.findings] == [POD]
    assert f"(sh) of pod {POD}: {HUGE}" in outcome.findings[0]["evidence"]["processes"][0]


@pytest.mark.variation
def test_program_that_closes_all_it_might_have_open(nfs: Node) -> None:
    """As those of NFS 3 do in a container: the mounts get the runtime's limit, so it shows, and
    goes with the limit.
    """
    node = nfs
    closing = (
        "import os, resource\nfor fd in range(3, "
        "resource.getrlimit(resource.RLIMIT_NOFILE)[0]):\n try: os.close(fd)\n except "
        "OSError: pass"
    )
    script = (
        f"#!/bin/sh\ncase \"$*\" in *vers=3*) python3 -c '{closing}';; esac\nexec "
        '/sbin/mount.nfs.real "$@"\n'
    )
    node.vm.run(
        "mv /sbin/mount.nfs /sbin/mount.nfs.real; cat > /sbin/mount.nfs; chmod +x /sbin/mount.nfs",
        stdin=script,
    )
    unlimited(node)
    node.sh("systemctl start containerd", timeout=120)
    asked = {
        "shares": [SHARE],
        "versions": ["3", "4.1"],
        "wanted_version": "3",
        "mount_timeout": 50,
        "slow_seconds": 50,
    }
    finding = node.ansible("nfs_mount_check", **asked).finding(SHARE)
    told = rf"{re.escape(SHARE)}: NFS 3 takes \d+ s where NFS 4\.1 takes "
    assert re.match(told, finding["summary"])
    assert (
        "lower LimitNOFILE of the runtime (STOR-10); or else set mountOptions [nfsvers=4.1]"
        in finding["reason"]
    )
    node.sh(
        f"mkdir {DROP_IN.rpartition('/')[0]} && printf "
        f"'[Service]\\nLimitNOFILE=65536\\n' > {DROP_IN}"
    )
    node.sh("systemctl daemon-reload && systemctl restart containerd", timeout=120)
    assert node.ansible("nfs_mount_check", **asked).findings == []


def test_playbook_puts_the_limit_right(containers: Node) -> None:
    """Checked, done, done again, checked again; the container lives on."""
    node = containers
    before, pid = node.sh("systemctl show -P MainPID containerd"), container(node)
    assert pid
    unasked = play(node, nfs_check_write_limit="", nfs_check_restart_runtime="false")
    assert unasked.rc != 0 and "| CHANGED" not in unasked.text, unasked.text
    assert f"containerd and its containers may open {HUGE} files each" in unasked.text

    planned = play(node, check=True)
    assert planned.rc == 0 and "| CHANGED" in planned.text, planned.text
    assert node.sh(f"ls -d {DROP_IN.rpartition('/')[0]}", check=False) == ""
    assert (node.sh("systemctl show -P MainPID containerd"), limit(node)) == (before, HUGE)

    done = play(node)
    assert done.rc == 0, done.text
    assert "LimitNOFILE is in order. Pods keep the limit" in done.text
    assert node.sh(f"grep -v '^#' {DROP_IN}") == "[Service]\nLimitNOFILE=1048576"
    assert limit(node) == 1048576
    assert node.sh("systemctl show -P MainPID containerd") != before
    assert container(node) == pid
    for check in (False, True):
        again = play(node, check=check)
        assert again.rc == 0 and "| CHANGED" not in again.text, again.text


@pytest.mark.variation
def test_playbook_that_only_writes(containers: Node) -> None:
    """Then a drop-in that comes after ours: a restart would be in vain, so there is none, and no
    success.
    """
    node = containers
    written = play(node, nfs_check_restart_runtime="")
    # The running process still has the old limit.
    assert written.rc != 0 and " left: " in written.text, written.text
    assert "in order after the next restart of the runtime" in written.text
    assert f"containerd and its containers may still open {HUGE} files each" in written.text
    assert limit(node) == HUGE
    node.sh(
        f"printf '[Service]\\nLimitNOFILE=infinity\\n' > {DROP_IN.rpartition('/')[0]}/99-site.conf "
        "&& systemctl daemon-reload"
    )
    pid = node.sh("systemctl show -P MainPID containerd")
    overruled = play(node)
    assert overruled.rc != 0
    assert "another one comes after it" in overruled.text
    assert "LimitNOFILE=infinity is in force" in overruled.text
    assert node.sh("systemctl show -P MainPID containerd") == pid


@pytest.mark.variation
def test_docker_whose_containers_would_end_is_not_restarted(node: Node) -> None:
    """There is no docker on the node; a unit of its name does for what systemd says of it, and no
    daemon.json says live-restore.
    """
    unlimited(node)
    node.sh(
        "printf '[Service]\\nExecStart=/bin/sleep infinity\\nLimitNOFILE=infinity\\n'"
        " > /etc/systemd/system/docker.service && systemctl daemon-reload && systemctl start docker"
    )
    pid = node.sh("systemctl show -P MainPID docker")
    refused = play(node, nfs_check_runtimes="docker")
    assert refused.rc != 0
    assert (
        "docker.service is not restarted, since its containers would "
        "end with it, and nothing was changed" in refused.text
    )
    assert "| CHANGED" not in refused.text
    assert node.sh("systemctl show -P MainPID docker") == pid
    assert node.sh("ls -d /etc/systemd/system/docker.service.d", check=False) == ""
    typo = play(node, nfs_check_write_limit="yes please")
    assert typo.rc != 0
    assert "nfs_check_write_limit must be true or false, not 'yes please'" in typo.text
