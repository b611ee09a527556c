# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster as the tests use it: run our modules and playbooks against it through Ansible, and see
what became of it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lab.common import LabError, wait
from lab.kubernetes.access import Access
from lab.kubernetes.attacher import Attacher
from lab.kubernetes.controlplane import ControlPlane
from lab.kubernetes.kubelets import HEARTBEAT, HollowKubelet, KubeletStandIn
from lab.kubernetes.proxy import Proxy

from support.node import (
    COLLECTION,
    Outcome,
    environment,
    of_ansible,
    remote_environment,
)
from support.rights import account, granted, refusals, unused

T = TypeVar("T")
# Whose rights a run has: one of the lab's own, or the account that RBAC manifests make.
User = str | Path | tuple[Path, ...]
NAMESPACE = Path(__file__).resolve().parents[2] / "playbooks/files/namespace.yml"
# The interpreter that runs Ansible has what the modules need.
LOCAL = (
    "-i",
    "localhost,",
    "-c",
    "local",
    "-e",
    "ansible_python_interpreter={{ansible_playbook_python}}",
)


@dataclass(frozen=True)
class Played:
    """What a playbook came to."""

    rc: int
    text: str

    @classmethod
    def of(cls, command: list[str], settings: dict[str, str]) -> Played:
        """Run it."""
        answer = of_ansible(command, settings)
        return cls(answer.returncode, answer.stdout + answer.stderr)


