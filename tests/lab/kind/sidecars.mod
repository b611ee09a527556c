// Copyright (c) 2026 The storage_ops.runbooks contributors
// GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// What the external-attacher and the external-provisioner need besides ../kubernetes/current/go.mod and more.mod: all of it is the go.mod that each is
// built with, in place of its own. So they have the Kubernetes of the nodes, and 1,660 of their 1,742 packages are compiled by the time they are built.
//
// gateway-api 1.4 is the first one that compiles with that Kubernetes (structured-merge-diff v6).

require (
	github.com/evanphx/json-patch v5.9.11+incompatible // indirect
	github.com/go-openapi/jsonpointer v0.21.2 // indirect
	github.com/go-openapi/swag v0.23.1 // indirect
	github.com/kubernetes-csi/external-snapshotter/client/v8 v8.2.0 // indirect
	github.com/miekg/dns v1.1.68 // indirect
	sigs.k8s.io/gateway-api v1.4.1 // indirect
	sigs.k8s.io/sig-storage-lib-external-provisioner/v11 v11.0.1 // indirect
)

// gateway-api asks for newer ones than Kubernetes does. All that imports these would be compiled again.
replace (
	github.com/go-openapi/jsonpointer => github.com/go-openapi/jsonpointer v0.21.0
	github.com/go-openapi/swag => github.com/go-openapi/swag v0.23.0
)
