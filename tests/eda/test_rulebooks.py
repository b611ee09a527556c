# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rulebooks as they are, in a real ansible-rulebook: a webhook as Alertmanager sends it, and
real events of a real API server.

What Kubernetes would say of a pod on a node without a kubelet is posted in its place.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.common import LabError, patient, wait
from lab.kubernetes import api as k8s
from support.awx_stand_in import StandIn, serve
from support.cluster import Cluster
from support.node import COLLECTION, environment

DRIVER = "csi.example.com"
FILES = Path(__file__).parents[2] / "playbooks" / "files"
TOKEN = "sent-by-alertmanager-only"
# The first task of an answer to an alert, and the last words of every run.
ANSWER, END = "PLAY [Find out what is stuck", "PLAY RECAP"
GONE = (
    'MountVolume.MountDevice failed for volume "pv-web" : rpc error: code = Internal desc = '
    "Fibre Channel volume device not found"
)


class Ended(Exception):
    """A rulebook has ended by itself, as it was to."""


class Rulebook:
    """A running ansible-rulebook."""

    def __init__(self, log: Path) -> None:
        self.log = log

    @property
    def text(self) -> str:
        """What it has said so far."""
        return self.log.read_text()

    def wait(self, words: str, count: int = 1) -> None:
        """Until it has said something so many times."""
        try:
            wait(lambda: self.text.count(words) >= count, words, 60, pause=0.2)
        except LabError as exc:
            raise LabError(f"{exc}\n{self.text}") from exc


@contextmanager
def rulebook(folder: Path, name: str, more: dict[str, str], **variables: Any) -> Iterator[Rulebook]:
    """Run one of our rulebooks until the end of the block, with more in its environment."""
    answers, inventory, log = folder / "vars.yml", folder / "inventory", folder / "log"
    answers.write_text(yaml.safe_dump({"storage_ops_stuck_seconds": 1, **variables}))
    inventory.write_text("worker01 ansible_host=127.0.0.1 ansible_port=1\n")
    settings = {
        **environment(),
        "STORAGE_OPS_TOKEN": TOKEN,
        "ANSIBLE_STDOUT_CALLBACK": "default",
        **more,
    }
    command = [
        "ansible-rulebook",
        "-r",
        f"{COLLECTION}.{name}",
        "-i",
        str(inventory),
        "-E",
        "STORAGE_OPS_TOKEN",
        "--vars",
        str(answers),
        "-v",
    ]
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=settings,
            cwd=folder,
            start_new_session=True,
        )
    running = Rulebook(log)
    try:
        running.wait("Waiting for events, ruleset")
        yield running
        assert process.poll() is None, running.text
    finally:
        # Its own session: also what it has started.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(patient(20))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(patient(20))


def audit(cluster: Cluster) -> dict[str, str]:
    """The environment of somebody who may audit the cluster."""
    return {"K8S_AUTH_KUBECONFIG": str(cluster.kubeconfig(FILES / "rbac-audit.yml"))}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def post(port: int, body: str, token: str = TOKEN) -> int:
    """The status that the webhook answers with."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patient(10))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Alertmanager/0.27.0",
        "Authorization": f"Bearer {token}",
    }
    connection.request("POST", "/alerts", body, headers)
    return connection.getresponse().status


def notification(*labels: dict[str, str], status: str = "firing", words: str = "") -> str:
    """A webhook of Alertmanager, version 4 of its data."""
    alerts = [
        {
            "status": status,
            "labels": {"alertname": "KubePodNotReady", "severity": "warning", **each},
            "annotations": {"summary": f"A pod is not ready. {words}"},
            "startsAt": "2026-11-21T20:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus:9090/graph",
            "fingerprint": f"{index:016x}",
        }
        for index, each in enumerate(labels)
    ]
    whole = {
        "version": "4",
        "groupKey": '{}:{alertname="KubePodNotReady"}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "storage",
    }
    whole |= {
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "alerts": alerts,
    }
    return json.dumps(whole)


@pytest.fixture
def stuck(control_plane_current: Cluster) -> dict[str, Any]:
    """A pod that waits for a volume, and the kubelet's words for it."""
    api = control_plane_current.api
    api.create(k8s.csi_driver(DRIVER))
    api.add_node("worker01", DRIVER)
    control_plane_current.stay_ready("worker01")
    api.add_volume("web", DRIVER, "vol-web")
    api.create(k8s.pod("web", ["web"], "worker01"))
    pod = api.find("Pod", "web")
    assert pod
    control_plane_current.wait(
        lambda: any(found["status"].get("attached") for found in api.all("VolumeAttachment")),
        "the volume is attached",
    )
    control_plane_current.wait(lambda: api.volumes_attached("worker01"), "the node is told")
    api.create(k8s.event(pod, "FailedMount", GONE))
    return pod


