# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control plane on loopback: etcd, kube-apiserver (TLS, tokens, RBAC), kube-controller-manager
and kube-scheduler.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import random
import secrets
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .. import runs
from ..common import LabError, cache_dir, patient, step, wait
from ..qemu import tail
from .access import Access, write_secret
from .api import Object
from .build import VERSIONS, Binaries, binaries, locate
from .process import Process

START_DEADLINE = 90.0
# The namespace of the collection's accounts: what they ask for is in the API server's audit log.
AUDITED = "storage-ops"
# user -> (name, groups) as the API server knows them.
USERS = {
    "admin": ("admin", "system:masters"),
    "kcm": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "nobody": ("nobody", ""),
}
SERVICES = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
# What a reset does not touch: servers' leases, which are bound to leases of etcd's own; the
# controllers' accounts and tokens, for which the controller manager of 1.20 would wait 10 s.
LEFT_ALONE = (
    b"/registry/leases/kube-system/apiserver-",
    b"/registry/masterleases/",
    b"/registry/serviceaccounts/kube-system/",
    b"/registry/secrets/kube-system/",
)


def lost_after(seconds: int) -> tuple[str, ...]:
    """The controller manager's options by which a node is lost so long after its last heartbeat,
    instead of 40 s (50 s in current versions).
    """
    return ("--node-monitor-period=1s", f"--node-monitor-grace-period={seconds}s")


