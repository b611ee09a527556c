#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: cluster_storage_info
short_description: Audit the storage of a cluster
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Runs all cluster controls in one call and changes nothing. It reads and decides with the same
    code as the modules that repair.
  - STOR-11 VolumeAttachments that no pod needs any more, STOR-12 volumes that hit the 68-character
    name collision, STOR-13 volumes that are attached and missing from their node's
    C(volumesAttached), STOR-14 VolumeAttachments without what their driver needs, STOR-15 pods that
    wait for a volume that is not attached; see M(storage_ops.runbooks.volumeattachment_repair).
  - STOR-16 volumes of a lost node that are still held, STOR-17 forgotten fences; see
    M(storage_ops.runbooks.node_fence_info).
  - Each list of the API is read once for all controls. If something cannot be read,
    RV(not_assessed) names the controls that need it. The other controls are assessed all the same,
    and the task fails.
  - If M(storage_ops.runbooks.workload_reattach) was killed and still keeps new pods off a node,
    every control that reads nodes (all but STOR-12 and STOR-14) reports this, with the command that
    finishes the move.
  - In a healthy cluster it reads the VolumeAttachments with five requests that the API server
    answers from memory. It reads pods only if something is suspicious or pods are pending. If much
    is suspicious, it follows changes of the long lists with a watch; without the right to watch it
    reads them again.
  - For stuck pods use M(storage_ops.runbooks.pod_volume_info).
requirements:
  - The rights of C(playbooks/files/rbac-audit.yml) in this collection.
options:
  controls:
    description:
      - Controls to run, at least one. Nothing is read for the others.
      - STOR-16 and STOR-17 cannot be combined with O(names), O(drivers), O(nodes) or O(namespaces),
        since they are about whole nodes.
    type: list
    elements: str
    choices:
      - STOR-11
      - STOR-12
      - STOR-13
      - STOR-14
      - STOR-15
      - STOR-16
      - STOR-17
    default:
      - STOR-11
      - STOR-12
      - STOR-13
      - STOR-14
      - STOR-15
      - STOR-16
      - STOR-17
  ceph:
    description:
      - What M(storage_ops.runbooks.rbd_watcher_info) returned as C(ceph), to compare the blocklist
        with the ledgers. It may be read without any image (STOR-17).
      - Ledgers of other Ceph clusters are not compared.
    type: dict
  ceph_problem:
    description: Why there is no O(ceph) although there should be. STOR-17 is then not assessed;
      findings that do not need Ceph are still reported.
    type: str
    default: ''
extends_documentation_fragment:
  - storage_ops.runbooks._attachments
  - storage_ops.runbooks._attachments.judging
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._fence.ledger
  - storage_ops.runbooks._fence.lost
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
seealso:
  - module: storage_ops.runbooks.volumeattachment_repair
  - module: storage_ops.runbooks.node_fence_info
  - module: storage_ops.runbooks.pod_volume_info
  - module: storage_ops.runbooks.node_storage_info
  - plugin: storage_ops.runbooks.safe_volume_name_prefix
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Audit a cluster
  storage_ops.runbooks.cluster_storage_info:
  delegate_to: localhost
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  register: audit

- name: Look only for lost nodes and forgotten fences
  storage_ops.runbooks.cluster_storage_info:
    controls:
      - STOR-16
      - STOR-17

