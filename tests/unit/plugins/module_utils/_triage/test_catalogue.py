# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The catalogue of messages, by what clusters really say."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import controls
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage import catalogue

PVC = "pvc-1b5dd043-40fc-4924-b1af-03bfa9630751"
SETUP = f'MountVolume.SetUp failed for volume "{PVC}" : '
DEVICE = f'MountVolume.MountDevice failed for volume "{PVC}" : '
ATTACH = f'AttachVolume.Attach failed for volume "{PVC}" : '
NFS = (
    'MountVolume.SetUp failed for volume "nfs" : mount failed: exit status 32\n'
    "Mounting command: mount\nMounting arguments: -t nfs "
    "192.0.2.7:/srv/nfs "
    "/var/lib/kubelet/pods/899ba4ed-10e5-48c7-a5c0-dbe9b0f8b041/volumes/kubernetes.io~nfs/nfs\n"
    "Output: "
)
MOUNT = "/var/lib/kubelet/pods/0fd27403-622b-457c-b43f-606472572c59/volumes/kubernetes.io~csi"

# What kubelets, controllers, schedulers and drivers have said, word for word, with the names of
# nobody's volumes.
SAMPLES: list[tuple[str, str, str]] = [
    (
        "multi-attach-used",
        "FailedAttachVolume",
        f'Multi-Attach error for volume "{PVC}" Volume is already used by pod(s) '
        "web-6d4cf56db6-x2x7k",
    ),
    (
        "multi-attach-used",
        "FailedAttachVolume",
        f'Multi-Attach error for volume "{PVC}" Volume is already '
        "used by 1 pod(s) in different namespaces",
    ),
    (
        "multi-attach",
        "FailedAttachVolume",
        f'Multi-Attach error for volume "{PVC}" Volume is already exclusively attached to one node '
        "and can't be attached to another",
    ),
    (
        "rbd-in-use",
        "FailedMount",
        f"{DEVICE}rpc error: code = Internal desc = rbd image "
        "replicapool/csi-vol-e4d2d56e-70d5-11eb-9a1b-9ef3bde4434c is still being used",
    ),
    (
        "rbd-in-use",
        "FailedMount",
        f'MountVolume.WaitForAttach failed for volume "{PVC}" : rbd '
        "image kube/img-1 is still being used",
    ),
    (
        "not-in-node-status",
        "FailedMount",
        f'Volume not attached according to node status for volume "{PVC}" ',
    ),
    (
        "not-in-node-status",
        "FailedMount",
        f'Volume not attached according to node status for volume "{PVC}" (UniqueName: '
        '"kubernetes.io/csi/net.packet.csi^51e533b3") pod "sanity-pod" (UID: '
        '"92fef253-ca60-48e3-ae8e-ef6826ff6d3b") ',
    ),
    (
        "attachment-forbidden",
        "FailedMount",
        f"{DEVICE}volume 1 has GET error for volume attachment csi-0f1e: "
        'volumeattachments.storage.k8s.io "csi-0f1e" is forbidden: User '
        '"system:node:worker-1" cannot get resource "volumeattachments" in API group '
        '"storage.k8s.io" at the cluster scope: '
        "no relationship found between node 'worker-1' and this object",
    ),
    (
        "publish-info",
        "FailedMount",
        f"{DEVICE}rpc error: code = Internal desc = publishInfo doesn't exist, "
        "PublishContext:map[]",
    ),
    (
        "publish-info",
        "FailedMount",
        f"{DEVICE}rpc error: code = Internal desc = publishInfo doesn't exist",
    ),
    (
        "attacher-silent",
        "FailedAttachVolume",
        f"{ATTACH}timed out waiting for external-attacher of rbd.csi.ceph.com CSI driver to attach "
        "volume 0001-0009-rook-ceph",
    ),
    (
        "driver-not-registered",
        "FailedMount",
        f"{DEVICE}kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: "
        "driver name csi.huawei.com not found in the list of registered CSI drivers",
    ),
    (
        "driver-not-registered",
        "FailedAttachVolume",
        f"{ATTACH}CSINode worker-1 does not contain driver rbd.csi.ceph.com",
    ),
    (
        "driver-not-registered",
        "FailedAttachVolume",
        f'{ATTACH}node "worker-1" has no NodeID annotation',
    ),
    (
        "driver-not-registered",
        "FailedMount",
        f'{DEVICE}rpc error: code = Unavailable desc = connection error: desc = "transport: Error '
        "while dialing dial unix /var/lib/kubelet/plugins/ch.ctrox.csi.s3-driver/csi.sock: "
        'connect: connection refused"',
    ),
    (
        "driver-secret-missing",
        "FailedMount",
        f"{DEVICE}fetching NodeStageSecretRef default/s3 failed: kubernetes.io/csi: failed to find "
        "the secret s3 in the namespace default "
        'with error: secrets "s3" not found',
    ),
    (
        "volume-limit",
        "FailedScheduling",
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) exceed max volume count.",
    ),
    (
        "volume-limit",
        "VolumeAttachmentLimitExceeded",
        "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[data]",
    ),
    (
        "residual-map",
        "FailedMount",
        f"{DEVICE}rpc error: code = Internal desc = 3:0:0:1 sdb 8:16 failed faulty running",
    ),
    (
        "device-not-found",
        "FailedMount",
        f"{DEVICE}rpc error: code = Internal desc = Fibre Channel volume device not found",
    ),
    ("device-not-found", "FailedMount", f"{DEVICE}fibre channel volume device not found"),
    (
        "device-not-found",
        "FailedMount",
        f"{DEVICE}rpc error: code = Internal desc = VolumeDeviceNotFound",
    ),
    (
        "fc-disk-missing",
        "FailedMount",
        'MountVolume.WaitForAttach failed for volume "fc" : no fc disk found',
    ),
    (
        "iscsi-module",
        "FailedMount",
        f"{DEVICE}libkmod: kmod_module_insert_module: could not find module by "
        "name='iscsi_tcp'\niscsiadm: Could not insert module tcp. "
        "Kmod error -2",
    ),
    (
        "iscsi-module",
        "FailedMount",
        f"{SETUP}iscsiadm: initiator reported error (9 - internal error)",
    ),
    ("iscsi-module", "FailedMount", f"{SETUP}iscsiadm: can not connect to iSCSI daemon (111)!"),
    (
        "iscsi-module",
        "FailedMount",
        "iscsi: failed to sendtargets to portal 192.0.2.1:3260 error: iscsiadm: Failed to load "
        "module tcp: No such file\niscsiadm: "
        "Could not load transport tcp.Dropping interface default.",
    ),
    (
        "dead-fuse-mount",
        "FailedMount",
        f"{SETUP}rpc error: code = Internal desc = stat {MOUNT}/{PVC}/mount: transport endpoint is "
        "not connected",
    ),
    (
        "dead-fuse-mount",
        "Unhealthy",
        "Readiness probe failed: ls: cannot access '/data': Transport endpoint is not connected",
    ),
    (
        "other-source",
        "FailedMount",
        f"{SETUP}rpc error: code = Internal desc = The mount {MOUNT}/{PVC}/mount is already exist, "
        "but the source path is not "
        f"/var/lib/kubelet/plugins/kubernetes.io/csi/pv/{PVC}/globalmount",
    ),
    (
        "nfs-version",
        "FailedMount",
        f"{NFS}mount.nfs: requested NFS version or transport protocol is not supported",
    ),
    ("nfs-version", "FailedMount", f"{NFS}mount.nfs: Protocol not supported"),
    ("nfs-unreachable", "FailedMount", f"{NFS}mount.nfs: Connection timed out"),
    ("nfs-unreachable", "FailedMount", f"{NFS}mount.nfs: No route to host"),
    ("nfs-unreachable", "FailedMount", f"{NFS}mount.nfs: Connection refused"),
    (
        "nfs-denied",
        "FailedMount",
        f"{NFS}mount.nfs: access denied by server while mounting 192.0.2.7:/srv/nfs",
    ),
    ("nfs-denied", "FailedMount", f"{NFS}mount.nfs: Operation not permitted"),
    (
        "nfs-no-export",
        "FailedMount",
        f"{NFS}mount.nfs: mounting 192.0.2.7:/srv/nfs failed, reason given by server: No such file "
        "or directory",
    ),
    (
        "mount-helper-missing",
        "FailedMount",
        f"{NFS}mount: /mnt: bad option; for several filesystems (e.g. nfs, cifs) you might need a "
        "/sbin/mount.<type> helper program.",
    ),
    (
        "mount-limit-nofile",
        "FailedMount",
        f"{SETUP}rpc error: code = Internal desc = mount 192.0.2.7:/share failed: exit status 255",
    ),
    (
        "filesystem-damaged",
        "FailedMount",
        f"{DEVICE}'fsck' found errors on device /dev/mapper/mpathb but could not correct them: "
        "fsck from util",
    ),
    (
        "filesystem-damaged",
        "FailedMount",
        f"{DEVICE}mount: {MOUNT}: mount(2) system call failed: Structure needs cleaning.",
    ),
    (
        "io-error",
        "FailedMount",
        f"{DEVICE}stat /var/lib/kubelet/plugins/kubernetes.io/csi/pv/{PVC}/globalmount: "
        "input/output error",
    ),
    (
        "io-error",
        "FailedMount",
        f"{SETUP}rpc error: code = Unknown desc = chmod {MOUNT}/{PVC}/mount: read-only file system",
    ),
    (
        "wrong-filesystem",
        "FailedMount",
        f"{DEVICE}mount failed: exit status 32\nOutput: mount: {MOUNT}: wrong fs type, bad option, "
        "bad superblock on /dev/mapper/mpathb, "
        "missing codepage or helper program, or other error.",
    ),
    (
        "filesystem-unknown",
        "FailedMount",
        f"{DEVICE}rpc error: code = Internal desc = mount failed: exit status 32\n"
        f"Mounting command: mount\nMounting arguments: -t ext5 -o defaults /dev/rbd0 {MOUNT}\n"
        f"Output: mount: {MOUNT}: unknown filesystem type 'ext5'.",
    ),
    (
        "mkfs-missing",
        "FailedMount",
        f'{DEVICE}rpc error: code = Internal desc = format of disk "/dev/rbd0" failed: '
        f'type:("ext5") target:("{MOUNT}") options:("defaults") errcode:(executable file not found '
        "in $PATH) output:() ",
    ),
    (
        "operation-exists",
        "FailedMount",
        f"{SETUP}rpc error: code = Aborted desc = an operation with the given Volume ID "
        "0001-0009-rook-ceph-0000000000000002-fa3081da already exists",
    ),
    (
        "volumes-in-use-late",
        "FailedMount",
        "Volume has not been added to the list of VolumesInUse in the node's volume status for "
        f'volume "{PVC}" ',
    ),
    (
        "claim-missing",
        "FailedScheduling",
        '0/3 nodes are available: 3 persistentvolumeclaim "nfs" not found.',
    ),
    (
        "claim-missing",
        "FailedScheduling",
        "waiting for ephemeral volume controller to create the persistentvolumeclaim "
        '"web-0-scratch"',
    ),
    (
        "claim-lost",
        "FailedScheduling",
        '0/3 nodes are available: persistentvolumeclaim "data" bound to non-existent '
        f'persistentvolume "{PVC}".',
    ),
    (
        "claim-deleted",
        "FailedScheduling",
        '0/3 nodes are available: persistentvolumeclaim "data" is being deleted.',
    ),
    (
        "claim-exclusive",
        "FailedScheduling",
        "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with "
        "ReadWriteOncePod access mode already in-use by another pod.",
    ),
    (
        "claim-exclusive",
        "FailedMount",
        f"{SETUP}volume uses the ReadWriteOncePod access mode and is already in use by another pod",
    ),
    (
        "volume-affinity",
        "FailedScheduling",
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had volume node affinity conflict.",
    ),
    (
        "volume-affinity",
        "FailedScheduling",
        "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.",
    ),
    (
        "volume-affinity",
        "FailedMount",
        f'MountVolume.NodeAffinity check failed for volume "{PVC}" : no matching NodeSelectorTerms',
    ),
    (
        "quota",
        "ProvisioningFailed",
        'persistentvolumeclaims "data" is forbidden: exceeded quota: storage, requested: '
        "requests.storage=10Gi, used: requests.storage=95Gi"
        ", limited: requests.storage=100Gi",
    ),
    ("storage-class-missing", "ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found'),
    (
        "storage-class-missing",
        "FailedBinding",
        "no persistent volumes available for this claim and no storage class is set",
    ),
    (
        "not-provisioned",
        "ProvisioningFailed",
        'failed to provision volume with StorageClass "fast": rpc error: code = ResourceExhausted '
        "desc = pool is full",
    ),
    (
        "claim-unbound",
        "FailedScheduling",
        "0/3 nodes are available: pod has unbound immediate "
        "PersistentVolumeClaims. preemption: 0/3 nodes",
    ),
    (
        "claim-unbound",
        "FailedScheduling",
        "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.",
    ),
    (
        "claim-unbound",
        "FailedMount",
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], "
        "failed to process volumes=[data]: error processing PVC shop/data: PVC is not bound",
    ),
    (
        "configuration-missing",
        "FailedMount",
        'MountVolume.SetUp failed for volume "config" : configmap "redis-conig" not found',
    ),
    (
        "configuration-missing",
        "FailedMount",
        'MountVolume.SetUp failed for volume "cert" : secret "webhook-server-cert" not found',
    ),
    (
        "configuration-missing",
        "CreateContainerConfigError",
        "couldn't find key password in Secret shop/db",
    ),
    ("image", "ImagePullBackOff", 'Back-off pulling image "registry.example.com/web:1"'),
    ("image", "ErrImagePull", "rpc error: code = NotFound desc = failed to pull and unpack image"),
    (
        "sandbox",
        "FailedCreatePodSandBox",
        "Failed to create pod sandbox: rpc error: code = Unknown desc "
        "= failed to setup network for sandbox",
    ),
    (
        "host-path",
        "FailedMount",
        'MountVolume.SetUp failed for volume "logs" : hostPath type check failed: /var/log/app is '
        "not a directory",
    ),
    (
        "no-node",
        "FailedScheduling",
        "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available",
    ),
    (
        "no-node",
        "Unschedulable",
        "0/1 nodes are available: 1 node(s) had untolerated taint "
        "{node-role.kubernetes.io/control-plane: }.",
    ),
    ("no-node", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
    (
        "crash",
        "CrashLoopBackOff",
        "back-off 5m0s restarting failed container=web pod=web-0_shop(9cda)",
    ),
    ("crash", "RunContainerError", "failed to create task: mkdirat etc/foo: read-only file system"),
    (
        "crash",
        "Failed",
        "Error: failed to create containerd task: failed to create shim task: OCI runtime create "
        "failed: runc create failed: unable to "
        "start container process: error during container init: error mounting "
        '"/var/lib/kubelet/pods/x/cm/app/0" to rootfs at '
        '"/etc/app/x.conf": create mountpoint for /etc/app/x.conf mount: make mountpoint: openat2: '
        "read-only file system: unknown",
    ),
    ("crash", "BackOff", "Back-off restarting failed container web in pod web-0_shop(9cda)"),
    (
        "probe",
        "Unhealthy",
        'Readiness probe failed: Get "http://10.0.0.7:8080/ready": dial tcp 10.0.0.7:8080: '
        "connect: connection refused",
    ),
    ("probe", "Unhealthy", "Liveness probe failed: sh: can't create /tmp/x: Read-only file system"),
    ("probe", "Unhealthy", "Readiness probe failed: ssh: exit status 255"),
    (
        "probe",
        "Unhealthy",
        "Readiness probe failed: read tcp 10.0.0.1:5->10.0.0.7:8080: read: transport endpoint is "
        "not connected",
    ),
    ("io-error", "Unhealthy", "Readiness probe failed: cat: /data/x: Input/output error"),
    (
        "node-object-relationship",
        "FailedMount",
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data]: "
        "error processing PVC default/data: failed "
        'to fetch PVC from API server: persistentvolumeclaims "data" is forbidden: User '
        '"system:node:inode52" cannot get resource '
        '"persistentvolumeclaims" in API group "" in the namespace "default": no relationship '
        "found between node 'inode52' and this "
        "object",
    ),
    (
        "driver-timeout",
        "FailedMount",
        f"{DEVICE}rpc error: code = DeadlineExceeded desc = context deadline exceeded",
    ),
    (
        "driver-timeout",
        "FailedAttachVolume",
        f"{ATTACH}rpc error: code = DeadlineExceeded desc = context deadline exceeded",
    ),
    (
        "attach-failed",
        "FailedAttachVolume",
        f"{ATTACH}rpc error: code = NotFound desc = node worker-1 not found",
    ),
    (
        "map-failed",
        "FailedMapVolume",
        f'MapVolume.SetUpDevice failed for volume "{PVC}" : rpc error: '
        "code = Internal desc = exit status 2",
    ),
    ("mount-exit-32", "FailedMount", f"{NFS}mount.nfs: an incorrect mount option was specified"),
    (
        "mount-timeout",
        "FailedMount",
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached "
        "volumes=[kube-api-access-42crm data]: timed out waiting for the condition",
    ),
    (
        "mount-timeout",
        "FailedMount",
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], "
        "failed to process volumes=[]: context deadline exceeded",
    ),
    (
        "mount-timeout",
        "FailedMount",
        'Unable to mount volumes for pod "web-0_shop(f5f99775)": timeout expired waiting for '
        'volumes to attach or mount for pod "shop"/"web-0". list of unmounted volumes=[data]',
    ),
]
# By control, the words of the runbooks that write-ups of the incidents quote.
RUNBOOKS = {
    "STOR-01": "failed faulty running",
    "STOR-03": "Fibre Channel volume device not found",
    "STOR-04": "libkmod: kmod_module_insert_module: could not find module by name='iscsi_tcp'",
    "STOR-05": "Transport endpoint is not connected",
    "STOR-07": "The mount /var/lib/kubelet/pods/UID/mount is already exist, but the source path is "
    "not /x/globalmount",
    "STOR-08": "Input/output error",
    "STOR-09": "mount.nfs: requested NFS version or transport protocol is not supported",
    "STOR-10": "exit status 255",
    "STOR-13": "Volume not attached according to node status",
    "STOR-14": "publishInfo doesn't exist",
    "STOR-16": "rbd image POOL/IMAGE is still being used",
}
FACTS = {
    "node": "worker-1",
    "namespace": "shop",
    "pod": "web-0",
    "claim": "data",
    "attachment": "csi-0f1e",
    "lost_node": "worker-2",
}
FACTS["in_tree_node"] = "worker-1"


