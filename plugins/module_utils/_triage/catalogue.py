# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The messages of stuck pods, and what they mean. Pure: data, and the functions that search it.

A new message is one Entry here and one verbatim sample in the unit test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from .._kube.events import VOLUME_REASONS

# Stands for anything in a pattern.
GAP = "..."

# Must come before words that containers, their probes and the container runtime use as well, for
# reasons that have nothing to do with a volume.
_OF_A_VOLUME = rf"(^({'|'.join(VOLUME_REASONS)}): |MountVolume|NodeStage|NodePublish|mount\.nfs)"


@dataclass(frozen=True)
class Entry:
    """One message: its patterns, its cause, and where to look.

    ``patterns`` are searched, ignoring case, in ``REASON: MESSAGE``; one of them must match. The
    parts of a pattern with ``...`` are searched one after the other, in time linear in the length
    of the text, since tenants write messages. ``storage``: False for what keeps a pod waiting but
    is not storage. ``vague``: it says that something is wrong with the volumes, but not what, so
    even an unknown message says more. ``of_claims``: it has passed once all claims are bound.
    ``before_mounting``: it has passed for a volume that the node's driver was asked to mount since.
    ``metadata``: the key that the VolumeAttachment lacks. ``answered``: by a server that refuses a
    mount, and so keeps no pod from ending.
    """

    id: str
    patterns: str | tuple[str, ...]
    control: str
    cause: str
    look: str
    storage: bool = True
    vague: bool = False
    of_claims: bool = False
    before_mounting: bool = False
    metadata: str = ""
    answered: bool = False

    @property
    def lasts(self) -> bool:
        """It is about the state of the node, so it still holds for a pod that is being deleted."""
        return "STOR-01" <= self.control <= "STOR-10" and not self.answered

    def matches(self, text: str) -> bool:
        """The text holds this message."""
        return any(_in_order(parts, text) for parts in _parts(self.patterns))


@cache
def _parts(patterns: str | tuple[str, ...]) -> tuple[tuple[re.Pattern[str], ...], ...]:
    ways = (patterns,) if isinstance(patterns, str) else patterns
    return tuple(
        tuple(re.compile(part, re.IGNORECASE | re.ASCII) for part in way.split(GAP)) for way in ways
    )


def _in_order(parts: tuple[re.Pattern[str], ...], text: str) -> bool:
    """Each part follows the one before.

    Taking the first match of each part leaves most room for the next, so no backtracking is needed.
    """
    at = 0
    for part in parts:
        found = part.search(text, at)
        if found is None:
            return False
        at = found.end()
    return True


