#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: csi_secret_info
short_description: Read the credentials of CSI volumes from their Secrets, within bounds
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Reads the Secrets that volumes of M(storage_ops.runbooks.csi_volume_info) name, and keeps only
    O(keys) of each. The filter P(storage_ops.runbooks.fuse_volumes#filter) joins both.
  - A tenant may write the Secret that its volume names. So each Secret is read alone, in turns of
    the namespaces of claims, and one whose credentials have more than 16,000 characters, or for
    which there is no room or no time left, is named in RV(unread). All together have at most
    200,000 characters.
  - The result holds credentials. Use it in a task with C(no_log).
requirements:
  - The right to get these Secrets. No manifest of this collection has it.
options:
  volumes:
    description: RV(storage_ops.runbooks.csi_volume_info#module:volumes), of which only C(namespace)
      and C(secret) count.
    type: list
    elements: dict
    required: true
  keys:
    description: The keys of a Secret that may be credentials. All others are dropped.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
seealso:
  - module: storage_ops.runbooks.csi_volume_info
  - module: storage_ops.runbooks.fuse_remount
"""

EXAMPLES = r"""
---
- name: Find the volumes of an S3 driver
  storage_ops.runbooks.csi_volume_info:
    provisioners: [ru.yandex.s3.csi]
  register: s3

- name: Read their credentials
  storage_ops.runbooks.csi_secret_info:
    volumes: "{{ s3.volumes }}"
    keys: [accessKeyID, secretAccessKey, endpoint]
  register: read
  no_log: true
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: "nothing to do: 2 Secrets were read, and 0 were not"
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
secrets:
  description:
    - The Secrets, in the form of the API, with C(metadata.namespace), C(metadata.name) and those of
      O(keys) that are there in C(data).
    - A Secret that does not exist has no C(data).
  returned: success
  type: list
  elements: dict
unread:
  description: The other Secrets.
  returned: success
  type: list
  elements: dict
  contains:
    secret:
      description: Its C(namespace) and C(name).
      type: dict
      returned: always
    reason:
      description: Why it was not read, in one line.
      type: str
      returned: always
findings:
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - Always empty.
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
from ..module_utils._csi_volumes.credentials import CsiSecrets, secret_references
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal

SCOPE = ArgumentSpec(
    {
        "volumes": {"type": "list", "elements": "dict", "required": True},
        # Names of keys, which Ansible would take for keys.
        "keys": {"type": "list", "elements": "str", "required": True, "no_log": False},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **SCOPE.merge(AUTH, BOUNDS).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params
    report(
        module,
        lambda: CsiSecrets(
            make_cluster(params), secret_references(params["volumes"]), params["keys"]
        ),
        set(),
        params["deadline"],
    )


if __name__ == "__main__":
    main()
