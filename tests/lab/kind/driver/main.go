// Copyright (c) 2026 The storage_ops.runbooks contributors
// GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command driver is a small CSI driver whose volumes are folders of one folder that all nodes share. Like an array, it lets one node at a time
// have a volume: -attached names the folder where the controller notes which one. For a provisioner it makes and deletes these folders. With
// -unattached no node has to be told of a volume first, as with a network share (CSIDriver, attachRequired: false).
//
// With -ceph its volumes are RBD images, mapped by the node's kernel, or by rbd-nbd if a volume's attribute "mounter" says so, with the habits of
// ceph-csi (internal/rbd). -root names the node's own root: there are rbd, mkfs and mount. With -cephfs its volumes are folders of a CephFS, mounted by
// the node's kernel (internal/cephfs).
//
// With -luns its volumes are LUNs of an iSCSI array, over all of its portals, as maps of multipath. -array is for the controller: the program that
// manages the array.
//
// With -s3fs its volumes are buckets, which s3fs, or rclone, serves in the plugin's container, with the habits of k8s-csi-s3 (pkg/driver, pkg/mounter):
// what a volume's Secret names is mounted in the staging folder, and dies with the container. These programs come from -root, too. With -unstaged,
// nothing is mounted there: each pod gets a mount of its own, of a folder in the bucket, as by csi-s3 (pkg/mounter/s3fs.go, Stage and Mount;
// defaultFsPath of pkg/driver/controllerserver.go). A volume with the attribute "looped" is a filesystem in a file of its bucket, mounted for each pod
// by a loop device, as by csi-s3's s3backer (pkg/mounter/s3backer.go). With -units, s3fs is copied to the plugin's folder and is a unit of the node's
// systemd, as geesefs is with k8s-csi-s3 (pkg/mounter/geesefs.go). With -private, a pod of its own (-serve) mounts each volume in this folder, and pods
// get binds of that, as with JuiceFS (pkg/juicefs/mount/builder/pod.go).
//
// With -node it is the plugin of a node, and registers itself with the kubelet; without, the controller's.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer

	name, node, endpoint, volumes, attached, ceph, cephfs, array, private string
	s3fs, luns, unattached, unstaged, units                               bool
	// Ids of the volumes that are worked at.
	busy sync.Map
	// One login at a time, since it writes iscsiadm's records.
	logins sync.Mutex
	// Id -> map, of volumes that are unmounted and whose map is still there.
	leaving sync.Map
}

// Identity

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "lab"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: service}}}}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// Controller

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	able := []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
	if d.ceph == "" && d.array == "" {
		able = append(able, csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME)
	}
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, one := range able {
		rpc := &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: one}}
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{Type: rpc})
	}
	return answer, nil
}

func (d *driver) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	for name := range request.GetParameters() {
		return nil, status.Errorf(codes.InvalidArgument, "unknown parameter %q", name)
	}
	id := filepath.Base(request.GetName())
	if err := os.MkdirAll(filepath.Join(d.volumes, id), 0o777); err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: request.GetCapacityRange().GetRequiredBytes()}}, nil
}

func (d *driver) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id := filepath.Base(request.GetVolumeId())
	if node, err := os.ReadFile(filepath.Join(d.attached, id)); err == nil {
		// CSI spec, DeleteVolume Errors: "Volume in use".
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s", id, node)
	}
	return &csi.DeleteVolumeResponse{}, os.RemoveAll(filepath.Join(d.volumes, id))
}