# The first entry that matches is the one that counts: causes first, then what many causes lead to.
ENTRIES: tuple[Entry, ...] = (
    # Attaching
    Entry(
        "multi-attach-used",
        # reportMultiAttachError of pkg/controller/volume/attachdetach/reconciler: it names the
        # pods, where it knows them.
        r"Multi-Attach error for volume ...Volume is already used by",
        "",
        "the volume can be attached to one node only, and a pod on another node uses it",
        "stop or move the pod that the message names, or use a volume with access mode "
        "ReadWriteMany",
        before_mounting=True,
    ),
    Entry(
        "multi-attach",
        # The same, where another node has the volume and no pod there is known.
        r"Multi-Attach error for volume",
        "",
        "the volume can be attached to one node only, and was "
        "attached to another when the pod came",
        "look at the volume's VolumeAttachments and the node they name: a lost node, a slow "
        "detach, or one that no pod needs any more",
        before_mounting=True,
    ),
    Entry(
        "rbd-in-use",
        # ceph-csi internal/rbd/rbd_attach.go, waitForrbdImage: the image has a watcher.
        r"rbd image \S+ is still being used",
        "STOR-16",
        "another client still has the RBD image open, most likely "
        "the node that the pod ran on before",
        "list the image's watchers (rbd status POOL/IMAGE): if the node they are on is lost, the "
        "playbook storage_ops.runbooks.fail_over_volumes fences it (-e target=NAME, with "
        "--check first)",
    ),
    Entry(
        "not-in-node-status",
        # GenerateVerifyControllerAttachedVolumeFunc of
        # pkg/volume/util/operationexecutor/operation_generator.go.
        r"Volume not attached according to node status",
        "STOR-13",
        "status.volumesAttached of the node lacks the volume, although the controller may believe "
        "that it is attached",
        "compare the VolumeAttachment with status.volumesAttached of node {node}",
        before_mounting=True,
    ),
    Entry(
        "attachment-forbidden",
        # plugin/pkg/auth/authorizer/node/node_authorizer.go: a kubelet may read only the
        # VolumeAttachments of its own node, and a deleted one has no node any more.
        r"volumeattachments...is forbidden...no relationship found between node",
        "STOR-13",
        "the kubelet asks for a VolumeAttachment that is not there (any more) for its node",
        "compare the VolumeAttachments of node {node} with its status.volumesAttached",
        before_mounting=True,
    ),
    Entry(
        "publish-info",
        # Huawei's driver, from the publish context of NodeStageVolume (its guide: Troubleshooting,
        # Pod Issues).
        r"publishInfo doesn't exist",
        "STOR-14",
        "the VolumeAttachment was made by an older version of the driver and lacks what the driver "
        "needs to mount",
        "only a new VolumeAttachment has it: the workload must leave the node, and the old one be "
        "gone, before the pod comes back",
        metadata="publishInfo",
    ),
    Entry(
        "attacher-silent",
        # pkg/volume/csi/csi_attacher.go, waitForVolumeAttachDetachStatusWithLister (1.20:
        # waitForVolumeAttachmentInternal and waitForVolumeDetachmentInternal).
        r"timed out waiting for external-attacher of \S+ CSI driver to (attach|detach) volume",
        "",
        "the driver's external-attacher did not answer the VolumeAttachment in time",
        "look at the pods and logs of the driver's controller (container csi-attacher)",
        before_mounting=True,
    ),
    Entry(
        "driver-not-registered",
        # pkg/volume/csi/csi_client.go (newCsiDriverClient), and external-attacher's
        # pkg/controller/csi_handler.go (getNodeID).
        (
            r"not found in the list of registered CSI drivers|CSINode \S+ does not contain driver"
            r"|has no NodeID annotation",
            r"dial unix ...csi...\.sock: connect: (connection refused|no such file or directory)",
        ),
        "",
        "the CSI driver does not run, or is not registered, on node {node}",
        "look at the driver's node pod on {node} (container "
        "node-driver-registrar) and at CSINode {node}",
    ),
    Entry(
        "driver-secret-missing",
        # pkg/volume/csi/csi_attacher.go and csi_mounter.go, and getCredentialsFromSecret of
        # csi_util.go
        r"fetching Node(Stage|Publish)SecretRef|failed to find the secret \S+ in the namespace",
        "",
        "the Secret that the PersistentVolume names for its driver "
        "does not exist, or cannot be read",
        "the message names it: create it again with the driver's credentials "
        "(spec.csi.nodeStageSecretRef of the PersistentVolume)",
    ),
    Entry(
        "volume-limit",
        # pkg/scheduler/framework/plugins/nodevolumelimits (ErrReasonMaxVolumeCountExceeded).
        r"exceed max volume count|Node has reached its volume attachment limit",
        "",
        "no node, or not this one, may have another volume of that driver attached",
        "compare CSINode spec.drivers[].allocatable.count with the VolumeAttachments of each node; "
        "no pod may need some of them: audit with cluster_storage_info",
    ),
    # Mounting: what the node's audit finds
    Entry(
        "residual-map",
        # multipath -ll, in the log of a driver: dm state, checker state and device state of a path.
        r"failed faulty running",
        "STOR-01",
        "a multipath map on node {node} has only dead paths",
        "compare multipath -ll with what the array serves to this node",
    ),
    Entry(
        "device-not-found",
        # os-brick's FibreChannelConnector, and Huawei's driver after it (its guide:
        # Troubleshooting, Pod Issues). That driver for iSCSI, and its later versions for both:
        # VolumeNotFound of its connector/connector.go.
        r"Fibre Channel volume device not found|VolumeDeviceNotFound",
        "STOR-03",
        "disks that a detached LUN left behind on node {node} hide the new one",
        "to have the new one found as well, run storage_ops.runbooks.replace_residual_volume in "
        "its place (-i inventory -e target={namespace}/{pod}); compare multipath -ll and lsscsi "
        "with what the array serves to this node",
    ),
    Entry(
        "fc-disk-missing",
        # The kubelet's own driver: searchDisk of pkg/volume/fc/fc_util.go.
        r"no fc disk found",
        "",
        "node {node} sees no disk of the Fibre Channel volume",
        "check zoning and that the array serves the LUN to the WWPNs of {node}; if it does, look "
        "for residual disks that hide it: audit the node with node_storage_info",
    ),
    Entry(
        "iscsi-module",
        # kmod's modprobe, and open-iscsi's iscsiadm (error 9, ISCSI_ERR_INTERNAL of
        # include/iscsi_err.h; its text is in usr/iscsi_err.c).
        r"find module by name='iscsi_tcp'|iSCSI driver tcp is not loaded|Could not insert module "
        r"tcp|Failed to load module tcp"
        r"|can not connect to iSCSI daemon|initiator reported error \(9 - internal error\)",
        "STOR-04",
        "node {node} is not ready for iSCSI: the kernel module iscsi_tcp or iscsid is missing",
        "lsmod, modprobe iscsi_tcp and systemctl status iscsid on the node",
    ),
    Entry(
        "dead-fuse-mount",
        # ENOTCONN: fs/fuse/dev.c gives it for every request once the connection is aborted.
        # A socket says so too, but names no file.
        (
            rf"{_OF_A_VOLUME}...Transport endpoint is not connected",
            # Begins with a word, which is not looked at again from within.
            r"(^|[\s:>])[^\s:>/]*/[^\s:>]*: Transport endpoint is not connected",
        ),
        "STOR-05",
        "the process behind a FUSE mount on node {node} is gone, and the mount with it",
        "look whether the driver's node pod on {node} was restarted; find the dead mounts there "
        "(ls fails with the same words)",
    ),
    Entry(
        "other-source",
        # Huawei's driver, mounting what it takes for another volume (its guide: Troubleshooting,
        # Pod Issues).
        r"The mount \S+ is already exist, but the source path is not",
        "STOR-07",
        "something else is mounted where the pod's volume belongs",
        "compare the mounts below /var/lib/kubelet/pods of node "
        "{node} with the volume's staging mount",
    ),
    Entry(
        "nfs-version",
        # nfs-utils, utils/mount/error.c (mount_error).
        r"requested NFS version or transport protocol is not supported|mount\.nfs4?: Protocol( "
        r"family)? not supported",
        "STOR-09",
        "the NFS server does not offer the version or transport that the mount asks for",
        "mount by hand on {node} with vers=3, 4.0, 4.1 and 4.2; enable the version on the server, "
        "or set mountOptions in the StorageClass",
        answered=True,
    ),
    Entry(
        "nfs-unreachable",
        r"mount\.nfs4?: ...(Connection timed out|No route to host|Connection refused|Network is "
        r"unreachable|mount system call failed)",
        "STOR-09",
        "node {node} does not reach the NFS server",
        "from the node: name, route, ping, TCP ports 2049 and 111 of the server in the message",
    ),
    Entry(
        "nfs-denied",
        # The other: nfsd of Linux, to a client of NFS 4 to which it exports nothing at all.
        r"mount\.nfs4?: (access denied by server|Operation not permitted)",
        "STOR-09",
        "the NFS server does not export that directory to node {node}",
        "check the server's export rules for the address of the node",
        answered=True,
    ),
    Entry(
        "nfs-no-export",
        # The same file as nfs-version. With NFS 4, what a server does not export to a client is not
        # in the tree that this client sees (RFC 7530, 7.3).
        r"mount\.nfs4?: mounting ... failed, reason given by server: No such file or directory",
        "STOR-09",
        "the NFS server has no such export, or none for node {node}",
        "correct the path of the share, which NFS 4 names from the server's pseudo root (fsid=0), "
        "or the server's export rules for the address of the node",
        answered=True,
    ),
    Entry(
        "mount-helper-missing",
        # util-linux, libmount/src/context_mount.c; mount(8), EXTERNAL HELPERS.
        r"you might need a /sbin/mount\.<type> helper program",
        "",
        "the mount program for that kind of filesystem is not installed on node {node}",
        "install it there (for NFS: nfs-common or nfs-utils)",
    ),
    Entry(
        "mount-limit-nofile",
        rf"{_OF_A_VOLUME}...exit status 255",
        "STOR-10",
        "the mount ran into the driver's time limit, as NFSv3 mounts do where the container "
        "runtime has a far too large LimitNOFILE",
        "grep 'open files' /proc/PID/limits of the container runtime on node {node}: about a "
        "billion is far too many",
    ),
    Entry(
        "filesystem-damaged",
        # k8s.io/mount-utils, mount_linux.go (checkAndRepairFilesystem): fsck(8) ended with 4. The
        # other is strerror(EUCLEAN), as xfs gives it.
        r"'fsck' found errors on device \S+ but could not correct them|Structure needs cleaning",
        "",
        "the filesystem of the volume is damaged and cannot be repaired while mounting",
        "after a backup run fsck or xfs_repair on the volume, "
        "attached to one node and mounted nowhere",
    ),
    Entry(
        "io-error",
        ("input/output error", rf"{_OF_A_VOLUME}...read-only file system"),
        "STOR-08",
        "the volume answers with I/O errors, or its filesystem turned read-only after such",
        "first look at the volume's paths on node {node} (multipath -ll, dmesg) and at the "
        "storage: the filesystem stays read-only until it is unmounted, and the playbook refuses "
        "while paths are down",
    ),
    Entry(
        "wrong-filesystem",
        r"wrong fs type, bad option, bad superblock",
        "",
        "what the node found on the device cannot be mounted: a filesystem of another type than "
        "the volume's fsType, a damaged one, none, or another volume's device",
        "compare what blkid finds on the device with the fsType of the PersistentVolume, and its "
        "WWID with the volume, before formatting or repairing anything; audit the node with "
        "node_storage_info",
    ),
    Entry(
        "filesystem-unknown",
        # util-linux, libmount/src/context_mount.c: ENODEV of mount(2).
        rf"{_OF_A_VOLUME}...unknown filesystem type",
        "",
        "the kernel of node {node} does not know the filesystem type that the volume asks for "
        "(fsType)",
        "compare the fsType of the PersistentVolume with what blkid finds on the device; if it is "
        "right, look for its kernel module on the node",
    ),
    Entry(
        "mkfs-missing",
        # k8s.io/mount-utils, mount_linux.go (formatAndMountSensitive) runs mkfs.TYPE; the other is
        # Go's os/exec (ErrNotFound).
        r"format of disk \S+ failed: ...executable file not found",
        "",
        "the volume is empty, and there is no mkfs for the filesystem type that it asks for "
        "(fsType)",
        "correct the fsType of the StorageClass and of the PersistentVolume, or install that mkfs "
        "on {node}, or in the image of the driver's node pod",
    ),
    Entry(
        "operation-exists",
        # ceph-csi internal/util/idlocker.go, and others that took it over; the gRPC code is Aborted
        # (CSI specification, Error Scheme: operation pending for volume).
        r"an operation with the given Volume ID \S+ already exists",
        "",
        "an earlier call for the same volume still runs in the driver, most likely it hangs",
        "find the first call with this volume in the driver's log, and processes in D state on "
        "{node}; audit it with node_storage_info",
    ),
    Entry(
        "volumes-in-use-late",
        # As not-in-node-status: the kubelet reports a volume as in use before it asks for it, so
        # that the controller does not detach what is being mounted.
        r"Volume has not been added to the list of VolumesInUse in the node's volume status",
        "",
        "the kubelet has not reported the volume in its node's status.volumesInUse yet",
        "look whether the kubelet of {node} can update its node status",
        before_mounting=True,
    ),
    # Claims and scheduling
    Entry(
        "claim-missing",
        # podHasPVCs of pkg/scheduler/framework/plugins/volumebinding/volume_binding.go.
        r"persistentvolumeclaim \"?[^\" ]+\"? not found|waiting for ephemeral volume controller to "
        r"create the persistentvolumeclaim",
        "",
        "a claim that the pod names does not exist",
        "create the claim, or correct its name in the pod's owner",
    ),
    Entry(
        "claim-lost",
        # pkg/scheduler/framework/plugins/volumebinding/binder.go (ErrReasonPVNotExist); in 1.20 it
        # was pkg/controller/volume/scheduling/scheduler_binder.go.
        r"persistentvolumeclaim \S+ bound to non-existent persistentvolume|pvc\(s\) bound to "
        r"non-existent pv\(s\)",
        "",
        "the volume that the claim is bound to was deleted",
        "restore the PersistentVolume under the same name, or restore the data to a new claim",
    ),
    Entry(
        "claim-deleted",
        # The scheduler's volumebinding plugin, and the kubelet's getPVCExtractPV of
        # pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go.
        r"persistentvolumeclaim \S+ is being deleted|PVC is being deleted",
        "",
        "a claim that the pod names is being deleted",
        "delete the pods that still use the claim, then create both again",
    ),
    Entry(
        "claim-exclusive",
        # pkg/scheduler/framework/plugins/volumerestrictions (ErrReasonReadWriteOncePodConflict),
        # and operation_generator.go of the kubelet for a pod that skipped the scheduler.
        r"ReadWriteOncePod access mode (already in-use|and is already in use) by another pod",
        "",
        "the claim allows one pod only, and another pod uses it",
        "stop the other pod of the claim",
    ),
    Entry(
        "volume-affinity",
        # The scheduler's volumebinding/binder.go (ErrReasonNodeConflict) and
        # volumezone/volume_zone.go (ErrReasonConflict), and operation_generator.go of the kubelet
        # for a pod that skipped the scheduler.
        r"volume node affinity conflict|match PersistentVolume's node affinity|NodeAffinity check "
        r"failed|had no available volume zone",
        "",
        "the volume can be reached from other nodes only than those the pod may run on",
        "compare the PersistentVolume's spec.nodeAffinity with the pod's selectors, affinity and "
        "taints; is one of its nodes down?",
    ),
    Entry(
        "quota",
        r"exceeded quota: ...(persistentvolumeclaims|requests\.storage|storageclass)",
        "",
        "the namespace's quota for storage is used up",
        "kubectl -n {namespace} describe resourcequota",
    ),
    Entry(
        "storage-class-missing",
        # syncUnboundClaim of pkg/controller/volume/persistentvolume/pv_controller.go.
        r"storageclass\.storage\.k8s\.io \"[^\"]*\" not found|no persistent volumes available for "
        r"this claim and no storage class is set",
        "",
        "the claim names no StorageClass that exists, so nothing provisions a volume for it",
        "set a default StorageClass or create one of that name; then delete and create the claim",
    ),
    Entry(
        "not-provisioned",
        # sig-storage-lib-external-provisioner, controller/controller.go.
        r"ProvisioningFailed: |failed to provision volume with StorageClass",
        "",
        "the provisioner could not make a volume for the claim",
        "look at the message, and at the log of the driver's controller (container "
        "csi-provisioner)",
    ),
    Entry(
        "claim-unbound",
        # The scheduler's volumebinding plugin: PreFilter, and the reasons of its binder.go.
        r"unbound immediate PersistentVolumeClaims|find available persistent volumes to bind|not "
        r"have enough free storage|PVC is not bound",
        "",
        "a claim of the pod has no volume yet",
        "kubectl -n {namespace} describe pvc: its events say what the provisioner is missing",
        of_claims=True,
    ),
    # Not storage
    Entry(
        "configuration-missing",
        # pkg/kubelet/kubelet_pods.go, pkg/volume/configmap, pkg/volume/secret; "not registered" is
        # the kubelet's own cache (pkg/kubelet/util/manager).
        r"(configmap|secret) \"[^\"]*\" not found|references non-existent (config|secret) key"
        r"|couldn't find key|object \S+ not registered"
        r"|CreateContainerConfigError",
        "",
        "a ConfigMap or Secret that the pod names does not exist",
        "create it, or correct the pod's owner",
        storage=False,
    ),
    Entry(
        "image",
        # pkg/kubelet/images/types.go.
        r"ErrImagePull|ImagePullBackOff|Failed to pull image|Back-off pulling image"
        r"|InvalidImageName|ErrImageNeverPull",
        "",
        "the container image cannot be pulled",
        "check the image's name, the registry, and the pull secret",
        storage=False,
    ),
    Entry(
        "sandbox",
        # pkg/kubelet/kuberuntime/kuberuntime_manager.go (SyncPod).
        r"FailedCreatePodSandBox|Failed to create pod sandbox|failed to setup network for sandbox",
        "",
        "the container runtime or the network plugin cannot start the pod",
        "look at the network plugin's pod and the container runtime on node {node}",
        storage=False,
    ),
    Entry(
        "host-path",
        # pkg/volume/hostpath/host_path.go (checkTypeInternal).
        r"hostPath type check failed",
        "",
        "a hostPath of the pod is not there, or is of another type, on node {node}",
        "create it on the node, or correct the pod's owner",
        storage=False,
    ),
    Entry(
        "no-node",
        r"FailedScheduling: |Unschedulable: |SchedulingGated: ",
        "",
        "no node takes the pod: resources, taints, selectors or affinity",
        "the message counts the nodes by reason",
        storage=False,
    ),
    Entry(
        "crash",
        # pkg/kubelet/kuberuntime/kuberuntime_manager.go (doBackOff), kuberuntime_container.go.
        r"CrashLoopBackOff|Back-off restarting failed container|RunContainerError"
        r"|CreateContainerError"
        r"|OCI runtime create failed",
        "",
        "a container of the pod ends or cannot be started",
        "kubectl -n {namespace} logs {pod} --previous --all-containers",
        storage=False,
    ),
    Entry(
        "probe",
        # pkg/kubelet/prober/prober.go.
        r"(Readiness|Liveness|Startup) probe (failed|errored)",
        "",
        "a container of the pod does not pass its probe",
        "kubectl -n {namespace} logs {pod} --all-containers",
        storage=False,
    ),
    # What many causes lead to
    Entry(
        "node-object-relationship",
        # As attachment-forbidden, for Secrets, ConfigMaps and claims: the authorizer's graph
        # follows its informers, so right after a change it can be behind.
        r"no relationship found between node",
        "",
        "the API server does not (yet) see that node {node} needs the object in the message",
        "does the object exist and does the pod name it? If it lasts, the API server's view of the "
        "node is stale: its owner restarts it",
        before_mounting=True,
    ),
    Entry(
        "driver-timeout",
        # pkg/volume/csi/csi_plugin.go: csiTimeout, 2 minutes, for a call of a driver.
        r"(AttachVolume|MountVolume|MapVolume)\.\w+ failed for volume ...(DeadlineExceeded|context "
        r"deadline exceeded)",
        "",
        "the CSI driver did not answer in time",
        "look at the driver's log; where it is a mount that hangs, audit node {node} with "
        "node_storage_info",
    ),
    Entry(
        "attach-failed",
        r"AttachVolume\.\w+ failed for volume",
        "",
        "the storage refused to attach the volume",
        "the driver's own message follows the volume's name in the message; look at the log of the "
        "driver's controller",
        before_mounting=True,
    ),
    Entry(
        "map-failed",
        r"MapVolume\.\w+ failed for volume",
        "",
        "the raw block volume could not be given to the pod",
        "the driver's own message follows the volume's name in the message; look at the log of the "
        "driver's node pod on {node}",
    ),
    Entry(
        "mount-exit-32",
        # mount(8), EXIT STATUS: 32 is "mount failure".
        rf"{_OF_A_VOLUME}...exit status 32",
        "",
        "the mount program failed",
        "its output is in the message; try the same mount by hand on node {node}",
    ),
    Entry(
        "mount-timeout",
        # pkg/kubelet/kubelet.go (syncPod), after podAttachAndMountTimeout of
        # pkg/kubelet/volumemanager/volume_manager.go.
        (
            r"Unable to (attach or )?mount volumes...(timed out waiting for the condition|context "
            r"deadline exceeded|timeout expired)",
            r"timeout expired waiting for volumes to attach",
        ),
        "",
        "the kubelet timed out waiting for the volumes that the message names; the message does "
        "not give the cause",
        "look at the log of the kubelet and of the driver's node pod on {node} for the volume",
        vague=True,
    ),
)

