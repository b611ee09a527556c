// Copyright (c) 2026 The storage_ops.runbooks contributors
// GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

//go:build programs

// Package programs names what is built from here, for "go mod tidy". Nothing compiles it.
package programs

import (
	_ "github.com/csi-addons/kubernetes-csi-addons/cmd/manager"
	_ "github.com/csi-addons/kubernetes-csi-addons/sidecar"
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "sigs.k8s.io/cri-tools/cmd/crictl"
)