func (d *driver) ControllerPublishVolume(_ context.Context, request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if d.ceph != "" {
		// As ceph-csi: who has an image open Ceph knows, and no controller.
		return &csi.ControllerPublishVolumeResponse{}, nil
	}
	if d.array != "" {
		answer := &csi.ControllerPublishVolumeResponse{}
		return answer, d.manage(request.GetVolumeId(), &answer.PublishContext, "publish", request.GetVolumeId(), request.GetNodeId())
	}
	note := filepath.Join(d.attached, filepath.Base(request.GetVolumeId()))
	has, err := os.ReadFile(note)
	if err == nil && string(has) != request.GetNodeId() {
		// CSI spec, ControllerPublishVolume Errors: "Volume published to another node".
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s", request.GetVolumeId(), has)
	}
	if err := os.WriteFile(note, []byte(request.GetNodeId()), 0o600); err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"folder": filepath.Base(request.GetVolumeId())}}, nil
}

func (d *driver) ControllerUnpublishVolume(_ context.Context, request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if d.array != "" {
		return &csi.ControllerUnpublishVolumeResponse{}, d.manage(request.GetVolumeId(), nil, "unpublish", request.GetVolumeId(), request.GetNodeId())
	}
	note := filepath.Join(d.attached, filepath.Base(request.GetVolumeId()))
	// Detached already is as good, and so is a volume that another node has by now.
	if has, err := os.ReadFile(note); err == nil && string(has) == request.GetNodeId() {
		if err := os.Remove(note); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// Node

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	rpc := &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	return &csi.NodeGetCapabilitiesResponse{
		Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{Rpc: rpc}}},
	}, nil
}

func (d *driver) NodeStageVolume(_ context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if d.ceph != "" {
		return &csi.NodeStageVolumeResponse{}, d.oneAtATime(request.GetVolumeId(), func() error { return d.stageImage(request) })
	}
	if d.cephfs != "" {
		return &csi.NodeStageVolumeResponse{}, d.oneAtATime(request.GetVolumeId(), func() error { return d.mountFiles(request) })
	}
	if d.luns {
		return &csi.NodeStageVolumeResponse{}, d.oneAtATime(request.GetVolumeId(), func() error { return d.stageLUN(request) })
	}
	if isLooped(request) {
		if err := d.mountBucket(request, request.GetStagingTargetPath()); err != nil {
			return nil, err
		}
		return &csi.NodeStageVolumeResponse{}, formatFile(request.GetStagingTargetPath())
	}
	if d.unstaged || d.private != "" {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	if d.s3fs {
		return &csi.NodeStageVolumeResponse{}, d.mountBucket(request, request.GetStagingTargetPath())
	}
	folder := request.GetPublishContext()["folder"]
	if d.unattached {
		folder = filepath.Base(request.GetVolumeId())
	}
	if folder == "" {
		return nil, status.Error(codes.InvalidArgument, "the attachment does not say which folder")
	}
	source := filepath.Join(d.volumes, folder)
	if err := os.MkdirAll(source, 0o777); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, bind(source, request.GetStagingTargetPath())
}

func (d *driver) NodeUnstageVolume(_ context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if d.ceph != "" {
		return &csi.NodeUnstageVolumeResponse{}, d.oneAtATime(request.GetVolumeId(), func() error { return d.unstageImage(request) })
	}
	if d.luns {
		return &csi.NodeUnstageVolumeResponse{}, d.oneAtATime(request.GetVolumeId(), func() error { return d.unstageLUN(request) })
	}
	return &csi.NodeUnstageVolumeResponse{}, unmount(request.GetStagingTargetPath())
}

func (d *driver) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	source := request.GetStagingTargetPath()
	if d.ceph != "" {
		source = filepath.Join(source, request.GetVolumeId())
	}
	if isLooped(request) {
		return &csi.NodePublishVolumeResponse{}, mountFile(source, request.GetTargetPath())
	}
	if d.private != "" {
		return &csi.NodePublishVolumeResponse{}, bindServed(filepath.Join(d.private, request.GetVolumeId()), request.GetTargetPath())
	}
	if d.unstaged {
		return &csi.NodePublishVolumeResponse{}, d.mountBucket(request, request.GetTargetPath())
	}
	if d.s3fs {
		// "Staged mount is dead by some reason. Revive it": but one whose server is gone is no folder without a mount.
		if err := d.mountBucket(request, source); err != nil {
			return nil, err
		}
	}
	return &csi.NodePublishVolumeResponse{}, bind(source, request.GetTargetPath())
}

