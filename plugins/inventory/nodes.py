# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventory source: the nodes of a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nodes
short_description: The nodes of a Kubernetes cluster as hosts
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Makes each node of a cluster a host with the node's name, with the groups C(role_NAME),
    C(zone_NAME), C(driver_NAME) for each CSI driver that is registered on the node, and
    C(os_image_NAME). Characters that a name of a group cannot have become underscores, so the nodes
    with the driver C(rbd.csi.ceph.com) are the group C(driver_rbd_csi_ceph_com).
  - The name of the file must end with C(nodes.storage_ops.yml) or C(nodes.storage_ops.yaml).
  - A host has one variable, C(kubernetes_node), a dictionary with C(name), C(uid), C(boot_id),
    C(labels), C(roles), C(zone), C(drivers), C(os_image), C(kubelet_version), C(ready) and
    C(unschedulable) (booleans), C(taints) (each with C(key), C(value) and C(effect)) and
    C(created). Its texts are never evaluated as templates.
  - C(ansible_host) is the first address of O(address_types) that leads to another host. If several
    nodes claim it, it is set for none of them, with a warning. Ansible then connects by the name.
  - Root on a node can choose what the node says of itself (its address, zone, drivers, OS image and
    most labels), and so its groups, too. Leave the check of host keys on.
  - If the nodes or their drivers cannot be read, or there is no node, the source fails. Ansible
    then prints warnings, and goes on without the source, unless
    E(ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED) is V(true).
requirements:
  - The right to list nodes, and CSINodes of C(storage.k8s.io), which
    C(playbooks/files/rbac-audit.yml) in this collection has.
  - With O(connection=pod) also the Role of C(playbooks/files/node_pods/node-pods.yml), C(kubectl),
    and the collection C(kubernetes.core).
options:
  plugin:
    description: Name of this plugin.
    type: str
    required: true
    choices:
      - storage_ops.runbooks.nodes
  address_types:
    description:
      - Types of addresses of a node that can become C(ansible_host). The first one that the node
        has counts. With an empty list C(ansible_host) is never set.
    type: list
    elements: str
    choices:
      - InternalIP
      - ExternalIP
    default:
      - InternalIP
  connection:
    description:
      - V(address) sets C(ansible_host), and leaves to you how Ansible connects to it. That is ssh
        by default.
      - V(pod) is for nodes without ssh, or without Python. Ansible connects to a pod on each node,
        by the connection C(kubernetes.core.kubectl), and modules run on the node. C(ansible_host)
        is not set. C(docs/guides/nodes_without_ssh.md) in this collection describes it.
      - With V(pod), C(kubectl) on the controller has to reach the same cluster. So of the options
        that name the cluster only O(kubeconfig), as one path, and O(context) can be given here.
        Environment variables such as E(K8S_AUTH_HOST) count for both.
    type: str
    choices:
      - address
      - pod
    default: address
  pod_namespace:
    description: Namespace of the pods. Whoever may create pods there is root on all nodes.
    type: str
    default: storage-ops-nodes
  pod_daemon_set:
    description: Name of the DaemonSet whose pods are used. Other pods are not, whatever they are
      called.
    type: str
    default: storage-ops-node
  cache:
    description:
      - Toggle to enable/disable the caching of the inventory's source data, requires a cache plugin
        setup to work.
      - What is cached counts for one file and one URL of an API server.
extends_documentation_fragment:
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
seealso:
  - module: storage_ops.runbooks.node_storage_info
  - module: storage_ops.runbooks.csi_volume_info
"""

EXAMPLES = r"""
---
# nodes.storage_ops.yml, with the cluster of the default kubeconfig. All nodes with a driver:
# ansible driver_csi_example_com -i nodes.storage_ops.yml -b -m ansible.builtin.ping
plugin: storage_ops.runbooks.nodes

---
# Connect as another user, and only to what is ready; with groups by a label.
plugin: storage_ops.runbooks.nodes
context: production
address_types:
  - ExternalIP
  - InternalIP
strict: true
compose:
  ansible_user: "'ops'"
groups:
  usable: kubernetes_node.ready and not kubernetes_node.unschedulable
keyed_groups:
  - prefix: pool
    key: kubernetes_node.labels['example.com/pool'] | default('')

