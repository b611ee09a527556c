# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a job of our templates gets from AWX, and what it does with that: on a real node, in a real
cluster, to its end or cancelled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from lab.kubernetes.api import path
from lab.kubernetes.attacher import Behaviour
from lab.kubernetes.proxy import Proxy
from support.awx_jobs import DATA, Job, Launched, load
from support.cluster import Cluster
from support.node import Node
from support.reattach import REPAIR, Workload, is_held, leases, no_trace

HUAWEI = "csi.huawei.com"
CLEAN, ATTACHMENTS = "clean residual paths", "repair VolumeAttachments"


def hosts(node: Node, **more: Any) -> dict[str, dict[str, Any]]:
    """The node as an inventory of AWX has it: the key to log in with is a credential's."""
    known = yaml.safe_load(node.vm.inventory().read_text())["all"]["hosts"]["node1"]
    kept = {
        name: value
        for name, value in known.items()
        if name not in ("ansible_ssh_private_key_file", "ansible_control_path")
    }
    return {"node1": {**kept, **QUICK, **more}}


# What no survey asks for belongs into the inventory; the node's multipathd is quick.
QUICK = {"residual_paths_observations": 2, "residual_paths_observation_seconds": 3}


def on_node(
    folder: Path, node: Node, name: str, answers: Mapping[str, str], **how: Any
) -> Launched:
    """A job with a machine credential."""
    return Launched(
        folder, name, hosts(node), answers, ssh_key=node.vm.image.ssh_key.read_text(), **how
    )


def small(job: Job) -> None:
    """What it hands to the next step of a workflow, which AWX keeps and shows."""
    assert len(json.dumps(job.artifacts)) < 10_000


def test_audit_twin_and_repair(node: Node, tmp_path: Path) -> None:
    """The report finds a residual map, the twin says what would be done and does nothing, a job
    repairs it and no other.
    """
    node.unmap(2, 3)
    (name, _wwid), before = node.map_of(2), node.shape()
    folder = tmp_path / "report"
    given = {"compliance_report_folder": str(folder), "compliance_report_fleet": "default"}
    # As the schedule starts it: no answers. The cluster is not there, and the report says so.
    audit = (
        on_node(
            tmp_path, node, "compliance", {"compliance_report_strict": "false"}, variables=given
        )
        .start()
        .end()
    )
    assert (audit.rc, audit.status) == (0, "successful"), audit.stdout
    report = json.loads((folder / "report.json").read_text())
    assert {("node1", "STOR-01", name)} <= {
        (each["host"], each["control"], each["object"]["name"]) for each in report["findings"]
    }
    assert (
        audit.artifacts["storage_compliance"]["hosts"]["assessed"] == 1 and node.shape() == before
    )
    small(audit)

    answers = {"target": "node1\n", "residual_paths_maps": f"{name}\n"}
    twin = on_node(tmp_path, node, CLEAN, answers, check=True).start().end()
    assert (twin.rc, twin.status) == (
        0,
        "successful",
    ) and f"planned: flush_map {name}" in twin.stdout, twin.stdout
    assert twin.events[-1]["event_data"]["changed"] == {"node1": 1} and node.shape() == before
    elsewhere = on_node(tmp_path, node, CLEAN, answers, limit="localhost").start().end()
    # A localhost that the inventory lacks is none of the hosts that Ansible counts.
    assert elsewhere.rc != 0 and "leaves us with no hosts to target" in elsewhere.stdout, (
        elsewhere.stdout
    )
    assert node.shape() == before
    job = on_node(tmp_path, node, CLEAN, answers, limit="node1").start().end()
    assert (job.rc, job.status) == (0, "successful"), job.stdout
    node.gone(2)
    assert node.map_of(3)[1] in node.state()["maps"]
    small(job)


def repair(cluster: Cluster, folder: Path, proxy: Proxy | None = None, **how: Any) -> Launched:
    """A job with the credential for the cluster, and with the rights that the guide asks for."""
    given = {"target": "all", "attachment_repair_reattach_missing_metadata": "true"}
    job = Launched(folder, ATTACHMENTS, {"node1": {}}, given, limit="localhost,all", **how)
    return job.credential(
        "Storage: kubeconfig", kubeconfig=cluster.kubeconfig(REPAIR, proxy).read_text()
    )


def over(cluster: Cluster, node: str) -> None:
    """The time that the run which holds this node has given itself is over."""
    past = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:15:00Z"}
    (lease,) = leases(cluster)
    held = cluster.api.find("Node", node) or {}
    for found, where in (
        (held, path("Node", node)),
        (lease, path("Lease", lease["metadata"]["name"], "storage-ops")),
    ):
        notes: dict[str, str] = found["metadata"]["annotations"]
        ((key, note),) = [(key, note) for key, note in notes.items() if "/cordon." in key]
        cluster.api.merge(
            where, {"metadata": {"annotations": {key: json.dumps({**json.loads(note), **past})}}}
        )