func (d *driver) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := unmount(request.GetTargetPath()); err != nil {
		return nil, err
	}
	// CSI spec, NodeUnpublishVolume: the plugin deletes what it has made.
	if err := os.Remove(request.GetTargetPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// Images of Ceph's

// image is what a node keeps beside the mount of an image, since NodeUnstageVolume is told of no more than a volume's id: stashRBDImageMetadata of
// ceph-csi's rbd_util.go.
type image struct {
	Version   int
	Pool      string `json:"pool"`
	ImageName string `json:"image"`
	NBD       bool   `json:"accessType"`
}

func (i image) spec() string { return i.Pool + "/" + i.ImageName }

func (i image) kind() string {
	if i.NBD {
		return "nbd"
	}
	return "krbd"
}

// mapOptions are those of appendKRbdDeviceTypeAndOptions and appendNbdDeviceTypeAndOptions of rbd_attach.go.
func (i image) mapOptions() string {
	if i.NBD {
		return "try-netlink,reattach-timeout=300,io-timeout=0"
	}
	return noUdev
}

const (
	stash  = "image-meta.json"
	noUdev = "noudev"
	// ceph-csi's docs/design/proposals/non-graceful-node-shutdown.md.
	noted = ".rbd.csi.ceph.com/clientaddress/"
	// rbdImageWatcherInitDelay, rbdImageWatcherFactor and rbdImageWatcherSteps of rbd_attach.go.
	firstDelay, delayFactor, looks = time.Second, 1.4, 10
	// waitForMount of k8s-csi-s3's mounter.go.
	mountDeadline = 10 * time.Second
)

// oneAtATime is VolumeLocks of ceph-csi's nodeserver.go.
func (d *driver) oneAtATime(id string, work func() error) error {
	if _, busy := d.busy.LoadOrStore(id, true); busy {
		return status.Errorf(codes.Aborted, "an operation with the given Volume ID %s already exists", id)
	}
	defer d.busy.Delete(id)
	return work()
}

func (d *driver) stageImage(request *csi.NodeStageVolumeRequest) error {
	parent, id := request.GetStagingTargetPath(), request.GetVolumeId()
	target := filepath.Join(parent, id)
	if mounted, err := isMounted(target); err != nil || mounted {
		return err
	}
	about := request.GetVolumeContext()
	found := image{Version: 3, Pool: about["pool"], ImageName: about["imageName"], NBD: about["mounter"] == "rbd-nbd"}
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(parent, stash), text, 0o600); err != nil {
		return err
	}
	device, err := d.mapImage(found)
	if err != nil {
		return err
	}
	if err := d.mountImage(found, id, device, target); err != nil {
		// undoStagingTransaction of nodeserver.go.
		return errors.Join(err, unmount(target), d.unmap(found))
	}
	return nil
}

// mapImage is attachRBDImage of rbd_attach.go: an image that this node has mapped already is not asked for others that have it.
func (d *driver) mapImage(found image) (string, error) {
	text, err := d.rbd("device", "list", "--format", "json", "--device-type", found.kind())
	if err != nil {
		return "", err
	}
	// The name is in another key for each kind (rbdDeviceInfo and nbdDeviceInfo).
	var mapped []struct{ Pool, Name, Image, Device string }
	if err := json.Unmarshal([]byte(text), &mapped); err != nil {
		return "", err
	}
	for _, one := range mapped {
		if one.Pool == found.Pool && one.Name+one.Image == found.ImageName {
			return one.Device, nil
		}
	}
	if err := d.waitUnused(found); err != nil {
		return "", err
	}
	device, err := d.rbd("map", found.spec(), "--device-type", found.kind(), "--options", found.mapOptions())
	return strings.TrimSpace(device), err
}

