// Copyright (c) 2026 The storage_ops.runbooks contributors
// GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command driver is the CSI-Addons endpoint of a storage driver: it fences by Ceph's blocklist, with the commands that ceph-csi uses.
//
// With -clients it is the endpoint of a node, which says by which addresses that node is to be fenced; without, the controller's.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/csi-addons/spec/lib/go/fence"
	"github.com/csi-addons/spec/lib/go/identity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Five years, which is what ceph-csi takes for ever.
const expireSeconds = "157784760"

type driver struct {
	identity.UnimplementedIdentityServer
	fence.UnimplementedFenceControllerServer

	name, conf, keyring, fault string
	clients                    []string
}

func (d *driver) GetIdentity(context.Context, *identity.GetIdentityRequest) (*identity.GetIdentityResponse, error) {
	return &identity.GetIdentityResponse{Name: d.name, VendorVersion: "lab"}, nil
}

func (d *driver) Probe(context.Context, *identity.ProbeRequest) (*identity.ProbeResponse, error) {
	return &identity.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) GetCapabilities(context.Context, *identity.GetCapabilitiesRequest) (*identity.GetCapabilitiesResponse, error) {
	service, fencing := identity.Capability_Service_CONTROLLER_SERVICE, identity.Capability_NetworkFence_NETWORK_FENCE
	if len(d.clients) > 0 {
		service, fencing = identity.Capability_Service_NODE_SERVICE, identity.Capability_NetworkFence_GET_CLIENTS_TO_FENCE
	}
	return &identity.GetCapabilitiesResponse{Capabilities: []*identity.Capability{
		{Type: &identity.Capability_Service_{Service: &identity.Capability_Service{Type: service}}},
		{Type: &identity.Capability_NetworkFence_{NetworkFence: &identity.Capability_NetworkFence{Type: fencing}}},
	}}, nil
}

func (d *driver) FenceClusterNetwork(ctx context.Context, request *fence.FenceClusterNetworkRequest) (*fence.FenceClusterNetworkResponse, error) {
	for _, cidr := range request.GetCidrs() {
		if err := d.blocklist(ctx, "add", cidr.GetCidr(), expireSeconds); err != nil {
			return nil, err
		}
	}
	return &fence.FenceClusterNetworkResponse{}, nil
}

func (d *driver) UnfenceClusterNetwork(ctx context.Context, request *fence.UnfenceClusterNetworkRequest) (*fence.UnfenceClusterNetworkResponse, error) {
	for _, cidr := range request.GetCidrs() {
		if err := d.blocklist(ctx, "rm", cidr.GetCidr()); err != nil {
			return nil, err
		}
	}
	return &fence.UnfenceClusterNetworkResponse{}, nil
}

func (d *driver) GetFenceClients(context.Context, *fence.GetFenceClientsRequest) (*fence.GetFenceClientsResponse, error) {
	addresses := make([]*fence.CIDR, 0, len(d.clients))
	for _, cidr := range d.clients {
		addresses = append(addresses, &fence.CIDR{Cidr: cidr})
	}
	return &fence.GetFenceClientsResponse{Clients: []*fence.ClientDetails{{Id: "lab", Addresses: addresses}}}, nil
}

// blocklist changes a range's entry. While the fault file exists, its content is the answer.
func (d *driver) blocklist(ctx context.Context, words ...string) error {
	if text, err := os.ReadFile(d.fault); err == nil {
		log.Printf("failing %v as told", words)
		return status.Error(codes.Internal, string(text))
	}
	arguments := append([]string{"--conf", d.conf, "--keyring", d.keyring, "--name", "client.admin", "osd", "blocklist", "range"}, words...)
	said, err := exec.CommandContext(ctx, "ceph", arguments...).CombinedOutput()
	log.Printf("%v: %s (%v)", words, strings.TrimSpace(string(said)), err)
	if err != nil {
		return status.Error(codes.Internal, errors.Join(err, errors.New(string(said))).Error())
	}
	return nil
}

func main() {
	d := &driver{}
	socket := flag.String("socket", "", "unix socket to serve on")
	clients := flag.String("clients", "", "ranges of this node's addresses, with commas between")
	flag.StringVar(&d.name, "name", "rbd.csi.ceph.com", "the driver's name")
	flag.StringVar(&d.conf, "conf", "", "ceph.conf")
	flag.StringVar(&d.keyring, "keyring", "", "keyring of client.admin")
	flag.StringVar(&d.fault, "fault", "", "file with an error to answer; while it does not exist all is well")
	flag.Parse()
	d.clients = strings.FieldsFunc(*clients, func(letter rune) bool { return letter == ',' })

	listener, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	identity.RegisterIdentityServer(server, d)
	fence.RegisterFenceControllerServer(server, d)
	log.Fatal(server.Serve(listener))
}
