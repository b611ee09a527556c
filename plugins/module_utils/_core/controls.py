# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controls: what each one finds, where, and what repairs it.

Pure data, and the commands that repair a finding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import untrusted

COLLECTION = "storage_ops.runbooks"

# The playbooks of nodes demand a target, so that none of them ever means all hosts.
_TARGET = ("-i inventory -e target={node}",)
# Further arguments that limit a playbook to the object of a finding, by the kind of that object.
# Words in braces as in untrusted.command_line.
_RESIDUAL = {
    "multipath map": "-e residual_paths_wwids={wwids}",
    "SCSI disk": "-e residual_paths_wwids={wwids}",
    "swapped LUNs": "-e residual_paths_wwids={wwids}",
}
_FUSE = {
    "FUSE mount": "-e fuse_recovery_paths={path}",
    # Its node's mount answers, so a path names nothing to repair.
    "container": "-e fuse_recovery_namespaces={namespace}",
}


class Control(NamedTuple):
    """One control.

    ``title``: what holds where it passes; ``fault``: what it finds where it fails. ``where``: node,
    or cluster. ``playbook``: repairs it, or explains what must be done by hand.
    ``arguments``: of the playbook, to point it to the object; {names} are facts about that. Of
    several ways, the first whose facts are all known is taken. Empty where nothing is repaired.
    ``scopes``: by kind of a finding's object, what else limits the playbook to that object. A
    finding of another kind has no command.
    """

    id: str
    title: str
    fault: str
    where: str
    playbook: str
    arguments: tuple[str, ...] = ()
    scopes: Mapping[str, str] = {}

    @property
    def runbook(self) -> str:
        """Full name of the playbook."""
        return f"{COLLECTION}.{self.playbook}"

    def to_result(self) -> dict[str, Any]:
        """The control as the report has it."""
        return {
            "id": self.id,
            "title": self.title,
            "fault": self.fault,
            "where": self.where,
            "runbook": self.runbook,
        }