func (d *driver) mountImage(found image, id, device, target string) error {
	if found.NBD {
		// Which address it has there, only Ceph knows.
		return formatAndMount(device, target)
	}
	address, err := os.ReadFile(filepath.Join("/sys/bus/rbd/devices", strings.TrimPrefix(device, "/dev/rbd"), "client_addr"))
	if err != nil {
		return err
	}
	if _, err := d.rbd("image-meta", "set", found.spec(), noted+id+"/"+d.node, strings.TrimSpace(string(address))); err != nil {
		return err
	}
	return formatAndMount(device, target)
}

// formatAndMount is SafeFormatAndMount of k8s.io/mount-utils; the options are those of ceph-csi's mountVolumeToStagePath.
func formatAndMount(device, target string) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	// blkid ends with 2 where it finds nothing.
	kind, err := run("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device)
	if kind == "" {
		_, err = run("mkfs.ext4", "-m0", "-Enodiscard,lazy_itable_init=1,lazy_journal_init=1", device)
	} else {
		_, err = run("sh", "-c", `fsck -a "$1" || [ $? = 1 ]`, "fsck", device)
	}
	if err != nil {
		return err
	}
	_, err = run("mount", "-t", "ext4", "-o", "_netdev,defaults", device, target)
	return err
}

// waitUnused is waitForrbdImage of rbd_attach.go.
func (d *driver) waitUnused(found image) error {
	for look, delay := 0, firstDelay; look < looks; look, delay = look+1, time.Duration(float64(delay)*delayFactor) {
		text, err := d.rbd("status", found.spec(), "--format", "json")
		if err != nil {
			return err
		}
		var answer struct{ Watchers []struct{ Address string } }
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			return err
		}
		if len(answer.Watchers) == 0 {
			return nil
		}
		time.Sleep(delay)
	}
	return status.Errorf(codes.Internal, "rbd image %s is still being used", found.spec())
}

func (d *driver) unstageImage(request *csi.NodeUnstageVolumeRequest) error {
	parent := request.GetStagingTargetPath()
	target := filepath.Join(parent, request.GetVolumeId())
	if err := unmount(target); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := os.ReadFile(filepath.Join(parent, stash))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var found image
	if err := errors.Join(err, json.Unmarshal(text, &found)); err != nil {
		return err
	}
	if err := d.unmap(found); err != nil {
		return err
	}
	return os.Remove(filepath.Join(parent, stash))
}

func (d *driver) unmap(found image) error {
	arguments := []string{"unmap", found.spec(), "--device-type", found.kind()}
	if !found.NBD {
		arguments = append(arguments, "--options", noUdev)
	}
	_, err := d.rbd(arguments...)
	// detachRBDImageOrDeviceSpec of rbd_attach.go: not mapped is as good.
	if err != nil && (strings.Contains(err.Error(), "not a mapped image or snapshot") || strings.Contains(err.Error(), found.spec()+" is not mapped")) {
		return nil
	}
	return err
}

func (d *driver) rbd(arguments ...string) (string, error) {
	return run("rbd", append([]string{"-c", d.ceph}, arguments...)...)
}

// run goes on when the kubelet has given up, as ExecCommand of ceph-csi's internal/util does.
func run(program string, arguments ...string) (string, error) {
	command := exec.Command(program, arguments...)
	var said strings.Builder
	command.Stderr = &said
	begun := time.Now()
	answer, err := command.Output()
	log.Printf("%s: %v (%.1f s) %s", command, err, time.Since(begun).Seconds(), said.String())
	if err != nil {
		return string(answer), status.Errorf(codes.Internal, "%s: %v: %s", program, err, strings.TrimSpace(said.String()))
	}
	return string(answer), nil
}

// Folders of CephFS

