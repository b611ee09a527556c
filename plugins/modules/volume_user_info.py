#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: volume_user_info
short_description: Find out which claims, pods and workloads use volumes
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Names the claim of each PersistentVolume, the pods that use it, and the Deployment, StatefulSet
    or other controller of each pod. It changes nothing.
  - The compliance report shows with it who is affected by a finding. Nothing is decided on its
    result, so it is read from the API server's cache, in two lists.
requirements:
  - The rights of C(playbooks/files/rbac-audit.yml) in this collection.
options:
  volumes:
    description: PersistentVolumes, by name, at most 300. A name that does not exist is left out.
    type: list
    elements: str
    default: []
  pods:
    description:
      - Pods, by uid, at most 500, as nodes know them. A pod that does not exist is left out.
      - The pods of O(volumes) need not be named.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
seealso:
  - module: storage_ops.runbooks.csi_volume_info
  - module: storage_ops.runbooks.compliance_report
"""

EXAMPLES = r"""
---
- name: Who uses this volume?
  storage_ops.runbooks.volume_user_info:
    volumes:
      - pvc-4a4c2d8e-5b1f-4c7e-9d2b-1f2f5d0f3c11
  register: users

- name: Show the workloads
  ansible.builtin.debug:
    msg: "{{ users.pods | map(attribute='owner') | unique }}"
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: "nothing to do: 1 volumes, 3 pods that use them"
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: forbidden
volumes:
  description: The volumes that exist.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the PersistentVolume.
      type: str
      returned: always
    claim:
      description: Namespace and name of its claim; empty if it has none.
      type: str
      returned: always
      sample: shop/data
    pods:
      description: How many pods use its claim, and have a node.
      type: int
      returned: always
pods:
  description:
    - The pods that were named, and of each volume the first 20 pods.
    - If they take more than 100,000 characters, some are left out, in turns of namespaces, and
      RV(findings) counts them.
  returned: success
  type: list
  elements: dict
  contains:
    uid:
      description: Uid.
      type: str
      returned: always
    namespace:
      description: Namespace.
      type: str
      returned: always
    name:
      description: Name.
      type: str
      returned: always
    node:
      description: Its node.
      type: str
      returned: always
    owner:
      description: >-
        Kind and name of its controller; of a Deployment's pod the Deployment. Empty if it has none.
      type: str
      returned: always
      sample: Deployment web
    claims:
      description: Which claims of O(volumes) it uses, as namespace/name.
      type: list
      elements: str
      returned: always
unread:
  description: How many objects could not be understood, so that they are left out.
  returned: success
  type: int
findings:
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - Only one, if RV(pods) is not complete.
  returned: always
  type: list
  elements: dict
actions:
  description: What was done, or in check mode would be done, in order; empty if the module only
    reads. RV(storage_ops.runbooks.node_storage_info#module:actions) lists all keys.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._core.engine import report
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal
from ..module_utils._kube.users import VolumeUsers

SCOPE = ArgumentSpec(
    {
        "volumes": {"type": "list", "elements": "str", "default": []},
        "pods": {"type": "list", "elements": "str", "default": []},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **SCOPE.merge(AUTH, BOUNDS).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params
    report(
        module,
        lambda: VolumeUsers(make_cluster(params), params["volumes"], params["pods"]),
        set(),
        params["deadline"],
    )


if __name__ == "__main__":
    main()
