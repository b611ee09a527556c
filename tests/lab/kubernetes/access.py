# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may do what at an API server on loopback, and how to reach it: the same for all clusters."""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..common import wait
from .api import Api, Object, namespace, path, path_of


class Access(ABC):
    """A cluster with a folder: `pki/ca.crt` there, and a token of each user in `tokens`."""

    folder: Path

    @abstractmethod
    def port(self) -> int:
        """The loopback port of the API server."""

    @property
    def ca(self) -> Path:
        """The certificate that the API server's one is signed with."""
        return self.folder / "pki/ca.crt"

    def token(self, user: str) -> str:
        """A user's bearer token."""
        return (self.folder / "tokens" / user).read_text()

    def api(self, user: str = "admin", port: int = 0) -> Api:
        """The API as this user sees it."""
        return Api(port or self.port(), self.ca, self.token(user))

    def kubeconfig(self, user: str = "admin", port: int = 0) -> Path:
        """A kubeconfig file (JSON is YAML, too) for this user; with a port, for a proxy there."""
        cluster = {
            "server": f"https://127.0.0.1:{port or self.port()}",
            "certificate-authority": str(self.ca),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "current-context": "lab",
        }
        target = self.folder / "kubeconfig" / (f"{user}-{port}" if port else user)
        write_secret(target, json.dumps(config, indent=1))
        return target

    def user_for(self, *manifests: Path) -> str:
        """Apply RBAC manifests; the account of the first one, with the rights that they give it,
        and no others.

        A ClusterRole without a binding is bound to it in the namespace ``default``, as an operator
        does it.
        """
        documents = [found for manifest in manifests for found in _documents(manifest)]
        self._apply(documents)
        account = next(
            found["metadata"] for found in documents if found["kind"] == "ServiceAccount"
        )
        name, home = account["name"], account["namespace"]
        admin = self.api()
        bindings = [found for found in documents if found["kind"].endswith("Binding")]
        bound = {(found["roleRef"]["kind"], found["roleRef"]["name"]) for found in bindings}
        roles = [found for found in documents if found["kind"] in ("ClusterRole", "Role")]
        spaces: dict[tuple[str, str], str] = {}
        for role in roles:
            key = (role["kind"], role["metadata"]["name"])
            if key in bound:
                continue
            spaces[key] = "default"
            binding: Object = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": key[1], "namespace": "default"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": key[0],
                    "name": key[1],
                },
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
            }
            self._apply([binding])
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86400},
        }
        answer = admin.call("POST", path("ServiceAccount", name, home) + "/token", request)
        write_secret(self.folder / "tokens" / name, answer["status"]["token"])
        user = f"system:serviceaccount:{home}:{name}"
        for role in roles:
            space = role["metadata"].get("namespace") or spaces.get(
                (role["kind"], role["metadata"]["name"])
            )
            for rule in (rule for rule in role["rules"] if "resources" in rule):
                wait(partial(self._allowed, user, rule, space), f"{name} is allowed {rule}", 20)
        return str(name)

    def apply(self, manifest: Path) -> None:
        """Have the objects of a manifest, and their namespaces, whatever was there before."""
        self._apply(_documents(manifest))

    def _apply(self, documents: Sequence[Object]) -> None:
        admin = self.api()
        spaces = {document["metadata"].get("namespace", "default") for document in documents}
        for found in [*(namespace(space) for space in sorted(spaces)), *documents]:
            where = path_of(found)
            # What others hang on is left as it is; bindings cannot be changed, and so are made
            # again.
            if found["kind"] in ("Namespace", "ServiceAccount"):
                if admin.get(where) is None:
                    admin.create(found)
                continue
            admin.delete(where)
            admin.create(found)

    def _allowed(self, user: str, rule: Object, space: str | None) -> bool:
        """The API server's authorizer has seen the binding."""
        resource, _slash, subresource = rule["resources"][-1].partition("/")
        asked = {
            "group": rule["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "verb": rule["verbs"][0],
        }
        asked |= {"namespace": space} if space else {}
        asked |= {"name": rule["resourceNames"][0]} if rule.get("resourceNames") else {}
        spec = {"user": user, "resourceAttributes": asked}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        answer = self.api().call(
            "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review
        )
        return bool(answer["status"]["allowed"])


def _documents(manifest: Path) -> list[Object]:
    """The objects of a manifest."""
    import yaml  # type: ignore[import-untyped]  # comes with Ansible; the rest of the lab does without

    found = yaml.safe_load(manifest.read_text())
    return list(found["items"]) if found["kind"] == "List" else [found]


def write_secret(target: Path, text: str) -> None:
    """At once: a process that is starting may read what is written again meanwhile."""
    target.parent.mkdir(exist_ok=True, mode=0o700)
    building = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
    with open(os.open(building, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(text)
    building.replace(target)