_SIMILAR = "(combined from similar events): "


# The same message is asked about several times for a pod, and often by many pods.
@lru_cache(maxsize=1_000)
def match(reason: str, message: str) -> Entry | None:
    """The entry for this event or waiting state; None when there is none."""
    text = f"{reason}: {message.replace(_SIMILAR, '', 1)}"
    return next((entry for entry in ENTRIES if entry.matches(text)), None)


# GenerateMountVolumeFunc and GenerateMapVolumeFunc of
# pkg/volume/util/operationexecutor/operation_generator.go: what follows WaitForAttach.
_MOUNTING = re.compile(
    r'(?:MountVolume|MapVolume)\.(?!WaitForAttach)\w+ failed for volume "([^"]+)"', re.ASCII
)
_OF_VOLUME = re.compile(r'for volume "([^"]+)"')
# getPVCExtractPV of
# pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go.
_OF_CLAIM = re.compile(r'failed to fetch PVC from API server: persistentvolumeclaims "([^"]+)"')


def mounted(message: str) -> str:
    """The volume that a CSI driver did not mount when the kubelet asked it to; else empty."""
    found = _MOUNTING.search(message)
    return found.group(1) if found and answered(message) else ""


def volume_of(message: str) -> str:
    """The volume that a message is about, as the kubelet and the controller manager quote it."""
    found = _OF_VOLUME.search(message)
    return found.group(1) if found else ""


def claim_of(message: str) -> str:
    """The claim that the kubelet could not read, in the namespace of its pod; else empty."""
    found = _OF_CLAIM.search(message)
    return found.group(1) if found else ""


def answered(message: str) -> bool:
    """A CSI driver itself gave that error.

    Without a driver behind the socket gRPC itself writes an error of the same form, with the code
    Unavailable (grpc-go, codes.Unavailable).
    """
    return "rpc error: code = " in message and "code = Unavailable" not in message