// mountFiles is mountKernel of ceph-csi's internal/cephfs/mounter/kernel.go, but that mount.ceph finds the monitors and the key itself.
func (d *driver) mountFiles(request *csi.NodeStageVolumeRequest) error {
	target, about := request.GetStagingTargetPath(), request.GetVolumeContext()
	if mounted, err := isMounted(target); err != nil || mounted {
		return err
	}
	options := "name=" + d.cephfs + ",mds_namespace=" + about["fsName"] + ",_netdev"
	_, err := run("mount", "-t", "ceph", ":"+about["subvolumePath"], target, "-o", options)
	return err
}

// LUNs

const (
	byWWID = "/dev/disk/by-id/dm-uuid-mpath-"
	// timeForDMAppear of Huawei's iscsi_helper.go is 15 s; an emulated node is slower.
	mapDeadline = 30 * time.Second
	// What udev has looked into may be open for a moment.
	flushDeadline = 10 * time.Second
)

// manage has the array do something about a volume. The attacher asks again after 15 s, which on a busy machine only adds to what the array has to do.
func (d *driver) manage(id string, answer *map[string]string, arguments ...string) error {
	return d.oneAtATime(id, func() error {
		text, err := run(d.array, arguments...)
		if err != nil || answer == nil {
			return err
		}
		return json.Unmarshal([]byte(text), answer)
	})
}

func (d *driver) stageLUN(request *csi.NodeStageVolumeRequest) error {
	target, about := request.GetStagingTargetPath(), request.GetPublishContext()
	if mounted, err := isMounted(target); err != nil || mounted {
		return err
	}
	for portal := range strings.SplitSeq(about["portals"], ",") {
		if err := d.login(about["iqn"], portal); err != nil {
			return err
		}
	}
	if err := scan(about["iqn"], about["lun"]); err != nil {
		return err
	}
	device := byWWID + request.GetVolumeContext()["wwid"]
	for end := time.Now().Add(mapDeadline); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(device); err == nil {
			return formatAndMount(device, target)
		}
	}
	// VolumeNotFound of Huawei's connector.go.
	return status.Error(codes.Internal, "VolumeDeviceNotFound")
}

// login is connectISCSIPortal of Huawei's iscsi_helper.go: the node logs in again when it boots. Its node.session.scan=manual is left out, which not
// every open-iscsi knows: so a boot finds the LUNs, as it does with Fibre Channel.
func (d *driver) login(iqn, portal string) error {
	d.logins.Lock()
	defer d.logins.Unlock()
	// It fails where there is none.
	sessions, _ := run("iscsiadm", "-m", "session")
	if strings.Contains(sessions, " "+portal+",1 "+iqn+" ") {
		return nil
	}
	record := []string{"-m", "node", "-T", iqn, "-p", portal}
	for _, more := range [][]string{
		{"-o", "new"},
		{"-o", "update", "-n", "node.startup", "-v", "automatic"},
		// An emulated array may be silent for long.
		{"-o", "update", "-n", "node.conn[0].timeo.noop_out_interval", "-v", "0"},
		{"--login"},
	} {
		if _, err := run("iscsiadm", append(slices.Clone(record), more...)...); err != nil {
			return err
		}
	}
	return nil
}

// scan is scanISCSI of Huawei's iscsi_helper.go, and scanOneLun of pkg/volume/iscsi/iscsi_util.go. The kernel adds no disk where it has one, whatever
// the array serves there by now.
func scan(iqn, number string) error {
	sessions, err := filepath.Glob("/sys/class/iscsi_session/session*")
	if err != nil {
		return err
	}
	for _, session := range sessions {
		name, err := os.ReadFile(filepath.Join(session, "targetname"))
		if err != nil || strings.TrimSpace(string(name)) != iqn {
			continue
		}
		// .../hostH/sessionS/iscsi_session/sessionS
		where, err := filepath.EvalSymlinks(session)
		if err != nil {
			return err
		}
		host := filepath.Base(filepath.Join(where, "../../.."))
		if err := os.WriteFile(filepath.Join("/sys/class/scsi_host", host, "scan"), []byte("0 0 "+number), 0); err != nil {
			return err
		}
	}
	return nil
}