class Reached:
    """Any cluster that our modules and playbooks are run against."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.api = access.api()
        access.apply(NAMESPACE)
        self._users: dict[tuple[Path, ...], str] = {}

    def ansible(
        self,
        module: str,
        check: bool = False,
        user: User = "admin",
        proxy: Proxy | None = None,
        diff: bool = False,
        **options: Any,
    ) -> Outcome:
        """Run one of our modules as an operator does ad hoc.

        A user may be RBAC manifests: just these rights.
        """
        return ad_hoc(
            module, {"kubeconfig": str(self.kubeconfig(user, proxy)), **options}, check, diff
        )

    def playbook(
        self,
        name: str,
        check: bool = False,
        *,
        user: User,
        proxy: Proxy | None = None,
        inventory: Path | None = None,
        **extra_vars: Any,
    ) -> Played:
        """Run one of our playbooks, or any by its path, as AWX does.

        Authentication is by environment, answers are extra variables. The user is the account
        that is shipped for it, unless a test says why not. Without an inventory there is no host
        but this one.
        """
        target = name if "/" in name else f"{COLLECTION}.{name}"
        command = [
            "ansible-playbook",
            target,
            *(("-i", str(inventory)) if inventory else LOCAL),
            "-e",
            json.dumps(extra_vars),
            *(["--check"] if check else []),
        ]
        settings = remote_environment() if inventory else environment()
        settings["K8S_AUTH_KUBECONFIG"] = str(self.kubeconfig(user, proxy))
        return Played.of(command, settings)

    def compliance(
        self, folder: Path, user: User, options: dict[str, Any], inventory: Path | None = None
    ) -> tuple[Played, dict[str, Any]]:
        """The run of the night with all controls of a cluster, strict; and the report of it. With
        an inventory: with those of its nodes, too.
        """
        controls = range(1 if inventory else 11, 18)
        variables: dict[str, Any] = {
            "compliance_report_folder": str(folder),
            "compliance_report_controls": "\n".join(f"STOR-{number:02}" for number in controls),
            "compliance_report_strict": "true",
            "compliance_cluster_options": json.dumps(options),
        }
        played = self.playbook("compliance", user=user, inventory=inventory, **variables)
        return played, json.loads((folder / "report.json").read_text())

    def kubeconfig(self, user: User = "admin", proxy: Proxy | None = None) -> Path:
        """A kubeconfig file for a user, or for the account of an RBAC manifest."""
        if not isinstance(user, str):
            manifests = user if isinstance(user, tuple) else (user,)
            if manifests not in self._users:
                self._users[manifests] = self._access.user_for(*manifests)
            user = self._users[manifests]
        return proxy.kubeconfig(user) if proxy else self._access.kubeconfig(user)

    def let_read(self, secret: str, namespace: str) -> None:
        """The account that repairs may read this Secret: what the README of fuse_recovery asks
        for.
        """
        name = {"name": secret, "namespace": namespace}
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": name}
        rule = {"resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]}
        user = {"kind": "ServiceAccount", "name": "storage-ops-repair", "namespace": "storage-ops"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": secret}
        self.api.create({**kind, "kind": "Role", "rules": [{"apiGroups": [""], **rule}]})
        self.api.create({**kind, "kind": "RoleBinding", "roleRef": role, "subjects": [user]})

    def wait(self, condition: Callable[[], T], what: str, seconds: float = 30) -> T:
        """Poll until something has come true."""
        return wait(condition, what, seconds)

    def attachment_uids(self) -> dict[str, str]:
        """Name and uid of every VolumeAttachment: what a run that changes nothing leaves alone."""
        return {
            found["metadata"]["name"]: found["metadata"]["uid"]
            for found in self.api.all("VolumeAttachment")
        }


class Cluster(Reached):
    """A control plane as fresh as after its start, with an attacher that serves all drivers."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self.plane = plane
        self._begun = plane.asked_so_far
        self.attacher = Attacher(self.api)
        self._ends = contextlib.ExitStack()
        self._ends.enter_context(self.attacher)

    def close(self) -> None:
        """End what runs beside the control plane."""
        self._ends.close()

    def used(self, manifest: str, *rights: str, refused: bool = False) -> None:
        """The account of an RBAC manifest has used these of its rights in this test.

        The API server's audit log says so. Every right is named by such a call somewhere, in plain
        words: tests/unit/tools/test_rights.py compares them with the manifests. ``refused``: this
        test also has the account ask for what it may not.
        """
        events = self.plane.asked(account(manifest), self._begun)
        allowed = granted(manifest)
        missing, wrong = unused([allowed[right] for right in rights], events), refusals(events)
        assert not missing, f"not used: {missing}"
        assert refused == bool(wrong), f"refused: {wrong}"

    # what is around it

    def proxy(self) -> Proxy:
        """A proxy in front of the API server, until the end of the test."""
        return self._ends.enter_context(Proxy(self.plane))

    def kubelets(
        self, *nodes: str, drivers: tuple[str, ...] = (), **options: Any
    ) -> KubeletStandIn:
        """Ready nodes (made if they are not there) with stand-ins for their kubelets, until the end
        of the test.
        """
        for name in nodes:
            if self.api.find("Node", name) is None:
                self.api.add_node(name, *drivers)
        return self._ends.enter_context(KubeletStandIn(self.api, nodes, **options))

    def stay_ready(self, *nodes: str) -> None:
        """Nodes without a kubelet are not given up, however slow the machine, until the
        test ends.
        """
        over = threading.Event()

        def renew() -> None:
            while not over.wait(HEARTBEAT):
                for name in nodes:
                    # The API server may be away for a while; that is part of some tests.
                    with contextlib.suppress(LabError):
                        self.api.renew(name)

        thread = threading.Thread(target=renew, name="leases", daemon=True)
        thread.start()
        self._ends.callback(thread.join)
        self._ends.callback(over.set)

    def hollow_kubelet(self, name: str) -> HollowKubelet:
        """A node with a real kubelet's volume manager, until the end of the test."""
        kubelet = HollowKubelet(self.plane, name)
        self._ends.callback(kubelet.stop)
        kubelet.start()
        return kubelet


def ad_hoc(
    module: str,
    options: dict[str, Any],
    check: bool = False,
    diff: bool = False,
    python: str = "",
) -> Outcome:
    """Run one of our modules on this machine. ``python``: by this interpreter."""
    command = [
        "ansible",
        "localhost",
        *LOCAL,
        "-m",
        f"{COLLECTION}.{module}",
        "-a",
        json.dumps(options),
    ]
    command += [*(["--check"] if check else []), *(["--diff"] if diff else [])]
    command += ["-e", f"ansible_python_interpreter={python}"] if python else []
    answer = of_ansible(command, environment())
    text = answer.stdout
    assert "=>" in text, text + answer.stderr
    assert "Traceback" not in text, text
    # With --diff the differences stand in front of the result.
    head, _arrow, rest = text[text.index("localhost |") :].partition("=>")
    result, _end = json.JSONDecoder().raw_decode(rest.lstrip())
    return Outcome(result, "FAILED" in head)


def fresh(plane: ControlPlane) -> Iterator[Cluster]:
    """The cluster for one test."""
    plane.reset()
    cluster = Cluster(plane)
    yield cluster
    cluster.close()
    plane.rest()