def test_cancelled_while_a_workload_is_moved(
    control_plane_current: Cluster, tmp_path: Path
) -> None:
    """Right after its pod was evicted: the node is held, and the next job fails, says why, and what
    frees it.
    """
    cluster = control_plane_current
    cluster.kubelets("n1", "n2", drivers=(HUAWEI,))
    cluster.attacher.behave(HUAWEI, Behaviour(metadata={"publishInfo": "{}"}))
    web = Workload(cluster, "web", driver=HUAWEI)
    web.lose_metadata()
    proxy = cluster.proxy()
    job = repair(cluster, tmp_path, proxy=proxy)

    def cancel() -> None:
        # However long the signal takes, no other request gets through.
        proxy.on("", "", reset=True)
        job.cancel()

    evicted = proxy.on("POST", r"/eviction$", times=1, after=cancel)
    ended = job.start().end()
    assert ended.status == "canceled" and evicted.matched == 1, ended.stdout
    (held,) = [found["metadata"]["name"] for found in cluster.api.all("Node") if is_held(found)]
    assert not cluster.api.all("Lease", "default")
    web.wait_ready()
    # What is held is told: a job does not look better than the world.
    again = repair(cluster, tmp_path).start().end()
    assert again.rc == 2 and f"1 left: localhost: node {held}: " in again.stdout, again.stdout
    assert "the module workload_reattach finishes it and frees the node" in again.stdout
    options: dict[str, Any] = {"namespace": "default", "claims": ["web"]}
    # Whether a job in another container lives cannot be seen, so its time has to be over.
    early = cluster.ansible("workload_reattach", user=REPAIR, **options)
    assert (
        early.failed
        and "another run is at work on these claims" in early.msg
        and " at the latest" in early.msg
    ), early.result
    over(cluster, held)
    run = cluster.ansible("workload_reattach", user=REPAIR, **options)
    assert not run.failed and ("uncordon_node", "done") in run.outcomes, run.result
    no_trace(cluster)
    last = repair(cluster, tmp_path).start().end()
    assert last.rc == 0, last.stdout


def test_two_jobs_at_once(control_plane_current: Cluster, tmp_path: Path) -> None:
    """In the middle of a repair another operator starts it too, and the nightly report begins: one
    repairs, the others tell.
    """
    cluster = control_plane_current
    cluster.kubelets("n1", "n2", drivers=(HUAWEI,))
    cluster.attacher.behave(HUAWEI, Behaviour(metadata={"publishInfo": "{}"}))
    web = Workload(cluster, "web", driver=HUAWEI)
    web.lose_metadata()
    proxy = cluster.proxy()
    # As for a disruption budget: the node is held, and the pod is still there.
    refused = proxy.on(
        "POST",
        r"/eviction$",
        status=429,
        body={"kind": "Status", "code": 429, "message": "not now"},
    )
    begun = repair(
        cluster,
        tmp_path,
        proxy=proxy,
        variables={"workload_reattach_options": {"eviction_timeout": 600}},
    ).start()
    cluster.wait(lambda: refused.matched, "the node is held", 120)
    second = repair(cluster, tmp_path).start().end()
    given = {
        "compliance_report_folder": str(tmp_path / "report"),
        "compliance_report_fleet": "default",
    }
    controls = {"compliance_report_controls": "STOR-14", "compliance_report_strict": "false"}
    night = Launched(tmp_path, "compliance", {"node1": {}}, controls, variables=given)
    nightly = (
        night.credential("Storage: kubeconfig", kubeconfig=cluster.kubeconfig(REPAIR).read_text())
        .start()
        .end()
    )
    proxy.clear()
    first = begun.end()
    assert (first.rc, first.status) == (0, "successful"), first.stdout
    assert second.rc == 2 and "another run is at work on these claims" in second.stdout, (
        second.stdout
    )
    assert nightly.rc == 0, nightly.stdout
    report = json.loads((tmp_path / "report/report.json").read_text())
    assert [each["control"] for each in report["findings"]] == ["STOR-14"], (
        report["hosts"],
        nightly.stdout,
    )
    web.wait_ready()
    assert web.attachment()["status"]["attachmentMetadata"] == {"publishInfo": "{}"}
    no_trace(cluster)


def test_a_night_in_two_slices(tmp_path: Path) -> None:
    """Each job gets its part of the inventory and writes into a folder of its own, and the step
    after them merges the two.
    """
    more = load(DATA / "templates.yml")
    basics = {
        "compliance_report_fleet": "default",
        "compliance_ceph_host": "",
        # Without systemd, STOR-10 would not be assessed.
        "compliance_report_controls": "STOR-04",
    }
    folder = {"compliance_report_folder": str(tmp_path / "shared")}
    slices = {
        **more["__awx_slice_vars"],
        "compliance_report_folder": f"{tmp_path}/shared{more['__awx_slice_folder']}",
    }
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "ansible_become": False,
    }
    for number, names in ((42, ("w1", "w3")), (43, ("w2",))):
        hosts = dict.fromkeys(names, here)
        part = (
            Launched(
                tmp_path,
                "compliance slices",
                hosts,
                {},
                variables={**basics, **slices},
                number=number,
            )
            .start()
            .end()
        )
        assert part.rc == 0, part.stdout
        assert (tmp_path / f"shared/slices/41/{number}/report.json").exists()
        small(part)
    variables, whole = {**basics, **folder}, dict.fromkeys(("w1", "w2", "w3"), here)
    # What the slices have handed on comes with it.
    artifacts = {"storage_compliance": part.artifacts["storage_compliance"]}
    merge = (
        Launched(
            tmp_path, "merge compliance slices", whole, {}, variables=variables, artifacts=artifacts
        )
        .start()
        .end()
    )
    assert merge.rc == 0, merge.stdout
    report = json.loads((tmp_path / "shared/report.json").read_text())
    status = {host["name"]: host["status"] for host in report["hosts"] if host["kind"] == "node"}
    assert status == dict.fromkeys(whole, "assessed")
    small(merge)
