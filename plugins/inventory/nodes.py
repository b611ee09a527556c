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
"""

import contextlib
import hashlib
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var

from ..module_utils._core.errors import BadOption, StorageOpsError
from ..module_utils._inventory.hosts import FORM, Host, build, read
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
            built = build(self._found(path, cache), self.get_option("address_types"))
        except StorageOpsError as error:
            # Not "from error": ansible-core 2.19 would say the same again.
            raise AnsibleParserError(f"{path}: {error} [{error.code}]") from None
        for warning in built.warnings:
            self.display.warning(f"{path}: {warning}")
        for host in built.hosts:
            self._add(host)

    def _check_names(self, config: dict[str, Any]) -> None:
        """Refuse an option that does not exist, which Ansible passes over."""
        aliases = {name for spec in AUTH.options.values() for name in spec.get("aliases", ())}
        unknown = sorted(map(str, set(config) - set(self.get_options()) - aliases))
        if unknown:
            raise BadOption(
                f"there is no option {', '.join(unknown)}; 'ansible-doc -t inventory {self.NAME}' "
                "lists them"
            )

    def _found(self, path: str, cache: bool) -> dict[str, Any]:
        """What was read, now or earlier."""
        shared = AUTH.merge(BOUNDS).options
        cluster = make_cluster({name: self.get_option(name) for name in shared})
        if not self.get_option("cache"):
            return read(cluster)
        self.load_cache_plugin()
        # The file alone would not do: the context of its kubeconfig may be another cluster today.
        place = hashlib.sha256(cluster.url.encode()).hexdigest()
        key = f"{self.get_cache_key(path)}_{FORM}_{place}"
        if cache:
            with contextlib.suppress(KeyError):
                kept: dict[str, Any] = self._cache[key]
                return kept
        found = read(cluster)
        self._cache[key] = found
        return found

    def _add(self, host: Host) -> None:
        """Add one host, with what the options make of it."""
        inventory, strict = self.inventory, self.get_option("strict")
        inventory.add_host(host.name)
        # ansible-core before 2.19 would take any text of a variable for a template.
        variables = {"inventory_hostname": host.name, VARIABLE: wrap_var(host.known)}
        if host.address:
            variables["ansible_host"] = host.address
            inventory.set_variable(host.name, "ansible_host", host.address)
        inventory.set_variable(host.name, VARIABLE, variables[VARIABLE])
        for group in host.groups:
            inventory.add_child(inventory.add_group(self._sanitize_group_name(group)), host.name)
        self._set_composite_vars(self.get_option("compose"), variables, host.name, strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, host.name, strict)
        self._add_host_to_keyed_groups(
            self.get_option("keyed_groups"), variables, host.name, strict
        )
