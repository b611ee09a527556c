// Copyright (c) 2026 The storage_ops.runbooks contributors
// GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command driver is a small CSI driver whose volumes are folders of one folder that all nodes share. Like an array, it lets one node at a time
// have a volume: -attached names the folder where the controller notes which one.
//
// With -node it is the plugin of a node, and registers itself with the kubelet; without, the controller's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

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

	name, node, endpoint, volumes, attached string
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
	rpc := &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
	return &csi.ControllerGetCapabilitiesResponse{
		Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc}}},
	}, nil
}

func (d *driver) ControllerPublishVolume(_ context.Context, request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
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
	folder := request.GetPublishContext()["folder"]
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
	return &csi.NodeUnstageVolumeResponse{}, unmount(request.GetStagingTargetPath())
}

func (d *driver) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, bind(request.GetStagingTargetPath(), request.GetTargetPath())
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
	lines, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(lines)) {
		// proc_pid_mountinfo(5): the fifth field is the mount point. A path of a kubelet has no character that is escaped there.
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == target {
			return true, nil
		}
	}
	return false, nil
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
	d, registry := &driver{}, ""
	flag.StringVar(&d.name, "name", "csi.lab.example", "the driver's name")
	flag.StringVar(&d.endpoint, "endpoint", "", "the socket to serve")
	flag.StringVar(&d.volumes, "volumes", "/srv/volumes", "the folder that has the volumes")
	flag.StringVar(&d.attached, "attached", "", "where the controller notes what is attached")
	flag.StringVar(&d.node, "node", "", "the name of this node")
	flag.StringVar(&registry, "registry", "", "the kubelet's folder plugins_registry")
	flag.Parse()
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