@pytest.mark.smoke
def test_alertmanager(
    control_plane_current: Cluster, stuck: dict[str, Any], tmp_path: Path
) -> None:
    """A webhook starts triage, once; what is no alert, nobody's, or somebody's attack starts
    nothing. The repair is the user's to allow.
    """
    port, owned = free_port(), tmp_path / "owned"
    attacks = [
        "{{ lookup('ansible.builtin.pipe', 'touch " + str(owned) + "') }}",
        f"$(touch {owned})",
        f"'; touch {owned}; '",
        "default\n- hosts: all",
    ]
    hostile = [{"namespace": words, "pod": "web"} for words in attacks] + [
        {"namespace": "default", "pod": words} for words in attacks
    ]
    with rulebook(
        tmp_path, "alertmanager", audit(control_plane_current), storage_ops_port=port
    ) as running:
        assert post(port, notification({"namespace": "default"}), token="guessed") == 401
        assert [post(port, body) for body in ("{}", "[]", '{"alerts": {"status": "firing"}}')] == [
            200,
            200,
            200,
        ]
        assert post(port, notification(*hostile)) == 200
        assert (
            post(port, notification({"namespace": "default", "pod": "web"}, status="resolved"))
            == 200
        )
        for _again in range(2):
            assert (
                post(port, notification({"namespace": "default", "pod": "web"}, words=attacks[0]))
                == 200
            )
        # They are answered one after the other, so with this one all that came before is over.
        assert post(port, notification({"namespace": "default", "pod": "last"})) == 200
        running.wait(END, count=2)
        assert running.text.count(ANSWER) == 2
        assert running.text.count("STOR-03 major: pod default/web") == 1
        assert running.text.count("an alert was dropped") == len(hostile)
        assert (
            "clean_residual_paths" in running.text
            and "TASK [Repair what was found]" not in running.text
        )
        assert TOKEN not in running.text
    assert not owned.exists()


def test_repair_where_it_was_switched_on(
    control_plane_current: Cluster, stuck: dict[str, Any], tmp_path: Path
) -> None:
    """With its controls allowed, its role runs on the node that the finding names, and not again
    for the next alert.
    """
    port = free_port()
    with rulebook(
        tmp_path,
        "alertmanager",
        audit(control_plane_current),
        storage_ops_port=port,
        storage_ops_repair="STOR-01,STOR-02,STOR-03",
    ) as running:
        # One that names nothing is about the whole cluster, where nothing is repaired.
        assert post(port, notification({})) == 200
        running.wait(END)
        assert "PLAY [Report why pods are stuck]" in running.text and ANSWER not in running.text
        for _again in range(2):
            assert post(port, notification({"namespace": "default", "pod": "web"})) == 200
        # There is no such host here, and that is how far it gets.
        running.wait("worker01                   :")
        time.sleep(2)
        # What a failed run has said is said again in an error.
        said, *errors = running.text.split("run_playbook - ERROR")
        assert (said.count(ANSWER), len(errors)) == (1, 1)
        assert "fatal: [worker01]: UNREACHABLE!" in said