// unstageLUN is NodeUnstageVolume of csi-powerstore's node.go: what is mounted tells the device.
func (d *driver) unstageLUN(request *csi.NodeUnstageVolumeRequest) error {
	id, target := request.GetVolumeId(), request.GetStagingTargetPath()
	number, err := mountedDevice(target)
	if err != nil {
		return err
	}
	if number != "" {
		device, err := filepath.EvalSymlinks("/sys/dev/block/" + number)
		if err != nil {
			return err
		}
		d.leaving.Store(id, device)
	}
	if err := unmount(target); err != nil {
		return err
	}
	device, has := d.leaving.Load(id)
	if !has {
		return nil
	}
	if err := flush(device.(string)); err != nil {
		return err
	}
	d.leaving.Delete(id)
	return nil
}

// flush removes a map, and then its paths, as FlushMultipathDevice and DisconnectVolume of csi-lib-iscsi do. Not there is as good.
func flush(device string) error {
	name, err := os.ReadFile(filepath.Join(device, "dm/name"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	paths, listed := os.ReadDir(filepath.Join(device, "slaves"))
	if err := errors.Join(err, listed); err != nil {
		return err
	}
	for end := time.Now().Add(flushDeadline); ; time.Sleep(500 * time.Millisecond) {
		_, err := run("multipath", "-f", strings.TrimSpace(string(name)))
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return err
		}
	}
	for _, path := range paths {
		if err := os.WriteFile(filepath.Join("/sys/block", path.Name(), "device/delete"), []byte("1"), 0); err != nil {
			return err
		}
	}
	return nil
}

// Buckets

// within a bucket, csi-s3 has this folder for the files: see -unstaged.
const within = "/csi-fs"

// aboutBucket is what both requests say that mount one.
type aboutBucket interface {
	GetVolumeId() string
	GetVolumeContext() map[string]string
	GetSecrets() map[string]string
}

// mountBucket is checkMount of k8s-csi-s3's nodeserver.go, and Mount of its s3fs.go or rclone.go.
func (d *driver) mountBucket(about aboutBucket, target string) error {
	// IsLikelyNotMountPoint of k8s.io/mount-utils asks for attributes first, which fails where the server has died.
	if _, err := os.Stat(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return status.Error(codes.Internal, err.Error())
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	mounted, err := isMounted(target)
	if err != nil || mounted {
		return err
	}
	start := d.startS3fs
	if about.GetVolumeContext()["mounter"] == "rclone" {
		start = startRclone
	} else if d.units {
		start = d.startUnit
	}
	place := about.GetVolumeId()
	if d.unstaged && !isLooped(about) {
		place += within
	}
	if err := start(place, target, about.GetSecrets()); err != nil {
		return err
	}
	// s3fs looks for the bucket when it is a daemon already, and ends where there is none.
	for end := time.Now().Add(mountDeadline); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.ReadDir(target); err == nil {
			if mounted, err := isMounted(target); err != nil || mounted {
				return err
			}
		}
	}
	return status.Errorf(codes.Internal, "nothing serves %s", target)
}

func (d *driver) startS3fs(id, target string, secrets map[string]string) error {
	passwd := filepath.Join(filepath.Dir(d.endpoint), "passwd-s3fs")
	if err := os.WriteFile(passwd, []byte(secrets["accessKeyID"]+":"+secrets["secretAccessKey"]), 0o600); err != nil {
		return err
	}
	defer os.Remove(passwd)
	_, err := run("s3fs", append(bucketArguments(id, target, secrets["endpoint"]), "-o", "passwd_file="+passwd)...)
	return err
}

func bucketArguments(id, target, endpoint string) []string {
	bucket, prefix, _ := strings.Cut(id, "/")
	return []string{bucket + ":/" + prefix, target, "-o", "use_path_request_style,allow_other,mp_umask=000,url=" + endpoint}
}

// startUnit is Mount of geesefs.go: what is mounted is taken off when the server ends.
func (d *driver) startUnit(id, target string, secrets map[string]string) error {
	program := filepath.Join(filepath.Dir(d.endpoint), "s3fs")
	// As CopyBinary there: one that runs is left as it is, unless there is a newer one.
	if _, err := run("cp", "--update", "--preserve=timestamps", "/usr/bin/s3fs", program); err != nil {
		return err
	}
	unit := []string{"--unit=s3fs-" + id, "--collect", "--property=ExecStopPost=/bin/umount -f -l " + target}
	for name, text := range keys(secrets) {
		unit = append(unit, "--setenv="+name+"="+text)
	}
	_, err := run("systemd-run", slices.Concat(unit, []string{program, "-f"}, bucketArguments(id, target, secrets["endpoint"]))...)
	return err
}

// keys are the variables that s3fs takes them from.
func keys(secrets map[string]string) map[string]string {
	return map[string]string{"AWSACCESSKEYID": secrets["accessKeyID"], "AWSSECRETACCESSKEY": secrets["secretAccessKey"]}
}

// serveBucket is a mount pod's container: it ends when its server does. Its variables are what the volume's Secret says.
func (d *driver) serveBucket(id string) error {
	target := filepath.Join(d.private, id)
	// What its predecessor has left is dead, and no folder can be made there.
	if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	for name, text := range keys(map[string]string{"accessKeyID": os.Getenv("accessKeyID"), "secretAccessKey": os.Getenv("secretAccessKey")}) {
		if err := os.Setenv(name, text); err != nil {
			return err
		}
	}
	_, err := run("s3fs", append([]string{"-f"}, bucketArguments(id, target, os.Getenv("endpoint"))...)...)
	return errors.Join(err, errors.New("s3fs has ended"))
}

// bindServed gives a pod what the volume's mount pod serves.
func bindServed(source, target string) error {
	for end := time.Now().Add(mountDeadline); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if mounted, err := isMounted(source); err != nil {
			return err
		} else if mounted {
			if _, err := os.ReadDir(source); err == nil {
				return bind(source, target)
			}
		}
	}
	return status.Errorf(codes.Internal, "no mount pod serves %s", source)
}