---
# Nodes without ssh, through the pods of playbooks/files/node_pods/node-pods.yml.
plugin: storage_ops.runbooks.nodes
connection: pod
"""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var

from ..module_utils._core.errors import BadOption, StorageOpsError
from ..module_utils._core.untrusted import shown
from ..module_utils._inventory.hosts import FORM, Host, build, read
from ..module_utils._inventory.pods import Chosen, Place, choose, connection, read_pods
from ..module_utils._kube.client import Cluster
from ..module_utils._kube.options import AUTH, BOUNDS, make_cluster

VARIABLE = "kubernetes_node"
_SUFFIXES = ("nodes.storage_ops.yml", "nodes.storage_ops.yaml")


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):  # type: ignore[misc]
    """The inventory source of this file."""

    NAME = "storage_ops.runbooks.nodes"

    def verify_file(self, path: str) -> bool:
        """The file can be read, and is named as those of this plugin."""
        return bool(super().verify_file(path)) and path.endswith(_SUFFIXES)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Add the nodes to the inventory: all of them, or none."""
        super().parse(inventory, loader, path, cache=cache)
        config = self._read_config_data(path)
        try:
            self._check_names(config)
            place = self._place()
            kubectl = self._kubectl() if place else {}
            found = self._found(path, cache, place)
            built = build(found, () if place else self.get_option("address_types"))
        except StorageOpsError as error:
            # Not "from error": ansible-core 2.19 would say the same again.
            # Whoever answered in the place of the API server may have chosen words of it.
            said = shown(f"{path}: {error} [{error.code}]")
            raise AnsibleParserError(said) from None
        chosen = choose(found["pods"], built.hosts, place) if place else Chosen({}, [])
        for warning in [*built.warnings, *chosen.warnings]:
            self.display.warning(f"{path}: {warning}")
        for host in built.hosts:
            pod = chosen.pods.get(host.name)
            self._add(host, {**connection(place, pod), **kubectl} if place else {})

    def _check_names(self, config: dict[str, Any]) -> None:
        """Refuse an option that does not exist, which Ansible passes over."""
        aliases = {name for spec in AUTH.options.values() for name in spec.get("aliases", ())}
        unknown = sorted(map(str, set(config) - set(self.get_options()) - aliases))
        if unknown:
            raise BadOption(
                f"there is no option {', '.join(unknown)}; 'ansible-doc -t inventory {self.NAME}' "
                "lists them"
            )

    def _place(self) -> Place | None:
        """Whose pods lead to the nodes; None if no pods do."""
        if self.get_option("connection") != "pod":
            return None
        return Place(self.get_option("pod_namespace"), self.get_option("pod_daemon_set"))

    def _kubectl(self) -> dict[str, str]:
        """The variables by which kubectl reaches the same cluster."""
        given = {name: self.get_option(name) for name in AUTH.options}
        given = {name: value for name, value in given.items() if value not in (None, "", [])}
        named, context = given.pop("kubeconfig", ""), given.pop("context", "")
        # Variables of hosts are no place for secrets, and kubectl takes one path by its option.
        if not isinstance(named, str) or os.pathsep in named:
            given["kubeconfig"] = named
        if given:
            raise BadOption(
                f"with connection: pod, {', '.join(sorted(given))} cannot be given to kubectl: "
                "name the cluster by context and the path of one kubeconfig, or by environment "
                "variables"
            )
        known = {"kubeconfig": os.path.expanduser(named), "context": context}
        return {f"ansible_kubectl_{name}": value for name, value in known.items() if value}

    def _found(self, path: str, cache: bool, place: Place | None) -> dict[str, Any]:
        """What was read, now or earlier."""
        shared = AUTH.merge(BOUNDS).options
        cluster = make_cluster({name: self.get_option(name) for name in shared})
        if not self.get_option("cache"):
            return self._read(cluster, place)
        self.load_cache_plugin()
        # The file alone would not do: the context of its kubeconfig may be another cluster today.
        where = hashlib.sha256(f"{cluster.url} {place}".encode()).hexdigest()
        key = f"{self.get_cache_key(path)}_{FORM}_{where}"
        if cache:
            with contextlib.suppress(KeyError):
                kept: dict[str, Any] = self._cache[key]
                return kept
        found = self._read(cluster, place)
        self._cache[key] = found
        return found

    def _read(self, cluster: Cluster, place: Place | None) -> dict[str, Any]:
        """The nodes, and the pods that lead to them."""
        return {**read(cluster), "pods": read_pods(cluster, place) if place else []}

    def _add(self, host: Host, more: Mapping[str, Any]) -> None:
        """Add one host, with these variables, and with what the options make of it."""
        inventory, strict = self.inventory, self.get_option("strict")
        inventory.add_host(host.name)
        # ansible-core before 2.19 would take any text of a variable for a template.
        variables = {"inventory_hostname": host.name, VARIABLE: wrap_var(host.known)}
        if host.address:
            variables["ansible_host"] = host.address
        variables.update(more)
        for name in variables.keys() - {"inventory_hostname"}:
            inventory.set_variable(host.name, name, variables[name])
        for group in host.groups:
            inventory.add_child(inventory.add_group(self._sanitize_group_name(group)), host.name)
        self._set_composite_vars(self.get_option("compose"), variables, host.name, strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, host.name, strict)
        self._add_host_to_keyed_groups(
            self.get_option("keyed_groups"), variables, host.name, strict
        )
