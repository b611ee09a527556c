# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

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
        # Each such risk is an option of its own, so that who accepts one accepts no other.
        Code(
            "consent_required",
            "The repair has a risk or a side effect that must be accepted first.",
            "Read the risk. Then set the option that the reason names, or leave the object as "
            "it is.",
        ),
        Code(
            "too_many_repairs",
            "The run has reached its limit max_repairs.",
            "Run again for the other objects, or raise max_repairs.",
        ),
        Code(
            "too_many_deletions",
            "One run of the fail-over deletes only so many pods and VolumeAttachments.",
            "Run again. The next run continues with what is left.",
        ),
        # A fabric, array or server that fails makes healthy objects look broken. To remove them
        # turns a short outage into a long one.
        Code(
            "majority_broken",
            "Most objects of one kind look broken at once, so the cause may be an outage.",
            "Find the outage. If they really are all broken, set the option that the reason names.",
        ),
        # multipathd, kubelets and clients of Ceph recover by themselves within seconds, so one look
        # cannot tell what stays broken.
        Code(
            "observation_too_short",
            "The state was not observed often or long enough to prove anything.",
            "Observe more often or longer, with the options that the reason names.",
        ),
        Code(
            "cause_unproven",
            "Nothing proves that this repair would be right.",
            "Look for the cause, as the reason says.",
        ),
        Code(
            "evidence_contradicts",
            "Two sources contradict each other.",
            "Find out which one is right. Nothing is changed until they agree.",
        ),
        Code(
            "evidence_unreadable",
            "Data that the decision depends on could not be read.",
            "Remove the cause that the message names, and run again.",
        ),
        Code(
            "outside_scope",
            "The repair needs an object that is outside the scope of the run.",
            "Widen the scope, or leave the object as it is.",
        ),
        Code(
            "not_found",
            "A named object does not exist.",
            "Correct the name, or remove the object from the list.",
        ),
        Code(
            "nothing_to_repair",
            "A named object needs no repair, or has none in this collection.",
            "Leave it as it is.",
        ),
        # Half a fence is none: a node with one address left goes on writing.
        Code(
            "all_or_nothing",
            "Another object of this run was refused, and a partial change would do harm.",
            "Follow the other refusal, and run again.",
        ),
        Code(
            "result_too_long",
            "The data that another module needs, or a host's answer, is longer than a result may "
            "be.",
            "Narrow the run, for example to one node or namespace, and run again.",
        ),
        Code(
            "deadline_passed",
            "The time limit of the run has passed, or too little time is left.",
            "Run again, raise the timeout or the deadline that the message names, or narrow "
            "the scope.",
        ),
        Code(
            "world_changed",
            "The object has changed since the repair was planned.",
            "Run again.",
        ),
        # A name that came back is another object: uid, boot ID and WWID tell them apart.
        Code(
            "identity_changed",
            "The name now belongs to another object.",
            "Find out what happened to the first object. Then run again.",
        ),
        # The role node_fence waits for as long as a rehearsal ends with this one.
        Code(
            "lease_held",
            "Another run is working on the same objects.",
            "Wait until it has ended, and run again.",
        ),
        # A run that was stopped for longer than its Lease lasts must assume that another began.
        Code(
            "lease_lost",
            "The run could not keep its Lease, so another run may have started.",
            "Check whether another run is active. Then run again.",
        ),
        Code(
            "interrupted",
            "A signal ended the run.",
            "Run again. The next run finishes the work.",
        ),
        Code(
            "repair_failed",
            "An action did not succeed.",
            "Read the message. It says what was done and what was undone.",
        ),
        # Not repair_failed: each step said that it was done, and a fresh look disagrees.
        Code(
            "repair_unproven",
            "The actions were done, but the state afterwards does not prove the repair.",
            "Check the object against the evidence of the finding. Do not rely on the repair.",
        ),
        Code(
            "unexpected_error",
            "An error that the module did not expect.",
            "Report it with the traceback.",
        ),
        Code(
            "privileges_missing",
            "The module lacks privileges on the host.",
            "Run it as root (become: true).",
        ),
        Code(
            "program_missing",
            "A required program or library is not installed on the host.",
            "Install it, as the message says.",
        ),
        Code(
            "program_failed",
            "A program ended with an error, or did not answer.",
            "Read its message, and run again.",
        ),
        Code(
            "value_refused",
            "A value from a tenant, a node or the network is not valid.",
            "Find out who wrote it. Give a correct value.",
        ),
        # Of the report alone, with the next two. They raise no alarm where the host was not asked
        # for, so a host cannot claim them in its result (_compliance/reading.py).
        Code(
            "host_unreachable",
            "Ansible could not reach the host, or the host did not answer in time.",
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
            "Find out why its job did not complete, and run it again.",
        ),
        Code(
            "file_unusable",
            "A file or a folder cannot be read or written, or has invalid content.",
            "Correct the file, its location or its permissions.",
        ),
        # Of the Kubernetes API.
        # By the status of the answer (client._code_of): 400 and 422, 401 and 403, 404, 409, 429 and
        # all others (RFC 9110, section 15.5; 429 is of RFC 6585, section 4).
        Code(
            "api_unreachable",
            "The API server did not answer.",
            "Check the address, the network and the proxy. Then run again.",
        ),
        Code(
            "api_forbidden",
            "The API server refused the credentials, or the account lacks a permission.",
            "Correct the credentials, or grant the permission that the message names.",
        ),
        Code(
            "api_not_found",
            "The API server has no such object or resource.",
            "Check the name, and whether the API is installed.",
        ),
        # 409: resourceVersion was not the current one, which keeps the changes of others
        # (Kubernetes API conventions, "Concurrency Control and Consistency").
        Code(
            "api_conflict",
            "The object changed while it was being written, or exists already.",
            "Run again.",
        ),
        # 429 has two senders: API Priority and Fairness, and an eviction for which a budget leaves
        # no room (Kubernetes documentation, "API-initiated Eviction").
        Code(
            "api_busy",
            "The API server, or a PodDisruptionBudget, answered every attempt with too many "
            "requests.",
            "Wait, and run again.",
        ),
        Code(
            "api_rejected",
            "The API server found the request invalid, or an admission webhook refused it.",
            "Read the message of the API server.",
        ),
        Code(
            "api_error",
            "The API server had an internal error, or its answer could not be parsed.",
            "Check the state of the API server. Then run again.",
        ),
        Code(
            "api_login",
            "The connection to the API server cannot be set up with the given settings.",
            "Correct the kubeconfig, the context, the certificates or the login program.",
        ),
        Code(
            "version_unsupported",
            "The release of Kubernetes or Ceph is too old for this method.",
            "Use the method that the reason names, or upgrade.",
        ),
        # Of devices and mounts of a node. A LUN that is gone and a target that is down look alike
        # in multipath -ll; only the sense code of an answer tells them apart
        # (_residual_paths/judging.py).
        Code(
            "path_serves_lun",
            "A path still serves its LUN, so the device is not residual.",
            "Leave it as it is. If it should be detached, detach it on the array first.",
        ),
        Code(
            "path_unproven",
            "The answer of a path does not prove that its LUN is gone.",
            "Find out why: check the target, the zoning and the cabling. Run again when the "
            "path answers.",
        ),
        Code(
            "transport_outage",
            "A path is down, so its silence proves nothing about its LUN.",
            "Bring the link, the target or the path up again. Then run again.",
        ),
        Code(
            "multipathd_unusable",
            "The daemon multipathd does not answer, does not know the map, or cannot handle "
            "its name.",
            "Repair multipathd or its configuration, as the reason says.",
        ),
        # A suspended map keeps all I/O waiting (dmsetup(8), suspend), so what looks at it may hang.
        Code(
            "device_changing",
            "The device is suspended, or changed while it was observed.",
            "Wait for the change to end. Then run again.",
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
            "Repair the map that the reason names first. If a LUN answers as a volume of another "
            "array, find out whose LUN it is.",
        ),
        # Three ways to be in use, with three ways out.
        Code(
            "in_use_mounted",
            "The object is mounted, or one of its mounts would stay.",
            "Unmount it there, or move its users away.",
        ),
        Code(
            "in_use_open",
            "A process has it open, or is inside it.",
            "End that process, or move its pod away.",
        ),
        Code(
            "in_use_held",
            "Another device, swap or a loop device is on top of it.",
            "Remove that first.",
        ),
        # A dead mount can lose nothing more. A hung one may come back, and to abort its connection
        # loses what was not written yet, so that takes a consent.
        Code(
            "mount_hung",
            "A mount does not answer, but may only be slow.",
            "Check whether its server comes back. To abort it, set abort_hung_connections.",
        ),
        Code(
            "mount_unknown",
            "It is not known what to mount.",
            "Give it by the option volumes, or run the playbook with the cluster.",
        ),
        Code(
            "mount_in_the_way",
            "Another mount or folder is in the way.",
            "Unmount it, or delete the pod.",
        ),
        Code(
            "mount_differs",
            "The new mount differs from the one that it replaces.",
            "Correct the description of the mount, or use the other strategy.",
        ),
        Code(
            "credentials_missing",
            "The credentials of a mount are not complete.",
            "Give them by the option volumes.",
        ),
        Code(
            "secret_exposed",
            "A secret would be visible on the command line.",
            "Give it as a credential.",
        ),
        Code(
            "driver_unknown",
            "It is not known how the CSI driver mounts volumes for pods.",
            "Read its documentation. Then set the option that the reason names.",
        ),
        # A bind of a dead mount is dead as well: containers that restart now would get it again.
        Code(
            "driver_mount_broken",
            "The CSI driver's own mount is broken, and the next pod would get it.",
            "Repair that mount first: delete the pod that serves it, or recover the node's mount.",
        ),
        # To put the volume there would hide what the pod has written, so a person copies it first.
        Code(
            "data_misplaced",
            "A pod does not write to its volume, but to another place.",
            "Copy the data. Then delete the pod.",
        ),
        Code(
            "pod_restart_needed",
            "Only a new pod gets correct mounts.",
            "Restart the pod, or let the role move its workload.",
        ),
        Code(
            "pods_running",
            "Containers of the pods are still running.",
            "Evict the pods, and give them time to end.",
        ),
        Code(
            "pods_wanted",
            "The pods of the volume are not being deleted, or that is not known.",
            "Evict them first, or use the other strategy.",
        ),
        # What it has mounted with mountPropagation Bidirectional ends with it, for every pod that
        # uses it.
        Code(
            "serves_others",
            "The container serves mounts of other pods, which would lose them.",
            "Restart it by hand at a suitable time.",
        ),
        Code(
            "runtime_unusable",
            "The container runtime does not answer, or there is no client for it.",
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
            "iscsi_use_unknown",
            "The node is not ready for iSCSI, and a CSI driver on it may use it or not.",
            "Say with uses_iscsi whether the volumes of that driver come by iSCSI.",
        ),
        Code(
            "initiator_name_wrong",
            "The initiator name is missing, malformed or ambiguous.",
            "Give the node one name with iscsi-iname, and map its LUNs to that name.",
        ),
        # For the target both are one initiator, so each login of one ends the session of the other
        # (RFC 7143, 6.3.5).
        Code(
            "initiator_name_shared",
            "Two nodes have the same initiator name.",
            "Give one of them a name of its own, and map its LUNs to that name.",
        ),
        # Of VolumeAttachments, claims and workloads.
        Code(
            "in_use_by_pod",
            "A pod or a kubelet needs the volume, or may use it.",
            "Leave it attached, or move the pod first.",
        ),
        # The finalizer stands for ControllerUnpublishVolume. Without it the object goes, and the
        # storage still maps the volume to the node.
        Code(
            "attacher_stuck",
            "The CSI driver's attacher does not release the VolumeAttachment.",
            "Read the log of the attacher. This collection never removes its finalizer.",
        ),
        Code(
            "controller_responsible",
            "A controller created it, or will act on it itself.",
            "Let the controller do it. If it does not, find out why.",
        ),
        # Their attachments have the same name, a hash of driver, handle and node, so that of one
        # cannot be deleted without the other's.
        Code(
            "same_volume_twice",
            "Several PersistentVolumes have the same driver and handle.",
            "Delete the PersistentVolume that is not needed.",
        ),
        # An API server that hears nothing of a kubelet knows nothing of its containers: they may
        # run and write.
        Code(
            "node_lost",
            "The node is gone or not Ready, so a pod on it may still write.",
            "Fail it over with fail_over_volumes, or bring it back.",
        ),
        Code(
            "claim_unbound",
            "The claim is not bound to a volume.",
            "Find out why the claim is not bound.",
        ),
        # By persistentVolumeClaimRetentionPolicy (KEP-1847), or as a generic ephemeral volume
        # (KEP-1698).
        Code(
            "claim_would_be_lost",
            "A claim or its data would be deleted with its last pod.",
            "Save the data first, or let the claim be deleted.",
        ),
        Code(
            "no_pod_to_move",
            "No pod uses the volume on that node.",
            "See STOR-11: the VolumeAttachment may be left over.",
        ),
        Code(
            "pod_not_recreated",
            "No controller would recreate the pod, or that is not known.",
            "Move it by hand, or accept it with the option that the reason names.",
        ),
        Code(
            "pod_stuck",
            "A pod does not end or start in time.",
            "Read its events and the kubelet's log.",
        ),
        Code(
            "workload_unscalable",
            "The workload cannot be scaled down here.",
            "Scale it by its HorizontalPodAutoscaler or by its owner.",
        ),
        # A cordon does not stop it: its pods tolerate unschedulable (kubernetes
        # pkg/controller/daemon/util/daemonset_util.go).
        Code(
            "daemonset_pod",
            "A DaemonSet would recreate the pod on the same node.",
            "Keep the DaemonSet off the node first.",
        ),
        Code(
            "not_detached",
            "A volume was not detached from the node in time.",
            "Read the logs of the kubelet and the attacher. Then run again.",
        ),
        Code(
            "not_attached",
            "A volume was not attached elsewhere, or its pods did not start, in time.",
            "Read the events of the pods.",
        ),
        # Of fences.
        Code(
            "node_not_lost",
            "The node is Ready, its kubelet reports, or it has been silent for too short a time.",
            "Drain it instead, or wait. Release its fence if it has one.",
        ),
        Code(
            "node_not_ready",
            "The node is not Ready, so its host may still be running.",
            "Bring the node back first.",
        ),
        # A new boot has new clients, with other nonces and perhaps other addresses.
        Code(
            "node_rebooted",
            "The node was rebooted or replaced, so the data about its clients is outdated.",
            "Run again from the start.",
        ),
        # Volumes that are detached from a node that still writes are how two nodes come to write to
        # one filesystem.
        Code(
            "fence_missing",
            "Nothing proves that the node is fenced.",
            "Run fail_over_volumes, which fences it first.",
        ),
        Code(
            "fence_unfinished",
            "A fence or a release has begun, but is not at the step that this one needs.",
            "Run the playbook again from the start, or let the other one end.",
        ),
        # Nodes behind NAT, and pods of a driver without hostNetwork, share addresses or pass them
        # on.
        Code(
            "fence_shared",
            "The fence would hit another node or host, or is needed for one.",
            "Find out whose address it is. If the nodes share it, prove that the node is off.",
        ),
        Code(
            "fence_incomplete",
            "The fence would not cover all addresses of the node.",
            "Prove that the node is off and use method none, or leave those volumes out.",
        ),
        Code(
            "fence_method_unfit",
            "This method cannot fence the node, or is weaker than the one that was proven.",
            "Use the method that the reason names.",
        ),
        # InternalIP need not be the address that Ceph sees: of a pod network, of Multus, of IPv6.
        Code(
            "address_unknown",
            "It is not known from which address the node reaches Ceph.",
            "Name it in fence_addresses, or give addresses when you prepare NetworkFences.",
        ),
        # Rook once took each watcher for the lost node's, and fenced the healthy node that had just
        # opened the image (rook issue 14832).
        Code(
            "client_unknown",
            "An unknown client has an image of the node open.",
            "Find out whose client it is. Name it in fence_addresses or in other_addresses.",
        ),
        # A whole address stops the managers and MDS on it, too: they are clients like any other.
        Code(
            "address_protected",
            "The address is one of protected_addresses, or a daemon of Ceph has it.",
            "Do not fence it. Prove that the node is off instead.",
        ),
        Code(
            "network_fence_unfit",
            "A NetworkFence is missing, not settled, or meant for something else.",
            "Repair the NetworkFence, as the reason says, and run again.",
        ),
        # At its start the controller of CSI-Addons carries out every object again, an Unfenced one
        # by removing entries.
        Code(
            "network_fence_opposed",
            "Another NetworkFence removes the fence whenever its controller starts.",
            "Run fail_over_volumes again, which sets it to Fenced.",
        ),
        # The taint out-of-service detaches all volumes of the node, fenced or not (KEP-2268).
        Code(
            "volume_not_fenced",
            "A volume that is not fenced would be detached or used together with the others.",
            "Fence it too, leave it out, or set accept_unfenced_volumes.",
        ),
        # A fence in Ceph keeps a node from nothing else, and stops none of its containers.
        Code(
            "storage_unreached",
            "A pod or a volume stays on the lost node, since the fence does not cover its storage.",
            "Switch the node off, and run again with method power, or external if others have done "
            "it.",
        ),
        Code(
            "data_on_node",
            "A pod stays on the lost node, since its data is on that node alone.",
            "Repair the node, or restore the data from a backup on another one.",
        ),
        # Of a fence that switches the node off.
        Code(
            "bmc_unknown",
            "The inventory does not say which BMC the node has, or gives it to several nodes.",
            "Correct node_fence_bmcs.",
        ),
        Code(
            "bmc_unreachable",
            "The BMC of the node does not answer, or not as a BMC does.",
            "Check its address, its network and its certificate. Then run again.",
        ),
        Code(
            "bmc_login_refused",
            "The BMC of the node refuses the user or the password.",
            "Correct node_fence_bmc_user and node_fence_bmc_password.",
        ),
        # A name in the inventory is no proof: the wrong server would be switched off, and the lost
        # one goes on writing.
        Code(
            "bmc_other_machine",
            "The BMC belongs to another machine than the node.",
            "Correct node_fence_bmcs.",
        ),
        Code(
            "power_not_off",
            "The BMC does not say that the node is off, or says on again.",
            "Find out whether the node runs. Do not detach anything before it is off.",
        ),
        Code(
            "power_reading_unfit",
            "The BMC was not read, not often enough, or too long ago.",
            "Run again.",
        ),
        # The worst case of a fence by power: other nodes have the volumes by now.
        Code(
            "power_contradicted",
            "The node was never off, although its BMC, or whoever fenced it, said so.",
            "Check the volumes that were moved, reboot the node, and correct the BMC.",
        ),
        Code(
            "ledger_unreadable",
            "The ledger of the fence is damaged, or is not in the given namespace.",
            "Repair it. Name its namespace in ledger_namespace only if runs of yours use that: a "
            "node can write the annotation that names it.",
        ),
        Code(
            "ceph_unreachable",
            "Ceph does not answer.",
            "Check its monitors, the network and ceph.conf. Then run again.",
        ),
        Code(
            "ceph_forbidden",
            "The Ceph user lacks a capability, or its key was not accepted.",
            "Grant the capability that the message names.",
        ),
        Code(
            "ceph_not_read",
            "Ceph was not read, or not the part that is needed.",
            "Read it with rbd_watcher_info, and give it by the option ceph.",
        ),
        Code(
            "ceph_reading_unfit",
            "The data from Ceph is too old, or comes from another cluster.",
            "Read it again, from the Ceph cluster that has the volumes.",
        ),
        # Without a time an entry lasts one hour (mon_osd_blocklist_default_expire).
        Code(
            "ceph_entry_missing",
            "Ceph's blocklist lacks the entry, or it expires too soon.",
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
            "Find out whose client it is, and end it. Do not detach anything before.",
        ),
        # A metadata server does what a client asks for until its session has ended, blocklisted or
        # not.
        Code(
            "ceph_session_left",
            "A client still has a session at a metadata server of CephFS, after its fence.",
            "Find out whose client it is, and end it. The volume stays attached until then.",
        ),
        # A kernel client (krbd), and librbd without exclusive-lock, write what they still have as
        # soon as their entry is gone.
        Code(
            "old_clients_left",
            "Clients from before the fence may still be on the node.",
            "Reboot the node, or prove that they are gone. Then run again.",
        ),
    )
}