CONTROLS = {
    control.id: control
    for control in (
        Control(
            "STOR-01",
            "No multipath map has only dead paths",
            "Multipath map with only dead paths",
            "node",
            "clean_residual_paths",
            _TARGET,
            _RESIDUAL,
        ),
        Control(
            "STOR-02",
            "No path reads another volume's data",
            "Path that reads another volume's data",
            "node",
            "clean_residual_paths",
            _TARGET,
            _RESIDUAL,
        ),
        Control(
            "STOR-03",
            "The array still serves every SCSI disk",
            "SCSI disk that the array no longer serves",
            "node",
            "clean_residual_paths",
            _TARGET,
            _RESIDUAL,
        ),
        Control(
            "STOR-04",
            "iSCSI kernel modules and iscsid are ready",
            "iSCSI kernel module or iscsid not ready",
            "node",
            "load_iscsi_modules",
            _TARGET,
            # The modules are all that the playbook repairs without being asked for more.
            {"kernel module": "-e iscsi_ready_modules={name}"},
        ),
        Control(
            "STOR-05",
            "No FUSE mount is dead",
            "Dead FUSE mount",
            "node",
            "recover_fuse_mounts",
            _TARGET,
            _FUSE,
        ),
        Control(
            "STOR-06",
            "No FUSE mount hangs",
            "Hung FUSE mount",
            "node",
            "recover_fuse_mounts",
            _TARGET,
            _FUSE,
        ),
        Control(
            "STOR-07",
            "Every pod mount has the source of its volume",
            "Pod mount with another source than its volume",
            "node",
            "repair_pod_mounts",
            _TARGET,
            {"pod mount": "-e pod_mounts_paths={path}"},
        ),
        Control(
            "STOR-08",
            "No volume filesystem turned read-only after I/O errors",
            "Volume filesystem turned read-only after I/O errors",
            "node",
            "repair_pod_mounts",
            _TARGET,
            {"volume filesystem": "-e pod_mounts_paths={path}"},
        ),
        Control(
            "STOR-09",
            "NFS servers answer in time, with the requested version",
            "NFS server unreachable, slow, or without the requested version",
            "node",
            "check_nfs",
            _TARGET,
            {"NFS share": "-e nfs_check_shares={share}"},
        ),
        Control(
            "STOR-10",
            "The container runtime does not allow too many open files",
            "Container runtime allows far too many open files",
            "node",
            "check_nfs",
            _TARGET,
            {"container runtime": "-e nfs_check_runtimes={name}"},
        ),
        Control(
            "STOR-11",
            "Every VolumeAttachment is needed by a pod",
            "VolumeAttachment that no pod needs any more",
            "cluster",
            "repair_volumeattachments",
            ("-e attachment_repair_names={attachment}",),
            {"VolumeAttachment": ""},
        ),
        # No arguments: only a name of another length, or a Kubernetes with the fix, ends it.
        Control(
            "STOR-12",
            "No volume has a name of 68 characters, which is never detached",
            "Volume name of 68 characters that is never detached",
            "cluster",
            "repair_volumeattachments",
        ),
        Control(
            "STOR-13",
            "Every attached volume is in its node's status",
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
            {"VolumeAttachment": ""},
        ),
        Control(
            "STOR-14",
            "Every VolumeAttachment has its driver's publish information",
            "VolumeAttachment without its driver's publish information",
            "cluster",
            "repair_volumeattachments",
            (
                "-e attachment_repair_names={attachment} -e "
                # Off by default, since it restarts the workload.
                "attachment_repair_reattach_missing_metadata=true",
            ),
            {"VolumeAttachment": ""},
        ),
        # No arguments: triage explains, and changes nothing.
        Control(
            "STOR-15",
            "No pod waits for a volume that is not attached",
            "Pod waiting for a volume that is not attached",
            "cluster",
            "triage",
            scopes={"pod": "-e triage_namespace={namespace} -e triage_pod={name}"},
        ),
        # Not {node}: the pod that waits is on a node that is well.
        Control(
            "STOR-16",
            "No lost node holds a volume",
            "Volume of a lost node still held",
            "cluster",
            "fail_over_volumes",
            ("-i inventory -e target={lost_node}",),
            {"Node": ""},
        ),
        Control(
            "STOR-17",
            "No node that is back is still fenced",
            "Fence left behind on a node that is back",
            "cluster",
            "release_fenced_node",
            ("-i inventory -e target={node}",),
            # A fence that no ledger of the node names is no finding about that node's own.
            {"Node": ""},
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


def playbook_of(control: str) -> str:
    """Full name of the playbook that repairs a control or explains it; empty for no control."""
    return CONTROLS[control].runbook if control in CONTROLS else ""


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
    line = _command(CONTROLS[control], "", facts)
    return f"{line}{facts.get('more', '')}" if line else ""


def _command(control: Control, scope: str, facts: Mapping[str, str | Sequence[str]]) -> str:
    """The command of the first arguments whose facts are known, in that scope."""
    for arguments in control.arguments or ("",):
        words = " ".join(filter(None, ("ansible-playbook", control.runbook, arguments, scope)))
        names = {name: facts.get(name, "") for name in re.findall(r"{(\w+)}", words, re.ASCII)}
        # What is known and is no good word ends it: the next arguments would mean more than it.
        if all(names.values()):
            return untrusted.command_line(words, **names)
    return ""


def check_command(finding: Mapping[str, Any], host: str) -> str:
    """The command that repairs a finding and no other, in check mode.

    Empty when there is none, or when a word in it is not what it should be. ``host``: the
    inventory's name of the node.
    """
    thing, control = finding["object"], CONTROLS.get(finding["control"])
    if control is None or thing["kind"] not in control.scopes:
        return ""
    scope = control.scopes[thing["kind"]]
    line = _command(control, scope, _facts(control, thing, finding["evidence"], host))
    # A report is read long after the audit, so what is copied from it changes nothing at first.
    return f"{line} --check" if line else ""


def _facts(
    control: Control, thing: Mapping[str, str], evidence: Mapping[str, Any], host: str
) -> dict[str, str | Sequence[str]]:
    """What the arguments of a control may name, of a finding. Nodes and tenants wrote it."""
    # The node of the cluster's finding is named as Kubernetes names it, which inventories do, too.
    # In a node's own finding root there writes the name, of another host, or "all".
    named = thing["name"] if thing["kind"] == "Node" else thing["node"]
    node = host if control.where == "node" else named
    wwids = evidence.get("wwids") or [evidence.get("wwid") or ""]
    return {
        "node": node,
        "lost_node": node,
        "attachment": thing["name"] if thing["kind"] == "VolumeAttachment" else "",
        "namespace": thing["namespace"],
        "name": thing["name"],
        "path": thing["name"],
        "share": thing["name"],
        "wwids": [str(wwid) for wwid in wwids] if isinstance(wwids, list) and all(wwids) else "",
    }