@pytest.mark.parametrize(("entry", "reason", "message"), SAMPLES)
def test_sample(entry: str, reason: str, message: str) -> None:
    found = catalogue.match(reason, message)
    assert found and found.id == entry
    combined = catalogue.match(reason, f"(combined from similar events): {message}")
    assert combined and combined.id == entry


def test_every_entry_has_a_sample() -> None:
    ids = [entry.id for entry in catalogue.ENTRIES]
    assert len(ids) == len(set(ids))
    assert set(ids) == {entry for entry, _reason, _message in SAMPLES}


@pytest.mark.parametrize(("control", "words"), RUNBOOKS.items())
def test_runbook_words(control: str, words: str) -> None:
    found = catalogue.match("FailedMount", f"{SETUP}rpc error: code = Internal desc = {words}")
    assert found and found.control == control


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("FailedMount", f"{SETUP}rpc error: code = Internal desc = the array says 42"),
        ("FailedMount", ""),
        ("", ""),
        ("Whatever", "something new"),
        ("Failed", "the hook failed: exit status 255"),
        ("Failed", "the hook failed: exit status 32"),
        ("FailedPostStartHook", "touch: /x: Read-only file system"),
    ],
)
def test_unknown(reason: str, message: str) -> None:
    assert catalogue.match(reason, message) is None