class ControlPlane(Access):
    """A control plane by name and version.

    Its folder holds all it has; several run side by side.
    """

    def __init__(
        self,
        name: str,
        version: str,
        *,
        leader_elect: bool = False,
        controller_manager: bool = True,
        scheduler: bool = True,
        tied: bool = True,
        apiserver_args: Sequence[str] = (),
        controller_manager_args: Sequence[str] = (),
        kubelets: Sequence[str] = (),
    ) -> None:
        self.name, self.version, self.tied = name, version, tied
        self.number = locate(version).version
        self.folder = cache_dir() / "clusters" / f"{name}-{version}"
        self.leader_elect, self.controller_manager, self.scheduler = (
            leader_elect,
            controller_manager,
            scheduler,
        )
        self.apiserver_args, self.controller_manager_args = (
            list(apiserver_args),
            list(controller_manager_args),
        )
        # Nodes whose kubelets are users of their own, with a kubelet's rights.
        self.kubelets = tuple(kubelets)
        self.processes = {service: Process(self.folder, service) for service in SERVICES}
        self._supervisor: threading.Thread | None = None
        self._supervised = threading.Event()

    # life

    def start(self) -> None:
        """From nothing to all ready, whatever was there before."""
        programs = binaries(self.version)
        self.stop()
        runs.remove(self.folder)
        runs.claim(self.folder)
        self.folder.mkdir(parents=True, mode=0o700)
        with step(f"{self.name}: starting Kubernetes {self.number}"):
            ports = dict(
                zip(
                    ("etcd", "peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
                    free_ports(5),
                    strict=True,
                )
            )
            (self.folder / "ports.json").write_text(json.dumps(ports))
            self._make_credentials()
            self._start_etcd(programs)
            self.start_apiserver()
            # The API server makes these by itself, some of them after it has said that it is ready,
            # and again only every 10 s.
            admin = self.api()
            for space in ("default", "kube-system", "kube-public", "kube-node-lease"):
                found = partial(admin.find, "Namespace", space)
                wait(found, f"the namespace {space}", START_DEADLINE)
            wait(
                lambda: admin.find("Service", "kubernetes"),
                "the service kubernetes",
                START_DEADLINE,
            )
            (self.folder / "baseline.json").write_text(json.dumps(self._contents()))
            self._start_controllers()

    def stop(self) -> None:
        """End everything, hard: nothing here is worth a farewell.

        The folder stays, for its logs.
        """
        self.unsupervise()
        for found in self.folder.glob("*.pid"):
            Process(self.folder, found.stem).stop(signal.SIGKILL)

    def remove(self) -> None:
        """End everything, and keep nothing."""
        self.stop()
        runs.remove(self.folder)
        runs.release(self.folder)

    def rest(self) -> None:
        """End the controllers until the next reset, which would begin with that: what waits for a
        test that may never come takes no processor from others.
        """
        self.unsupervise()
        for service in ("kube-scheduler", "kube-controller-manager"):
            self.processes[service].stop(signal.SIGKILL)
        for found in self.folder.glob("hollow-*.pid"):
            Process(self.folder, found.stem).stop(signal.SIGKILL)

    def reset(self) -> None:
        """All as it was right after the start, by way of etcd: faster than a start, and controllers
        with a memory begin again.
        """
        self.rest()
        if not self.processes["etcd"].pid or not self.processes["kube-apiserver"].pid:
            self.start()
            return
        baseline: dict[str, str] = json.loads((self.folder / "baseline.json").read_text())
        present = self._contents()
        changes: list[Object] = [
            {"requestDeleteRange": {"key": key}} for key in present if key not in baseline
        ]
        changes += [
            {"requestPut": {"key": key, "value": value}}
            for key, value in baseline.items()
            if present.get(key) != value
        ]
        # etcd takes at most 128 operations at once.
        for start in range(0, len(changes), 100):
            self.etcd("txn", {"success": changes[start : start + 100]})
        self._start_controllers()

    @property
    def running(self) -> bool:
        """The API server and its etcd run."""
        return bool(self.processes["etcd"].pid and self.processes["kube-apiserver"].pid)

    @property
    def memory(self) -> dict[str, int]:
        """Resident memory of each process in MB."""
        return {service: process.memory for service, process in self.processes.items()}

    # access

    def port(self, service: str = "kube-apiserver") -> int:
        """The loopback port of a service."""
        number: int = json.loads((self.folder / "ports.json").read_text())[service]
        return number

    # parts

    def start_apiserver(self) -> None:
        """Start the API server, and wait until it is ready."""
        pki, tokens = self.folder / "pki", self.folder / "tokens.csv"
        command = [
            locate(self.version)["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{self.port('etcd')}",
            *(
                "--bind-address=127.0.0.1",
                f"--secure-port={self.port()}",
                "--advertise-address=10.0.0.1",
                "--endpoint-reconciler-type=none",
            ),
            *(
                f"--tls-cert-file={pki}/server.crt",
                f"--tls-private-key-file={pki}/server.key",
                f"--token-auth-file={tokens}",
            ),
            *(
                f"--authorization-mode={'Node,RBAC' if self.kubelets else 'RBAC'}",
                "--allow-privileged=true",
                "--service-account-issuer=https://lab.invalid",
            ),
            *(
                f"--service-account-key-file={pki}/account.pub",
                f"--service-account-signing-key-file={pki}/account.key",
            ),
            # Pods may be created before their namespace has its default account.
            *(
                "--service-cluster-ip-range=10.0.0.0/16",
                "--disable-admission-plugins=ServiceAccount",
            ),
            # This machine does not know nodes by their names.
            "--kubelet-preferred-address-types=InternalIP",
            *self._audit_arguments(),
            *self.apiserver_args,
        ]
        process = self.processes["kube-apiserver"]
        process.start(command, self.tied)
        admin = self.api()

        def ready() -> bool:
            process.check()
            try:
                return admin.request("GET", "/readyz", timeout=5)[0] == 200
            except LabError:
                return False

        _wait_ready(ready, process)

    def _audit_arguments(self) -> list[str]:
        policy = self.folder / "audit-policy.json"
        accounts = [f"system:serviceaccounts:{AUDITED}"]
        rules: list[Object] = [{"level": "Metadata", "userGroups": accounts}, {"level": "None"}]
        stages = ["RequestReceived"]
        policy.write_text(
            json.dumps(
                {
                    "apiVersion": "audit.k8s.io/v1",
                    "kind": "Policy",
                    "omitStages": stages,
                    "rules": rules,
                }
            )
        )
        # It is read from where a test has begun, so it must not begin again (megabytes).
        size = "--audit-log-maxsize=100000"
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self._audit_log}", size]

    @property
    def _audit_log(self) -> Path:
        return self.folder / "audit.log"

    @property
    def asked_so_far(self) -> int:
        """Where in the audit log is what will be asked from now on."""
        return self._audit_log.stat().st_size if self._audit_log.exists() else 0

    def asked(self, account: str, since: int = 0) -> list[Object]:
        """What a service account has asked for, as the audit log has it (audit.k8s.io/v1 Event)."""
        user = f"system:serviceaccount:{AUDITED}:{account}"
        # The last line may be half written.
        lines = self._audit_log.read_bytes()[since:].split(b"\n")[:-1]
        return [event for event in map(json.loads, lines) if event["user"]["username"] == user]

    def stop_apiserver(self, number: int = signal.SIGKILL) -> None:
        """End the API server; etcd and the controllers go on."""
        self.processes["kube-apiserver"].stop(number)

    def restart_apiserver(self) -> None:
        """As a crash and a restart would."""
        self.stop_apiserver()
        self.start_apiserver()

    def start_controller_manager(self) -> None:
        """Start the controller manager, and wait until it answers; with leader election it may not
        lead yet.
        """
        self._start_controller("kube-controller-manager", self._controller_manager_command())

    def kill_controller_manager(self, number: int = signal.SIGKILL) -> None:
        """End the controller manager; a supervised one comes back."""
        self.processes["kube-controller-manager"].stop(number)

    def restart_controller_manager(self) -> None:
        """End it and start it again."""
        self.kill_controller_manager()
        self.start_controller_manager()

    def supervise(self) -> None:
        """Start the controller manager again whenever it ends, as a kubelet does with a
        static pod.
        """
        process = self.processes["kube-controller-manager"]
        self._supervised.set()

        def watch() -> None:
            while self._supervised.is_set():
                if process.pid is None:
                    with contextlib.suppress(LabError):
                        process.start(self._controller_manager_command(), self.tied)
                time.sleep(0.2)

        self._supervisor = threading.Thread(target=watch, daemon=True)
        self._supervisor.start()

    def unsupervise(self) -> None:
        """No longer."""
        self._supervised.clear()
        if self._supervisor:
            self._supervisor.join()
            self._supervisor = None

    def log(self, service: str = "kube-controller-manager") -> str:
        """What a service has logged."""
        return self.processes[service].log.read_text(errors="replace")

    def etcd(self, operation: str, body: Object) -> dict[str, Any]:
        """One request to etcd's gateway (keys and values in base64)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port("etcd"), timeout=patient(60))
        try:
            connection.request("POST", f"/v3/kv/{operation}", json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise LabError(f"etcd refused {operation}: {text[:300].decode(errors='replace')}")
        found: dict[str, Any] = json.loads(text)
        return found

    def _contents(self) -> dict[str, str]:
        """Every key with its value, both as etcd's gateway has them."""
        answer = self.etcd(
            "range", {"key": _base64("/registry/"), "range_end": _base64("/registry0")}
        )
        return {
            entry["key"]: entry["value"]
            for entry in answer.get("kvs", [])
            if not base64.b64decode(entry["key"]).startswith(LEFT_ALONE)
        }

    def _start_etcd(self, programs: Binaries) -> None:
        client, peer = (f"http://127.0.0.1:{self.port(service)}" for service in ("etcd", "peer"))
        command = [
            *(programs["etcd"], "--name=lab", f"--data-dir={self.folder}/etcd", "--log-level=warn"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=lab={peer}",
            ),
            # After a power loss nobody wants this data, and without fsync a busy disk does not slow
            # the tests down.
            *("--unsafe-no-fsync", f"--quota-backend-bytes={8 << 30}", "--snapshot-count=50000"),
        ]
        process = self.processes["etcd"]
        process.start(command, self.tied)

        def ready() -> bool:
            process.check()
            try:
                return "header" in self.etcd("range", {"key": _base64("/")})
            except (LabError, OSError, http.client.HTTPException):
                return False

        _wait_ready(ready, process)

    def _controller_manager_command(self) -> list[str]:
        return [
            *(
                locate(self.version)["kube-controller-manager"],
                f"--kubeconfig={self.kubeconfig('kcm')}",
                "--bind-address=127.0.0.1",
            ),
            f"--secure-port={self.port('kube-controller-manager')}",
            *(
                "--use-service-account-credentials=true",
                f"--service-account-private-key-file={self.folder}/pki/account.key",
            ),
            # A short lease, so that tests of a change of leader are no longer than they must be;
            # the defaults, by the way.
            *(
                f"--leader-elect={str(self.leader_elect).lower()}",
                "--leader-elect-lease-duration=15s",
            ),
            *(
                "--leader-elect-renew-deadline=10s",
                "--leader-elect-retry-period=2s",
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
            ),
            # Else a claim is bound after up to 26 s.
            *(
                f"--root-ca-file={self.ca}",
                "--pvclaimbinder-sync-period=1s",
                "--v=2",
                *self._insecure_port_off(),
            ),
            *self.controller_manager_args,
        ]

    def _scheduler_command(self) -> list[str]:
        version = "v1beta1" if self.number.startswith("1.20.") else "v1"
        config = {
            "kind": "KubeSchedulerConfiguration",
            "apiVersion": f"kubescheduler.config.k8s.io/{version}",
            "clientConnection": {"kubeconfig": str(self.kubeconfig("scheduler"))},
            "leaderElection": {"leaderElect": False},
            # A pod that did not fit is tried again soon.
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 2,
        }
        if self.number.startswith("1.20."):
            # With a configuration file --port=0 says nothing, and 10251 can be had only once.
            config |= dict.fromkeys(
                ("healthzBindAddress", "metricsBindAddress"), f"127.0.0.1:{free_ports(1)[0]}"
            )
        target = self.folder / "scheduler.json"
        target.write_text(json.dumps(config))
        port = self.port("kube-scheduler")
        program = locate(self.version)["kube-scheduler"]
        return [
            program,
            f"--config={target}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--v=2",
            *self._insecure_port_off(),
        ]

    def _insecure_port_off(self) -> list[str]:
        return ["--port=0"] if self.number.startswith("1.20.") else []

    def _start_controllers(self) -> None:
        if self.scheduler:
            self.processes["kube-scheduler"].start(self._scheduler_command(), self.tied)
        if self.controller_manager:
            self.start_controller_manager()
            # The attach-detach controller among them has begun when the first account has been
            # made.
            admin = self.api()
            wait(
                lambda: admin.find("ServiceAccount", "default"),
                "the controllers at work",
                START_DEADLINE,
            )

    def _start_controller(self, service: str, command: Sequence[str]) -> None:
        process = self.processes[service]
        process.start(command, self.tied)
        context = ssl.create_default_context()
        # Its certificate is self-made at every start, and this asks for nothing but its health.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        def ready() -> bool:
            process.check()
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port(service), context=context, timeout=patient(5)
            )
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status == 200
            except OSError:
                return False
            finally:
                connection.close()

        _wait_ready(ready, process)

    def _make_credentials(self) -> None:
        """An authority, a server's certificate for loopback, the key for service accounts' tokens,
        users' tokens.
        """
        pki = self.folder / "pki"
        pki.mkdir(mode=0o700)
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        (pki / "openssl.cnf").write_text(OPENSSL)
        request = ["req", "-config", "openssl.cnf", *new_key]
        _openssl(
            pki,
            *request,
            "-x509",
            "-days",
            "3650",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
            "-subj",
            "/CN=lab",
            "-extensions",
            "authority",
        )
        _openssl(
            pki,
            *request,
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
            "-subj",
            "/CN=kube-apiserver",
        )
        sign = [
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "3650",
        ]
        _openssl(
            pki, *sign, "-out", "server.crt", "-extfile", "openssl.cnf", "-extensions", "server"
        )
        _openssl(pki, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "account.key")
        _openssl(pki, "ec", "-in", "account.key", "-pubout", "-out", "account.pub")
        rows = []
        nodes = {name: (f"system:node:{name}", "system:nodes") for name in self.kubelets}
        for user, (name, groups) in {**USERS, **nodes}.items():
            token = secrets.token_hex(16)
            write_secret(self.folder / "tokens" / user, token)
            rows.append(f'{token},{name},{user},"{groups}"\n')
        write_secret(self.folder / "tokens.csv", "".join(rows))


OPENSSL = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1, DNS:localhost, DNS:kubernetes, DNS:kubernetes.default
"""


def _openssl(folder: Path, *arguments: str) -> None:
    answer = subprocess.run(
        ["openssl", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    if answer.returncode:
        raise LabError(f"openssl {arguments[0]} failed: {answer.stderr}")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def free_ports(count: int) -> list[int]:
    """Ports below those that the kernel gives to outgoing connections, so that none takes them
    before they are used.
    """
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", random.randrange(18000, 32000)))
                ports.append(probe.getsockname()[1])
        return ports


def _wait_ready(ready: Any, process: Process) -> None:
    try:
        wait(ready, f"{process.name} ready", START_DEADLINE)
    except LabError as exc:
        raise LabError(f"{exc}\n{tail(process.log)}") from exc


def existing_planes() -> Iterator[ControlPlane]:
    """The control planes that have a folder."""
    for found in sorted((cache_dir() / "clusters").glob("*/ports.json")):
        for version in VERSIONS:
            if found.parent.name.endswith(f"-{version}"):
                yield ControlPlane(
                    found.parent.name.removesuffix(f"-{version}"), version, tied=False
                )
