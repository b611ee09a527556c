# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""The controls: what each one finds, where, and what repairs it. Pure data, and the line of the shell that repairs a finding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import untrusted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import catalogue

SEVERITIES = ("critical", "major", "minor", "info")

_BY_HAND = {"STOR-12": "repair_volumeattachments", "STOR-15": "triage"}


class Control(NamedTuple):
    """One control; ``where``: node, or cluster."""

    id: str
    title: str
    where: str

    @property
    def runbook(self) -> str:
        """Full name of the playbook that repairs it, or explains what must be done by hand."""
        return catalogue.runbook(self.id) or f"{catalogue.COLLECTION}.{_BY_HAND[self.id]}"

    def to_result(self) -> dict[str, Any]:
        """The control as the report has it."""
        return {"id": self.id, "title": self.title, "where": self.where, "runbook": self.runbook}


CONTROLS = {
    control.id: control
    for control in (
        Control("STOR-01", "Multipath map whose every path is dead", "node"),
        Control("STOR-02", "Path that reads another volume's data", "node"),
        Control("STOR-03", "SCSI disk that the array no longer serves", "node"),
        Control("STOR-04", "iSCSI kernel module or iscsid not ready", "node"),
        Control("STOR-05", "Dead FUSE mount", "node"),
        Control("STOR-06", "Hung FUSE mount", "node"),
        Control("STOR-07", "Pod mount with another source than its volume", "node"),
        Control("STOR-08", "Volume filesystem turned read-only after I/O errors", "node"),
        Control("STOR-09", "NFS server unreachable, slow, or without the wanted version", "node"),
        Control("STOR-10", "Container runtime allows far too many open files", "node"),
        Control("STOR-11", "VolumeAttachment that no pod needs any more", "cluster"),
        Control("STOR-12", "Volume name of 68 characters that is never detached", "cluster"),
        Control("STOR-13", "Volume attached but missing in the node's status", "cluster"),
        Control("STOR-14", "VolumeAttachment without its driver's publish information", "cluster"),
        Control("STOR-15", "Pod waiting for a volume that nobody attaches", "cluster"),
        Control("STOR-16", "Volume of a lost node still held", "cluster"),
        Control("STOR-17", "Fence left behind on a node that is back", "cluster"),
    )
}
NODE_CONTROLS = tuple(control.id for control in CONTROLS.values() if control.where == "node")
CLUSTER_CONTROLS = tuple(control.id for control in CONTROLS.values() if control.where == "cluster")
# Only the blocklist is read of Ceph itself.
CEPH_CONTROLS = ("STOR-17",)


def command(control: str, host: str, thing: Mapping[str, str]) -> str:
    """The line that repairs a finding, in check mode; empty when there is none, or its names are not plain.

    ``host``: the inventory's name of the node; ``thing``: the finding's object.
    """
    # The node of the cluster's finding is named as Kubernetes names it, which inventories do, too.
    facts = {"node": host if control in NODE_CONTROLS else thing["node"], "lost_node": thing["node"]}
    if thing["kind"] == "VolumeAttachment":
        facts["attachment"] = thing["name"]
    if thing["kind"] == "Node":
        facts["node"] = facts["lost_node"] = thing["name"]
    line = catalogue.command(control, facts)
    if control == "STOR-15":
        line = untrusted.command_line(
            f"ansible-playbook {CONTROLS[control].runbook} -e triage_namespace={{namespace}}",
            namespace=thing["namespace"],
        )
    return f"{line} --check" if line else ""
