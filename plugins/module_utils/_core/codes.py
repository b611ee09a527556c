# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The codes of refusals and failures: for each one what its cause is, and what to do. Pure data.

What decides (roles, playbooks, the report, metrics, an operator's automation) decides on a code,
never on a text, so that texts can be improved. A code is one thing that an operator does
differently, so different problems share it. docs/guides/codes.md shows them as a table.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """One code. ``name``: stable, in snake_case. ``cause`` and ``next_step``: short sentences."""

    name: str
    cause: str
    next_step: str


class Reason(str):
    """A sentence that says why something is refused or has failed, and the code of that.

    It is a str, so that it is joined and shown as one.
    """

    code: str

    def __new__(cls, code: str, text: str) -> Reason:
        """``code``: the name of one of CODES, which a unit test holds all callers to."""
        reason = super().__new__(cls, text)
        reason.code = code
        return reason

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """What a copy is made from."""
        return self.code, str(self)

    def with_text(self, text: str) -> Reason:
        """The same reason, told by another text."""
        return Reason(self.code, text)


CODES = {
    code.name: code
    for code in (
        # Of any run.
        Code(
            "bad_option",
            "An option has a value that cannot be used, or options contradict each other.",
            "Correct the option that the message names.",
        ),
        Code(
            "consent_required",
            "The repair has a risk or a side effect that must be accepted first.",
            "Read the risk. Then set the option that the reason names, or leave the object as "
            "it is.",
        ),
        Code(
            "too_many_repairs",
            "The run has reached its limit max_repairs.",
            "Run again for the others, or raise max_repairs.",
        ),
        Code(
            "majority_broken",
            "Most objects of their kind look broken at once, so the cause may be an outage.",
            "Find the outage. If all of them really are broken, set the option that the reason "
            "names.",
        ),
        Code(
            "observation_too_short",
            "The state was not observed often or long enough to prove anything.",
            "Observe more often or longer, with the options that the reason names.",
        ),
        Code(
            "cause_unproven",
            "Nothing proves that this repair would be right.",
            "Look for the cause with what the reason names.",
        ),
        Code(
            "evidence_contradicts",
            "Two sources disagree about what is there.",
            "Find out which of them is right. Nothing is changed until they agree.",
        ),
        Code(
            "evidence_unreadable",
            "Something that the decision rests on could not be read.",
            "Repair what could not be read, as the message says, and run again.",
        ),
        Code(
            "outside_scope",
            "The repair needs an object that the scope of the run leaves out.",
            "Widen the scope, or leave the object as it is.",
        ),
        Code(
            "not_found",
            "An object that was named does not exist.",
            "Correct the name, or take the object off the list.",
        ),
        Code(
            "nothing_to_repair",
            "An object that was named needs no repair, or no repair here is for it.",
            "Leave it as it is.",
        ),
        Code(
            "all_or_nothing",
            "Another object of the same run was refused, and half of a change would be harmful.",
            "Do what the other refusal says, and run again.",
        ),
        Code(
            "result_too_long",
            "What another module decides by is longer than a result may be.",
            "Narrow the run down, for example to one node or namespace, and run again.",
        ),
        Code(
            "deadline_passed",
            "The time that the run may take is over, or too little of it is left.",
            "Run again, raise the timeout or the deadline that the message names, or narrow the"
            " scope.",
        ),
        Code(
            "world_changed",
            "The object is no longer as it was when the repair was planned.",
            "Run again.",
        ),
        Code(
            "identity_changed",
            "An object of the same name is another one now.",
            "Find out what became of the first one. Then run again.",
        ),
        Code(
            "lease_held",
            "Another run is at work on the same objects.",
            "Wait until it has ended, and run again.",
        ),
        Code(
            "lease_lost",
            "The run could not keep its Lease, so another one may have begun.",
            "See whether another run is at work. Then run again.",
        ),
        Code(
            "interrupted",
            "A signal ended the run.",
            "Run again. It finishes what was begun.",
        ),
        Code(
            "repair_failed",
            "An action did not do what it promises.",
            "Read the message, which says what was done and what was taken back.",
        ),
        Code(
            "repair_unproven",
            "The actions were done, and what was read afterwards does not prove the repair.",
            "Look at the object with the evidence of the finding. Do not rely on it.",
        ),
        Code(
            "unexpected_error",
            "The module did not foresee this error.",
            "Report it with the traceback.",
        ),
        Code(
            "privileges_missing",
            "The module has not the rights on the host that it needs.",
            "Run it as root (become: true).",
        ),
        Code(
            "program_missing",
            "A program or a library that is needed is not installed on the host.",
            "Install it, as the message says.",
        ),
        Code(
            "program_failed",
            "A program ended with an error, or did not answer.",
            "Read what it said, and run again.",
        ),
        Code(
            "value_refused",
            "A value from a tenant, a node or the network cannot be what it has to be.",
            "Find out who wrote it. Give a correct value.",
        ),
        Code(
            "host_unreachable",
            "Ansible could not reach the host.",
            "Check the host, the network and the credentials of the connection.",
        ),
        Code(
            "no_cluster",
            "No access to a cluster is configured.",
            "Configure it, or leave out the controls of the cluster.",
        ),
        Code(
            "audit_missing",
            "The audit did not run there, or its report is missing.",
            "See why its job did not end, and run it again.",
        ),
        Code(
            "file_unusable",
            "A file or a folder cannot be read or written, or its content is not what it has to"
            " be.",
            "Correct the file, its place or its permissions.",
        ),
        # Of the Kubernetes API.
        Code(
            "api_unreachable",
            "The API server gave no answer.",
            "Check the address, the network and the proxy. Then run again.",
        ),
        Code(
            "api_forbidden",
            "The API server refused the credentials, or the account lacks a right.",
            "Correct the credentials, or grant the right that the message names.",
        ),
        Code(
            "api_not_found",
            "The API server has no such object or resource.",
            "Check the name, and whether the API is installed.",
        ),
        Code(
            "api_conflict",
            "The object changed while it was written, or exists already.",
            "Run again.",
        ),
        Code(
            "api_busy",
            "The API server, or a PodDisruptionBudget, said too many requests to all tries.",
            "Wait, and run again.",
        ),
        Code(
            "api_rejected",
            "The API server took the request for invalid, or an admission webhook refused it.",
            "Read the message of the API server.",
        ),
        Code(
            "api_error",
            "The API server had an error of its own, or its answer could not be understood.",
            "See the state of the API server. Then run again.",
        ),
        Code(
            "api_login",
            "The connection to the API server cannot be set up from what was given.",
            "Correct the kubeconfig, the context, the certificates or the login program.",
        ),
        Code(
            "version_unsupported",
            "The release of Kubernetes or Ceph is too old for this way.",
            "Take the other way that the reason names, or upgrade.",
        ),
        # Of devices and mounts of a node.
        Code(
            "path_serves_lun",
            "A path still serves its LUN, so the device is not residual.",
            "Leave it as it is. If it was meant to be detached, detach it on the array first.",
        ),
        Code(
            "path_unproven",
            "What a path answers does not prove that its LUN is gone.",
            "See why it does not answer: the target, the zoning or the cabling. Run again when "
            "it answers.",
        ),
        Code(
            "transport_outage",
            "A path is down, so its silence says nothing about its LUN.",
            "Bring the link, the target or the path up again. Then run again.",
        ),
        Code(
            "multipathd_unusable",
            "The daemon multipathd does not answer, does not know the map, or cannot take its "
            "name.",
            "Repair multipathd or its configuration, as the reason says.",
        ),
        Code(
            "device_changing",
            "The device is suspended, or changed while it was observed.",
            "Let the change end. Then run again.",
        ),
        Code(
            "device_read_only",
            "The device itself is read-only or write-protected.",
            "Make the LUN writable on the array or the device.",
        ),
        Code(
            "device_unusable",
            "The device below the filesystem cannot be read, or is gone.",
            "Repair the device first.",
        ),
        Code(
            "scan_unsafe",
            "A scan could add a disk of another volume to a map.",
            "Repair the map that the reason names first.",
        ),
        Code(
            "in_use_mounted",
            "The object is mounted, or a mount of it would stay.",
            "Unmount it there, or move its users away.",
        ),
        Code(
            "in_use_open",
            "A process has it open, or is inside of it.",
            "End that process, or move its pod away.",
        ),
        Code(
            "in_use_held",
            "Another device, swap or a loop device stands on it.",
            "Remove what stands on it.",
        ),
        Code(
            "mount_hung",
            "A mount does not answer, and may only be slow.",
            "See whether its server comes back. To cut it off, set abort_hung_connections.",
        ),
        Code(
            "mount_unknown",
            "What has to be mounted is not known.",
            "Give it by the option volumes, or run the playbook with the cluster.",
        ),
        Code(
            "mount_in_the_way",
            "Another mount or folder lies in the way.",
            "Unmount it, or delete the pod.",
        ),
        Code(
            "mount_differs",
            "The new mount is not like the one that it has to replace.",
            "Correct what is to be mounted, or use the other strategy.",
        ),
        Code(
            "credentials_missing",
            "The credentials of a mount are not complete.",
            "Give them by the option volumes.",
        ),
        Code(
            "secret_exposed",
            "A secret would be seen on the command line.",
            "Give it as a credential.",
        ),
        Code(
            "driver_unknown",
            "Nothing is known of the CSI driver that would tell which mount is right.",
            "See its documentation. Then set the option that the reason names.",
        ),
        Code(
            "driver_mount_broken",
            "A mount of the CSI driver's own is broken, and the next pod would get it.",
            "Repair that first: delete the pod that serves it, or recover the node's mount.",
        ),
        Code(
            "data_misplaced",
            "A pod writes to another place than its volume.",
            "Copy the data. Then delete the pod.",
        ),
        Code(
            "pod_restart_needed",
            "Only a new pod gets right mounts.",
            "Restart the pod, or let the role move its workload.",
        ),
        Code(
            "pods_running",
            "Containers of the pods still run.",
            "Evict the pods, and give them time to end.",
        ),
        Code(
            "pods_wanted",
            "The pods of the volume are not being deleted, or whether they are is not known.",
            "Evict them first, or use the other strategy.",
        ),
        Code(
            "serves_others",
            "The container mounts for others, which would lose what it serves.",
            "Restart it by hand when that may be.",
        ),
        Code(
            "runtime_unusable",
            "The container runtime cannot be asked.",
            "Repair its socket or crictl, or let a liveness probe restart the container.",
        ),
        # Of iSCSI and kernel modules.
        Code(
            "module_missing",
            "The kernel module is not installed for the running kernel.",
            "Install it, or reboot into the kernel that has it.",
        ),
        Code(
            "module_blocked",
            "The kernel module is blacklisted, or its loading is blocked.",
            "Remove that line of modprobe.d, or set load_blacklisted.",
        ),
        Code(
            "service_masked",
            "The service is masked.",
            "Unmask it with systemctl unmask.",
        ),
        Code(
            "initiator_name_wrong",
            "The initiator name is missing, malformed or ambiguous.",
            "Give the node one name with iscsi-iname, and map its LUNs to that.",
        ),
        Code(
            "initiator_name_shared",
            "Two nodes have the same initiator name.",
            "Give one of them a name of its own, and map its LUNs to that.",
        ),
        # Of VolumeAttachments, claims and workloads.
        Code(
            "in_use_by_pod",
            "A pod or a kubelet needs the volume, or may use it.",
            "Leave it attached, or move the pod first.",
        ),
        Code(
            "attacher_stuck",
            "The CSI driver's attacher does not let go of the VolumeAttachment.",
            "Read the log of the attacher. Its finalizer is never removed here.",
        ),
        Code(
            "controller_responsible",
            "A controller made it or will act on it by itself.",
            "Let the controller do it. If it does not, see why.",
        ),
        Code(
            "same_volume_twice",
            "Several PersistentVolumes have the same driver and handle.",
            "Delete the PersistentVolume that is not needed.",
        ),
        Code(
            "node_lost",
            "The node is gone or not Ready, so a pod on it may still write.",
            "Fail it over with fail_over_volumes, or bring it back.",
        ),
        Code(
            "claim_unbound",
            "The claim is not bound to a volume.",
            "See why the claim is not bound.",
        ),
        Code(
            "claim_would_be_lost",
            "A claim or its data would be deleted with its last pod.",
            "Save the data first, or let the claim go.",
        ),
        Code(
            "no_pod_to_move",
            "No pod uses the volume on that node.",
            "See STOR-11: the VolumeAttachment may be left over.",
        ),
        Code(
            "pod_not_recreated",
            "No controller would make the pod again, or whether one would is not known.",
            "Move it by hand, or accept it with the option that the reason names.",
        ),
        Code(
            "pod_stuck",
            "A pod does not end or does not start in its time.",
            "Read its events and the kubelet's log.",
        ),
        Code(
            "workload_unscalable",
            "The workload cannot be scaled down here.",
            "Scale it by its HorizontalPodAutoscaler or by its owner.",
        ),
        Code(
            "daemonset_pod",
            "A DaemonSet would make the pod again on the same node.",
            "Keep the DaemonSet off the node first.",
        ),
        Code(
            "not_detached",
            "A volume was not detached, or did not leave the node, in time.",
            "See the kubelet's log and the attacher's. Then run again.",
        ),
        Code(
            "not_attached",
            "A volume was not attached elsewhere, or its pods did not start, in time.",
            "See the events of the pods.",
        ),
        # Of fences.
        Code(
            "node_not_lost",
            "The node is Ready, its kubelet reports, or it has been silent for too short a time.",
            "Drain it instead, or wait. Release its fence if it has one.",
        ),
        Code(
            "node_not_ready",
            "The node is not Ready, so its host may still run.",
            "Bring the node back first.",
        ),
        Code(
            "node_rebooted",
            "The node was rebooted or replaced since, so what is known of its clients is old.",
            "Run again from the start.",
        ),
        Code(
            "fence_missing",
            "Nothing proves that the node is fenced.",
            "Run fail_over_volumes, which fences it first.",
        ),
        Code(
            "fence_unfinished",
            "A fence or a release was begun and is not at the step that this one needs.",
            "Run the playbook again from the start, or let the other one end.",
        ),
        Code(
            "fence_shared",
            "The fence would hit another node or host, or is needed for one.",
            "Find out whose the address is. Prove that the node is off if it shares its address.",
        ),
        Code(
            "fence_incomplete",
            "The fence would not cover all addresses of the node.",
            "Prove that the node is off and use method none, or leave those volumes out.",
        ),
        Code(
            "fence_method_unfit",
            "This method cannot fence the node, or is not the one that was begun.",
            "Use the method that the reason names.",
        ),
        Code(
            "address_unknown",
            "From which address the node reaches Ceph is not known.",
            "Name it in fence_addresses, or prepare NetworkFences while nodes are Ready.",
        ),
        Code(
            "client_unknown",
            "An unknown client has an image of the node open.",
            "Find out whose it is. Name it in fence_addresses or in other_addresses.",
        ),
        Code(
            "address_protected",
            "The address is one of protected_addresses, or a daemon of Ceph has it.",
            "Do not fence it. Prove that the node is off instead.",
        ),
        Code(
            "network_fence_unfit",
            "A NetworkFence is missing, is not settled, or is for something else.",
            "Repair the NetworkFence, as the reason says, and run again.",
        ),
        Code(
            "network_fence_opposed",
            "Another NetworkFence takes the fence back whenever its controller starts.",
            "Run fail_over_volumes again, which sets it to Fenced.",
        ),
        Code(
            "volume_not_fenced",
            "A volume that is not fenced would be detached or used with the others.",
            "Fence it too, leave it out, or set accept_unfenced_volumes.",
        ),
        Code(
            "ledger_unreadable",
            "The ledger of the fence is damaged, or is not where it was looked for.",
            "Repair it, or name its namespace in ledger_namespace.",
        ),
        Code(
            "ceph_unreachable",
            "Ceph does not answer.",
            "Check its monitors, the network and ceph.conf. Then run again.",
        ),
        Code(
            "ceph_forbidden",
            "The Ceph user lacks a capability, or its key was not taken.",
            "Grant the capability that the message names.",
        ),
        Code(
            "ceph_not_read",
            "Nothing was read of Ceph, or not the part that is needed.",
            "Read it with rbd_watcher_info, and give it by the option ceph.",
        ),
        Code(
            "ceph_reading_unfit",
            "What was read of Ceph is too old, or of another cluster.",
            "Read it again, from the Ceph that has the volumes.",
        ),
        Code(
            "ceph_entry_missing",
            "Ceph's blocklist has not the entry, or it expires too soon.",
            "Add or renew it with ceph_blocklist.",
        ),
        Code(
            "ceph_entry_left",
            "Ceph's blocklist still has an entry that would be in the way.",
            "Find out whose it is, and remove it with ceph_blocklist.",
        ),
        Code(
            "ceph_watcher_left",
            "A client still watches an image, or was seen after its fence.",
            "Find out whose it is, and end it. Nothing may be detached before.",
        ),
        Code(
            "old_clients_left",
            "Clients from before the fence may be left on the node.",
            "Reboot the node, or prove that they are gone. Then run again.",
        ),
    )
}
