# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The controls: what each one finds, where, and what repairs it.

Pure data, and the commands that repair a finding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import untrusted

COLLECTION = "storage_ops.runbooks"

# The playbooks of nodes demand a target, so that none of them ever means all hosts.
_TARGET = ("-i inventory -e target={node}",)


class Control(NamedTuple):
    """One control.

    ``where``: node, or cluster. ``playbook``: repairs it, or explains what must be done by hand.
    ``arguments``: of the playbook, to point it to the object; {names} are facts about that. Of
    several ways, the first whose facts are all known is taken. Empty where nothing is repaired.
    """

    id: str
    title: str
    where: str
    playbook: str
    arguments: tuple[str, ...] = ()

    @property
    def runbook(self) -> str:
        """Full name of the playbook."""
        return f"{COLLECTION}.{self.playbook}"

    def to_result(self) -> dict[str, Any]:
        """The control as the report has it."""
        return {"id": self.id, "title": self.title, "where": self.where, "runbook": self.runbook}


CONTROLS = {
    control.id: control
    for control in (
        Control(
            "STOR-01",
            "Multipath map with only dead paths",
            "node",
            "clean_residual_paths",
            _TARGET,
        ),
        Control(
            "STOR-02",
            "Path that reads another volume's data",
            "node",
            "clean_residual_paths",
            _TARGET,
        ),
        Control(
            "STOR-03",
            "SCSI disk that the array no longer serves",
            "node",
            "clean_residual_paths",
            _TARGET,
        ),
        Control(
            "STOR-04",
            "iSCSI kernel module or iscsid not ready",
            "node",
            "load_iscsi_modules",
            _TARGET,
        ),
        Control("STOR-05", "Dead FUSE mount", "node", "recover_fuse_mounts", _TARGET),
        Control("STOR-06", "Hung FUSE mount", "node", "recover_fuse_mounts", _TARGET),
        Control(
            "STOR-07",
            "Pod mount with another source than its volume",
            "node",
            "repair_pod_mounts",
            _TARGET,
        ),
        Control(
            "STOR-08",
            "Volume filesystem turned read-only after I/O errors",
            "node",
            "repair_pod_mounts",
            _TARGET,
        ),
        Control(
            "STOR-09",
            "NFS server unreachable, slow, or without the requested version",
            "node",
            "check_nfs",
            _TARGET,
        ),
        Control(
            "STOR-10",
            "Container runtime allows far too many open files",
            "node",
            "check_nfs",
            _TARGET,
        ),
        Control(
            "STOR-11",
            "VolumeAttachment that no pod needs any more",
            "cluster",
            "repair_volumeattachments",
            ("-e attachment_repair_names={attachment}",),
        ),
        # No arguments: only a name of another length, or a Kubernetes with the fix, ends it.
        Control(
            "STOR-12",
            "Volume name of 68 characters that is never detached",
            "cluster",
            "repair_volumeattachments",
        ),
        Control(
            "STOR-13",
            "Volume attached but missing in the node's status",
            "cluster",
            "repair_volumeattachments",
            (
                # A volume of a former in-tree plugin is known by its pod's namespace and node
                # instead.
                "-e attachment_repair_names={attachment} -e attachment_repair_lost_status=reattach",
                "-e target={in_tree_node} -e "
                "attachment_repair_namespaces={namespace} -e "
                "attachment_repair_lost_status=reattach",
            ),
        ),
        Control(
            "STOR-14",
            "VolumeAttachment without its driver's publish information",
            "cluster",
            "repair_volumeattachments",
            (
                "-e attachment_repair_names={attachment} -e "
                # Off by default, since it restarts the workload.
                "attachment_repair_reattach_missing_metadata=true",
            ),
        ),
        # No arguments: triage explains, and changes nothing.
        Control("STOR-15", "Pod waiting for a volume that is not attached", "cluster", "triage"),
        # Not {node}: the pod that waits is on a node that is well.
        Control(
            "STOR-16",
            "Volume of a lost node still held",
            "cluster",
            "fail_over_volumes",
            ("-i inventory -e target={lost_node}",),
        ),
        Control(
            "STOR-17",
            "Fence left behind on a node that is back",
            "cluster",
            "release_fenced_node",
            ("-i inventory -e target={node}",),
        ),
    )
}
# Full names of the playbooks that fail volumes over, and that take a fence back.
FAIL_OVER = CONTROLS["STOR-16"].runbook
RELEASE = CONTROLS["STOR-17"].runbook
NODE_CONTROLS = tuple(control.id for control in CONTROLS.values() if control.where == "node")
CLUSTER_CONTROLS = tuple(control.id for control in CONTROLS.values() if control.where == "cluster")
# What is left of a fence is in Ceph's blocklist, whatever the cluster remembers of it.
CEPH_CONTROLS = ("STOR-17",)
# Those that a playbook repairs.
REPAIRABLE = frozenset(control.id for control in CONTROLS.values() if control.arguments)


def runbook(control: str) -> str:
    """Full name of the playbook that repairs a control; empty when there is none."""
    return CONTROLS[control].runbook if control in REPAIRABLE else ""


def command(control: str, facts: Mapping[str, str]) -> str:
    """The one command that repairs a control where ``facts`` point to.

    Empty when there is none, or a fact that it needs is not known or no name. The fact ``more``, if
    there is one, holds further arguments, from the user's own options.
    """
    if control not in REPAIRABLE:
        return ""
    known = CONTROLS[control]
    lines = (_command(known, arguments, facts) for arguments in known.arguments)
    line = next(filter(None, lines), "")
    return f"{line}{facts.get('more', '')}" if line else ""


def _command(control: Control, arguments: str, facts: Mapping[str, str]) -> str:
    names = {name: facts.get(name, "") for name in re.findall(r"{(\w+)}", arguments)}
    return untrusted.command_line(f"ansible-playbook {control.runbook} {arguments}", **names)


def check_command(control: str, host: str, thing: Mapping[str, str]) -> str:
    """The command that repairs a finding, in check mode; empty when there is none, or its names are
    not plain.

    ``host``: the inventory's name of the node; ``thing``: the finding's object.
    """
    # The node of the cluster's finding is named as Kubernetes names it, which inventories do, too.
    facts = {
        "node": host if control in NODE_CONTROLS else thing["node"],
        "lost_node": thing["node"],
    }
    if thing["kind"] == "VolumeAttachment":
        facts["attachment"] = thing["name"]
    # In a node's own finding root there writes the name, of another host, or "all".
    if thing["kind"] == "Node" and control not in NODE_CONTROLS:
        facts["node"] = facts["lost_node"] = thing["name"]
    line = command(control, facts)
    if control == "STOR-15":
        line = untrusted.command_line(
            f"ansible-playbook {CONTROLS[control].runbook} -e triage_namespace={{namespace}}",
            namespace=thing["namespace"],
        )
    # A report is read long after the audit, so what is copied from it changes nothing at first.
    return f"{line} --check" if line else ""