@given(st.text(), st.text())
def test_any_text(reason: str, message: str) -> None:
    found = catalogue.match(reason, message)
    assert found is None or found in catalogue.ENTRIES


@given(st.sampled_from(SAMPLES), st.text(), st.text())
def test_words_around_do_not_hide_a_message(
    sample: tuple[str, str, str], before: str, after: str
) -> None:
    entry, reason, message = sample
    found = catalogue.match(reason, before + message + after)
    assert found
    ids = [known.id for known in catalogue.ENTRIES]
    assert ids.index(found.id) <= ids.index(entry)


def test_texts() -> None:
    known = {*controls.REPAIRABLE, "STOR-15", ""}
    for entry in catalogue.ENTRIES:
        assert entry.control in known
        assert entry.cause and entry.look
        names = [
            name
            for text in (entry.cause, entry.look)
            for _text, name, _spec, _conversion in string.Formatter().parse(text)
            if name
        ]
        assert set(names) <= set(FACTS)
        assert not re.search(r"[.\s]$", entry.cause + entry.look)


@pytest.mark.parametrize("entry", catalogue.ENTRIES, ids=lambda entry: entry.id)
def test_no_pattern_takes_longer_than_the_text_is_long(entry: catalogue.Entry) -> None:
    """With ".*" between two parts, 80 kB of a tenant's took two seconds: each place of the first
    part is tried with all that follows.

    A part may have one repetition without end at most, and none of what could begin it.
    """
    for way in catalogue._parts(entry.patterns):
        for part in way:
            assert ".*" not in part.pattern and ".+" not in part.pattern
            assert not re.search(r"\\S[*+].*\\S[*+]", part.pattern)


def test_parts_follow_one_another() -> None:
    entry = catalogue.Entry("x", ("a...b...c", "^d"), "", "", "")
    assert all(entry.matches(text) for text in ("abc", "a\nb\nc", "xAxBxC", "c b a b c", "D"))
    assert not any(entry.matches(text) for text in ("acb", "bc", "ab", "xd", ""))
