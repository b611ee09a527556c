#!/usr/bin/python
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the action plugin of the same name does it all, on the controller.

DOCUMENTATION = r"""
module: compliance_report
short_description: Write the compliance report from the results of the audits
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Combines the results of the audits of many hosts, of the cluster and of Ceph into one report, as
    JSON, as a self-contained HTML page, as metrics for the textfile collector of node_exporter, and
    as JUnit.
  - Always runs on the controller, regardless of the task's host, so run it once (C(run_once)). It
    reads the results from the variables of the hosts.
  - Files are replaced atomically. The metrics are readable by all users (mode C(0644)), all other
    files only by the owner and the group (C(0640)).
requirements:
  - jmespath on the controller, with O(select) or O(exceptions).
options:
  hosts:
    description:
      - Names of the inventory's hosts in scope.
      - A host without the result of an audit is reported as not assessed, with the reason.
    type: list
    elements: str
    default: []
  result:
    description: >-
      Name of each host's variable in which C(register) stored the result of
      M(storage_ops.runbooks.node_storage_info).
    type: str
    default: compliance_node
  others:
    description:
      - Other audits.
      - Without a cluster the controls STOR-11 to STOR-17 are reported as not assessed, unless
        O(controls) leaves them out.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Its name in the report. If a host has the same name, the kind is added.
        type: str
        required: true
      kind:
        description: What it is.
        type: str
        choices:
          - cluster
          - ceph
        required: true
      result:
        description:
          - Name of the variable with the result of M(storage_ops.runbooks.cluster_storage_info) or
            M(storage_ops.runbooks.rbd_watcher_info). The name, not the value, so that the value is
            not copied.
          - A variable that is not defined, or that belongs to a skipped task, means that there is
            no result.
        type: str
        required: true
  users:
    description:
      - Name of the variable with the result of M(storage_ops.runbooks.volume_user_info), called
        with RV(question). The report then names the pods, claims and workloads that each finding
        affects.
      - Without it, only what the findings themselves name is known.
    type: str
    default: ""
  inputs:
    description:
      - Files C(report.json) of parts of a fleet, to merge into one report. Results of O(hosts) are
        then not read.
      - They must belong to the same fleet and have the same scope. Their O(controls), O(severity),
        O(select) and O(fleet) count, and, without O(exceptions), their exceptions too. Options
        given here must not differ from theirs.
      - If a node is in two of them, the newer one counts, with a warning.
      - Each of O(hosts) that is in none of them is reported as not assessed; without O(hosts), each
        slice without a report.
      - Results of the cluster in O(others) take precedence over those in the parts.
    type: list
    elements: path
    default: []
  controls:
    description: The controls in scope; all if empty.
    type: list
    elements: str
    choices:
      - STOR-01
      - STOR-02
      - STOR-03
      - STOR-04
      - STOR-05
      - STOR-06
      - STOR-07
      - STOR-08
      - STOR-09
      - STOR-10
      - STOR-11
      - STOR-12
      - STOR-13
      - STOR-14
      - STOR-15
      - STOR-16
      - STOR-17
    default: []
  severity:
    description:
      - The lowest severity that is shown and counted.
      - A control whose findings are all less severe is C(not_in_scope) there, never C(pass).
    type: str
    choices:
      - critical
      - major
      - minor
      - info
    default: info
  select:
    description:
      - A JMESPath expression over the findings; only the selected ones are shown. It must return a
        list. An expression that no finding can match, such as one with an unknown severity, is
        refused.
      - If it leaves out findings of a control on a host, the control is C(not_in_scope) there,
        never C(pass).
    type: str
    default: ""
  exceptions:
    description:
      - Accepted findings, a list of dictionaries with the keys C(select) (a JMESPath expression
        over the findings), C(owner), C(reason) and C(expires) (the last day, UTC, on which it is
        valid, as C(YYYY-MM-DD)). All are required.
      - C(expires) must be within 366 days. An expression that selects everything, or selects by
        position, is refused.
      - An expired exception accepts nothing. The report shows expired exceptions, and those that
        match nothing.
      - May be YAML or JSON in one string, as an AWX survey sends it.
    type: raw
    default: []
  folder:
    description:
      - Folder on the controller. It is created if it is missing.
      - The default with a O(fleet) and without O(inputs) is C(~/storage_compliance_FLEET).
      - A folder with the report of another O(fleet) is refused. With the default O(fleet), so is
        one whose last report has none of the O(hosts).
    type: path
    default: ~/storage_compliance
  keep:
    description: >-
      How many runs are kept in the folder C(runs), for the trend and to detect new findings.
    type: int
    default: 90
  formats:
    description: What is written.
    type: list
    elements: str
    choices:
      - json
      - html
      - prometheus
      - junit
    default:
      - json
      - html
      - prometheus
      - junit
  prometheus_file:
    description: File for the metrics, which ends in C(.prom); empty for C(storage_ops.prom) in
      O(folder).
    type: path
    default: ""
  title:
    description: The report's title.
    type: str
    default: Storage compliance
  fleet:
    description: Name of the fleet, the label C(cluster) of its metrics. Only runs of the same fleet
      are compared.
    type: str
    default: default
  slice:
    description: Number and count of this part, such as V(2/5), if a fleet is divided among jobs;
      else empty.
    type: str
    default: ""
  partial:
    description:
      - Whether this run covers only a part of the fleet or of the controls.
      - Such a run writes no metrics and is not kept for the trend, since later runs cannot be
        compared with it. If O(folder) keeps runs of the fleet, the report goes into its folder
        C(partial), and the report of the fleet stays.
      - By default it is true with O(controls), O(severity), O(select) or O(slice).
    type: bool
  started:
    description: When the run began, from RV(started) of a call with O(validate_only). Empty means
      now.
    type: str
    default: ""
  validate_only:
    description:
      - Only check the options, and that the files can be written.
      - Call it first, so that a wrong expression is found before the audits run.
    type: bool
    default: false
  ask_only:
    description:
      - Write nothing. Only return RV(question), for M(storage_ops.runbooks.volume_user_info).
    type: bool
    default: false
attributes:
  action:
    description: Has an action plugin of the same name.
    support: full
  check_mode:
    description: Can run in C(check_mode) and return the findings and planned actions of a real run
      without changing anything.
    support: none
    details: >-
      Also writes the report in check mode, since the audits run in check mode. It writes nothing
      else.
  diff_mode:
    description: Returns the findings before and after the repair when in diff mode.
    support: none
  idempotent:
    description: A second run right after a successful one finds nothing and changes nothing.
    support: none
    details: Each run is kept for the trend.
  platform:
    description: Where the module runs.
    platforms: Linux
    support: full
seealso:
  - module: storage_ops.runbooks.volume_user_info
  - module: storage_ops.runbooks.node_storage_info
  - module: storage_ops.runbooks.cluster_storage_info
"""