def test_kubernetes_events(
    control_plane_current: Cluster, stuck: dict[str, Any], tmp_path: Path
) -> None:
    """A warning that lasts starts triage, once; one about another matter, or made
    before, does not.
    """
    cluster = control_plane_current
    words = f"{{{{ lookup('ansible.builtin.pipe', 'touch {tmp_path}/owned') }}}}"
    lasting = {
        **k8s.event(stuck, "FailedMount", words),
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "count": 7,
    }
    cluster.api.create(lasting)
    kubeconfig = str(cluster.kubeconfig(FILES / "rbac-events.yml"))
    with rulebook(
        tmp_path, "kubernetes_events", audit(cluster), storage_ops_kubeconfig=kubeconfig
    ) as running:
        running.wait("watching the warnings about pods")
        cluster.api.create(
            {
                **k8s.event(stuck, "BackOff", "another matter"),
                "firstTimestamp": "2026-01-01T00:00:00Z",
            }
        )
        for count in (8, 9):
            cluster.api.create(
                {
                    **k8s.event(stuck, "FailedMount", words, count=count),
                    "firstTimestamp": "2026-01-01T00:00:00Z",
                }
            )
        # They are answered one after the other, so with this one all that came before is over.
        last = cluster.api.create(k8s.pod("last"))
        told = k8s.event(last, "FailedMount", "the last")
        cluster.api.create({**told, "firstTimestamp": "2026-01-01T00:00:00Z", "count": 2})
        running.wait(END, count=2)
        assert running.text.count(ANSWER) == 2
        assert "pod default/web" in running.text
    assert not (tmp_path / "owned").exists()
    cluster.used("rbac-events.yml", "list events", "watch events")


def test_repair_without_a_namespace_is_refused(
    control_plane_current: Cluster, tmp_path: Path
) -> None:
    """One that is misspelt would have the pods of all namespaces repaired."""
    allowed = {"storage_ops_repair": "STOR-04", "storage_ops_namespaces": "shop"}
    with (
        suppress(Ended),
        rulebook(tmp_path, "kubernetes_events", audit(control_plane_current), **allowed) as running,
    ):
        running.wait("'storage_ops_namespace' is undefined")
        running.wait("Terminating: One of the source plugins failed")
        raise Ended


def test_job_templates(tmp_path: Path) -> None:
    """With AWX, here a stand-in for its API, the job templates get the names as they are, a limit
    that has the localhost, and no event.
    """
    awx, port = StandIn(), free_port()
    prompts = {
        f"ask_{what}_on_launch": what in ("limit", "variables")
        for what in ("limit", "labels", "inventory", "variables")
    }
    for name in ("Storage: respond", "Storage: triage"):
        awx.add("job_templates", {"name": name, **prompts})
    with serve(awx) as url:
        more = {"EDA_CONTROLLER_URL": url, "EDA_CONTROLLER_TOKEN": "c3ecre7"}
        with rulebook(
            tmp_path,
            "alertmanager_awx",
            more,
            storage_ops_port=port,
            storage_ops_stuck_seconds=90,
            storage_ops_repair=["STOR-04", "STOR-11"],
        ) as running:
            for _again in range(2):
                assert (
                    post(
                        port,
                        notification(
                            {"namespace": "1e5", "pod": "web"}, {}, {"namespace": "{{ 1 }}"}
                        ),
                    )
                    == 200
                )
            running.wait("Job Launched", count=2)
            time.sleep(2)
            assert "c3ecre7" not in running.text
    (_first, respond), (_second, triage) = sorted(awx.launched)
    # All of them texts, as the survey wants them.
    assert respond["extra_vars"] == {
        **{
            "triage_namespace": "1e5",
            "triage_pod": "web",
            "triage_node": "",
            "triage_stuck_seconds": "90",
        },
        "respond_repair": "STOR-04,STOR-11",
    }
    assert respond["limit"] == triage["limit"] == "localhost,all" and triage["extra_vars"] == {}