// Files with a filesystem in them

// looped is s3backerDevice of csi-s3's s3backer.go.
const looped = "file"

func isLooped(about aboutBucket) bool { return about.GetVolumeContext()["looped"] == "true" }

// formatFile is the second half of Stage of s3backer.go.
func formatFile(folder string) error {
	path := filepath.Join(folder, looped)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := run("truncate", "--size=16M", path); err != nil {
		return err
	}
	_, err := run("mkfs.ext4", "-q", path)
	return err
}

// mountFile is Mount of s3backer.go, with createLoopDevice of csi-s3's mounter.go: a container's /dev has only the devices that were there when it began.
func mountFile(folder, target string) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	if mounted, err := isMounted(target); err != nil || mounted {
		return err
	}
	device, err := run("losetup", "--find")
	if err != nil {
		return err
	}
	device = strings.TrimSpace(device)
	if _, err := os.Stat(device); errors.Is(err, fs.ErrNotExist) {
		if _, err := run("mknod", device, "b", "7", strings.TrimPrefix(device, "/dev/loop")); err != nil {
			return err
		}
	}
	_, err = run("mount", "-o", "loop", filepath.Join(folder, looped), target)
	return err
}

// startRclone names another provider than rclone.go does, whose servers take a bucket in their name only.
func startRclone(id, target string, secrets map[string]string) error {
	for name, text := range map[string]string{"AWS_ACCESS_KEY_ID": secrets["accessKeyID"], "AWS_SECRET_ACCESS_KEY": secrets["secretAccessKey"]} {
		if err := os.Setenv(name, text); err != nil {
			return err
		}
	}
	_, err := run("rclone", "mount", ":s3:"+id, target, "--daemon", "--s3-provider=Other", "--s3-env-auth=true", "--s3-endpoint="+secrets["endpoint"],
		"--allow-other", "--vfs-cache-mode=writes")
	return err
}