- name: Find attachments of one node that an old version of a driver made
  storage_ops.runbooks.cluster_storage_info:
    controls:
      - STOR-14
    nodes:
      - worker01
    required_metadata:
      csi.example.com:
        - publishInfo
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: 1 finding, 1 would be repaired
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
findings:
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - For STOR-11 to STOR-15, RV(storage_ops.runbooks.volumeattachment_repair#module:findings) says
      more of them, and for STOR-16 and STOR-17
      RV(storage_ops.runbooks.node_fence_info#module:findings).
  returned: always
  type: list
  elements: dict
not_assessed:
  description: Controls that could not be assessed, or only in part, with the reason. The task fails
    then, and still returns the findings of the other controls.
  returned: when there are any
  type: dict
  sample: {"STOR-11": "cannot list volumeattachments"}
not_assessed_codes:
  description: The same controls, with a code for each as in RV(code).
  returned: when there are any
  type: dict
not_applicable:
  description: Controls that have nothing to look at, with what shows that.
  returned: when there are any
  type: dict
  sample: {"STOR-11": "there is no VolumeAttachment"}
actions:
  description:
    - What was done, or in check mode would be done, in order; empty if the module only reads.
      RV(storage_ops.runbooks.node_storage_info#module:actions) lists all keys.
    - What a repair would do is in each finding.
  returned: always
  type: list
  elements: dict
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._attachments.runbook import SCOPE, VolumeAttachments, make_options
from ..module_utils._core.engine import Audit, Part, report_parts
from ..module_utils._core.errors import BadOption, StorageOpsError
from ..module_utils._fence_audit.runbook import make_audit
from ..module_utils._fences.ledger import PLACE
from ..module_utils._kube.client import Cluster, KubeError
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal
from ..module_utils._kube.shared_lists import VOLUME_ATTACHMENTS, SharedLists

CONTROLS = [f"STOR-{number}" for number in range(11, 18)]
_ATTACHMENTS = frozenset(CONTROLS[:5])
_FENCES = frozenset(CONTROLS[5:])
_ATTACHMENTS_ONLY = ("names", "drivers", "nodes", "namespaces")
WANTED = ArgumentSpec(
    {
        "controls": {"type": "list", "elements": "str", "choices": CONTROLS, "default": CONTROLS},
        "ceph": {"type": "dict"},
        "ceph_problem": {"type": "str", "default": ""},
        "grace_seconds": {"type": "float", "default": 120.0},
    }
)


def make_parts(cluster: Cluster, params: Mapping[str, Any]) -> list[Part]:
    """The parts, in the order in which they are read."""
    wanted = frozenset(params["controls"])
    # Who reads a list alone need not keep all of it.
    shared = SharedLists(cluster) if wanted & _ATTACHMENTS and wanted & _FENCES else cluster
    if not wanted:
        raise BadOption(
            "controls is empty, so nothing would be looked at; leave "
            "the option out to run all of them"
        )
    narrowed = [name for name in _ATTACHMENTS_ONLY if params[name]]
    if narrowed and wanted & _FENCES:
        raise StorageOpsError(
            f"{', '.join(narrowed)}: STOR-16 and STOR-17 are about whole nodes, so leave them out "
            "of controls"
        )

    def attachments(controls: frozenset[str]) -> Callable[[], Audit[Any]]:
        return lambda: VolumeAttachments(
            shared, make_options({**params, "controls": sorted(controls)})
        )

    def fences() -> Audit[Any]:
        if wanted & _ATTACHMENTS:
            # Attachments before everything else: what comes to need one meanwhile is seen. Who
            # needs them is told of an error.
            with contextlib.suppress(KubeError):
                shared.list(VOLUME_ATTACHMENTS, lambda _item: None, cached=True)
        return make_audit(shared, params)

    def blocklist() -> Audit[Any]:
        raise StorageOpsError(
            f"Ceph's blocklist was not read: {params['ceph_problem']}", code="ceph_not_read"
        )

    parts = [
        # First, as its ledgers and the nodes must be of one moment; of what may be wrong with
        # attachments there are two observations.
        Part(_FENCES, fences, cluster.deadline, tells=False),
        Part(
            _ATTACHMENTS,
            attachments(wanted & _ATTACHMENTS),
            cluster.deadline,
            alone=lambda control: attachments(frozenset({control}))(),
        ),
    ]
    return [*parts, *([Part(frozenset({"STOR-17"}), blocklist)] if params["ceph_problem"] else [])]


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **WANTED.merge(PLACE, SCOPE, AUTH, BOUNDS).to_kwargs()
    )
    reveal(module)
    params: dict[str, Any] = module.params
    report_parts(
        module,
        lambda: make_parts(make_cluster(params), params),
        params["controls"],
        params["deadline"],
    )


if __name__ == "__main__":
    main()