EXAMPLES = r"""
---
- name: Look at all nodes
  storage_ops.runbooks.node_storage_info:
  become: true
  register: compliance_node
  ignore_unreachable: true

- name: Write the report
  storage_ops.runbooks.compliance_report:
    hosts: "{{ ansible_play_hosts_all }}"
    folder: /var/lib/storage_compliance
    exceptions:
      - select: "[?control=='STOR-10' && host=='worker01']"
        owner: platform team
        reason: gets the new image in January
        expires: 2027-01-31
  run_once: true

- name: Check an expression before anything else is done
  storage_ops.runbooks.compliance_report:
    select: "[?severity=='critical' && object.node=='worker01']"
    folder: /var/lib/storage_compliance
    validate_only: true
  run_once: true
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: 3 open findings (1 critical, 2 major) on 2 of 40 hosts; 1 not assessed
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
failing:
  description: Whether a control fails on a host, or could not be assessed although it was in scope.
  returned: without O(validate_only) and O(ask_only)
  type: bool
unassessed:
  description: What was not assessed, one line for each of the most frequent reasons.
  returned: without O(validate_only) and O(ask_only)
  type: list
  elements: str
summary:
  description: Numbers only, small enough for an artifact of AWX.
  returned: without O(validate_only) and O(ask_only)
  type: dict
  contains:
    run:
      description: Name of the run.
      type: str
      returned: always
      sample: 20261122T013000Z
    cluster:
      description: As O(fleet).
      type: str
      returned: always
    hosts:
      description: >-
        How many there are (C(total)), including the cluster and Ceph, and how many were
        C(assessed), C(partly_assessed) and C(not_assessed).
      type: dict
      returned: always
    findings:
      description: >-
        Numbers of findings that are C(open) by severity, C(accepted), C(new) since the previous run
        and C(resolved) since then; and of expired exceptions (C(expired_exceptions)).
      type: dict
      returned: always
    controls:
      description: >-
        For each control, the number of hosts with C(pass), C(fail), C(accepted), C(not_applicable),
        C(not_assessed) or C(not_in_scope), and the number of C(findings). Zeros are left out.
      type: dict
      returned: always
files:
  description: What was written.
  returned: without O(validate_only) and O(ask_only)
  type: list
  elements: str
question:
  description: >-
    The C(volumes) and the C(pods), by uid, that findings name, the most severe first; at most 300
    and 500.
  returned: with O(ask_only)
  type: dict
  sample: {"volumes": ["pvc-4a4c2d8e"], "pods": ["8d3f6f0e-0b7c-4a86-9d0f-0c1e2b3a4d5e"]}
started:
  description: When this call was made, for the option of the same name.
  returned: with O(validate_only)
  type: str
  sample: "2026-11-22T01:30:00Z"
"""