// Mounts

func bind(source, target string) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	mounted, err := isMounted(target)
	if err != nil || mounted {
		return err
	}
	log.Printf("bind %s on %s", source, target)
	return syscall.Mount(source, target, "", syscall.MS_BIND, "")
}

func unmount(target string) error {
	for {
		mounted, err := isMounted(target)
		if err != nil || !mounted {
			return err
		}
		log.Printf("unmount %s", target)
		if err := syscall.Unmount(target, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
}

func isMounted(target string) (bool, error) {
	device, err := mountedDevice(target)
	return device != "", err
}

// mountedDevice is major:minor of what is mounted; empty if nothing is.
func mountedDevice(target string) (string, error) {
	lines, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(lines)) {
		// proc_pid_mountinfo(5): the third field is the device, the fifth the mount point. A path of a kubelet has no character that is escaped there.
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == target {
			return fields[2], nil
		}
	}
	return "", nil
}

// Registration with the kubelet

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: d.name, Endpoint: d.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context, answer *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", answer.GetPluginRegistered(), answer.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}

func serve(server *grpc.Server, path string) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		log.Fatal(err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}

func main() {
	d, registry, root, served := &driver{}, "", "", ""
	flag.StringVar(&d.name, "name", "csi.lab.example", "the driver's name")
	flag.StringVar(&d.endpoint, "endpoint", "", "the socket to serve")
	flag.StringVar(&d.volumes, "volumes", "/srv/volumes", "the folder that has the volumes")
	flag.StringVar(&d.attached, "attached", "", "where the controller notes what is attached")
	flag.StringVar(&d.node, "node", "", "the name of this node")
	flag.StringVar(&registry, "registry", "", "the kubelet's folder plugins_registry")
	flag.StringVar(&d.ceph, "ceph", "", "volumes are images of the Ceph with this configuration")
	flag.StringVar(&d.cephfs, "cephfs", "", "volumes are folders of a CephFS, mounted as this user of its Ceph (for the plugin of a node)")
	flag.StringVar(&d.array, "array", "", "volumes are LUNs of the array that this program manages (for the controller)")
	flag.BoolVar(&d.luns, "luns", false, "volumes are LUNs of an array (for the plugin of a node)")
	flag.BoolVar(&d.s3fs, "s3fs", false, "volumes are buckets, as the Secret of each says")
	flag.BoolVar(&d.units, "units", false, "s3fs is a unit of the node's systemd")
	flag.StringVar(&d.private, "private", "", "the folder where mount pods serve the volumes")
	flag.StringVar(&served, "serve", "", "be the mount pod of this volume")
	flag.BoolVar(&d.unstaged, "unstaged", false, "nothing is staged")
	flag.BoolVar(&d.unattached, "unattached", false, "volumes are not attached")
	flag.StringVar(&root, "root", "", "work in this folder as in /")
	flag.Parse()
	if root != "" {
		if err := errors.Join(syscall.Chroot(root), os.Chdir("/")); err != nil {
			log.Fatal(err)
		}
	}
	if served != "" {
		log.Fatal(d.serveBucket(served))
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		answer, err := next(ctx, request)
		log.Printf("%s: %v", info.FullMethod, err)
		return answer, err
	}))
	csi.RegisterIdentityServer(server, d)
	if d.node == "" {
		csi.RegisterControllerServer(server, d)
	} else {
		csi.RegisterNodeServer(server, d)
		second := grpc.NewServer()
		registration.RegisterRegistrationServer(second, d)
		go serve(second, filepath.Join(registry, d.name+"-reg.sock"))
	}
	serve(server, d.endpoint)
}
