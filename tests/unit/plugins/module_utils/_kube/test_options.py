# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import KubeError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    _bypasses,
    keys_by_driver,
    make_cluster,
    reveal,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.server import Server, says, serve

NOTHING: dict[str, Any] = {**dict.fromkeys(AUTH.options), "request_timeout": 5.0, "deadline": 60.0}


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as running:
        running.answers = [says({"gitVersion": "v1.31.4"})]
        yield running


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in [name for name in os.environ if name.startswith(("K8S_AUTH_", "KUBERNETES_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))


def asked_with(server: Server, **params: Any) -> dict[str, list[str]]:
    """The headers of a request that is made with these options."""
    make_cluster({**NOTHING, **params}).version()
    headers: dict[str, list[str]] = {}
    for name, value in server.headers[-1]:
        headers.setdefault(name, []).append(value)
    return headers


class TestExplicit:
    def test_token(self, server: Server) -> None:
        assert asked_with(server, host=server.url + "/", api_key="secret")["Authorization"] == [
            "Bearer secret"
        ]

    def test_the_credential_type_of_awx(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in (("HOST", server.url), ("API_KEY", "secret"), ("VERIFY_SSL", "False")):
            monkeypatch.setenv(f"K8S_AUTH_{name}", value)
        assert asked_with(server)["Authorization"] == ["Bearer secret"]

    def test_an_option_comes_before_the_environment_and_an_empty_one_is_none(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("K8S_AUTH_HOST", server.url)
        monkeypatch.setenv("K8S_AUTH_API_KEY", "theirs")
        assert asked_with(server, api_key="ours", host="")["Authorization"] == ["Bearer ours"]

    def test_password(self, server: Server) -> None:
        assert asked_with(server, host=server.url, username="u", password="p")["Authorization"] == [
            "Basic " + base64.b64encode(b"u:p").decode()
        ]

    def test_impersonation(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("K8S_AUTH_IMPERSONATE_GROUPS", "a,b,")
        headers = asked_with(server, host=server.url, api_key="t", impersonate_user="jane")
        assert headers["Impersonate-User"] == ["jane"] and headers["Impersonate-Group"] == [
            "a",
            "b",
        ]

    def test_two_clusters_are_refused(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("K8S_AUTH_HOST", server.url)
        monkeypatch.setenv("K8S_AUTH_API_KEY", "t")
        with pytest.raises(
            StorageOpsError,
            match="the option context names one API server and K8S_AUTH_HOST another",
        ):
            make_cluster({**NOTHING, "context": "prod"})
        assert asked_with(server, host=server.url, context="prod")["Authorization"] == ["Bearer t"]

    @pytest.mark.parametrize("name", ["ca_cert", "client_cert"])
    def test_a_file_that_is_not_there(self, name: str) -> None:
        params = {**NOTHING, "host": "https://127.0.0.1:1", "api_key": "t", name: "/nonexistent"}
        with pytest.raises(
            StorageOpsError, match=f"{name} /nonexistent cannot be read as PEM: No such file"
        ):
            make_cluster(params)

    @pytest.mark.parametrize("name", ["request_timeout", "deadline"])
    @pytest.mark.parametrize("value", [0, -1, float("nan")])
    def test_bounds(self, name: str, value: float) -> None:
        with pytest.raises(StorageOpsError, match=f"{name} is .*; give more than 0"):
            make_cluster({**NOTHING, "host": "http://x", "api_key": "t", name: value})


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("10.0.0.1", "localhost, 10.0.0.0/8", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("11.0.0.1", "10.0.0.0/8", False),
        ("api.example.com", ".example.com", True),
        ("api.example.com", "example.com", True),
        ("api.myexample.com", "example.com", False),
        ("api.example.com", "*", True),
        ("api.example.com", "", False),
        ("fd00::1", "fd00::/8", True),
    ],
)
def test_no_proxy(host: str, no_proxy: str, expected: bool) -> None:
    assert _bypasses(host, no_proxy) is expected


class TestProxy:
    def test_a_proxy_is_asked_to_connect(self, server: Server) -> None:
        with pytest.raises(KubeError, match="Tunnel connection failed: 501"):
            make_cluster(
                {
                    **NOTHING,
                    "host": "https://api.example.com",
                    "api_key": "t",
                    "proxy": server.url,
                    "deadline": 60.0,
                }
            ).version()

    def test_not_where_it_is_excepted(self, server: Server) -> None:
        asked_with(
            server, host=server.url, api_key="t", proxy="http://127.0.0.1:1", no_proxy="127.0.0.0/8"
        )


class TestKubeconfig:
    """What only the library ``kubernetes`` does."""

    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("kubernetes")

    @staticmethod
    def config(url: str, user: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": url}},
                {"name": "wrong", "cluster": {"server": "http://127.0.0.1:1"}},
            ],
            "users": [{"name": "u", "user": user}],
            "contexts": [
                {"name": "right", "context": {"cluster": "c", "user": "u"}},
                {"name": "other", "context": {"cluster": "wrong"}},
            ],
            "current-context": "other",
        }

    @pytest.mark.parametrize("how", ["path", "dictionary", "environment", "default", "two files"])
    def test_ways_to_give_it(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        config = self.config(server.url, {"token": "from-kubeconfig"})
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(config))
        params: dict[str, Any] = {"context": "right"}
        if how == "environment":
            monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(file))
        elif how == "default":
            (tmp_path / ".kube").mkdir()
            file.rename(tmp_path / ".kube/config")
        elif how == "two files":
            (tmp_path / "empty").write_text(
                json.dumps({"clusters": [], "contexts": [], "users": []})
            )
            params["kubeconfig"] = f"{tmp_path}/empty:{file}"
        else:
            params["kubeconfig"] = str(file) if how == "path" else config
        assert asked_with(server, **params)["Authorization"] == ["Bearer from-kubeconfig"]

    def test_single_options_override_it(self, server: Server) -> None:
        config = self.config("http://127.0.0.1:1", {"token": "theirs"})
        params = {"kubeconfig": config, "context": "right", "host": server.url}
        assert asked_with(server, **params)["Authorization"] == ["Bearer theirs"]
        assert asked_with(server, **params, api_key="ours")["Authorization"] == ["Bearer ours"]

    def test_a_missing_one(self, tmp_path: Path) -> None:
        with pytest.raises(
            StorageOpsError,
            match=f"the kubeconfig {tmp_path}/none cannot be used: Invalid kube-config file",
        ):
            make_cluster({**NOTHING, "kubeconfig": f"{tmp_path}/none"})

    @pytest.mark.parametrize(
        "text",
        [
            "token: s3cret\n",
            "{token: s3cret}",
            '{"token":"s3cret"}',
            "c3MzY3JldA==",
            "missing/s3cret",
            "/a:s3cret",
        ],
    )
    @pytest.mark.parametrize("where", ["the option kubeconfig", "K8S_AUTH_KUBECONFIG"])
    def test_a_text_instead_of_a_path_is_not_quoted(
        self, monkeypatch: pytest.MonkeyPatch, text: str, where: str
    ) -> None:
        params = {**NOTHING, "kubeconfig": text} if "option" in where else NOTHING
        if params is NOTHING:
            monkeypatch.setenv("K8S_AUTH_KUBECONFIG", text)
        with pytest.raises(
            StorageOpsError, match=f"{where} is not the path of a file.*from_yaml"
        ) as caught:
            make_cluster(params)
        assert text.strip() not in str(caught.value) and "s3cret" not in str(caught.value)

    def test_a_missing_context(self) -> None:
        with pytest.raises(
            StorageOpsError,
            match="the context none of the kubeconfig given as a dictionary cannot be used: .*none",
        ):
            make_cluster({**NOTHING, "kubeconfig": self.config("http://x", {}), "context": "none"})

    def plugin(self, tmp_path: Path, script: str) -> dict[str, Any]:
        """A user whose credentials a program gives."""
        program = tmp_path / "plugin"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": str(program),
                "interactiveMode": "Never",
            }
        }

    def test_a_credential_plugin_is_asked_again_when_its_token_expires(
        self, server: Server, tmp_path: Path
    ) -> None:
        user = self.plugin(
            tmp_path,
            f"""echo x >>{tmp_path}/count
                echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status":
                    {{"token": "t'$(grep -c x {tmp_path}/count)'", "expirationTimestamp": "2020-01-01T00:00:00Z"}}}}'""",
        )
        cluster = make_cluster(
            {**NOTHING, "kubeconfig": self.config(server.url, user), "context": "right"}
        )
        cluster.get("/a")
        cluster.get("/b")
        tokens = [dict(headers)["Authorization"] for headers in server.headers]
        assert tokens == ["Bearer t2", "Bearer t3"]

    def test_a_credential_plugin_that_fails_is_named_with_its_complaint(
        self, tmp_path: Path
    ) -> None:
        user = self.plugin(tmp_path, "echo please log in first >&2; exit 3")
        with pytest.raises(
            StorageOpsError,
            match="the kubeconfig given as a dictionary gives no "
            "credentials: .*please log in first",
        ):
            make_cluster(
                {**NOTHING, "kubeconfig": self.config("http://x", user), "context": "right"}
            )

    def test_a_credential_plugin_that_hangs_is_left_behind(self, tmp_path: Path) -> None:
        user = self.plugin(tmp_path, "exec sleep 5")
        # Had it been waited for, its output would be complained of.
        with pytest.raises(KubeError, match="gave no credentials within 0.3 s"):
            make_cluster(
                {
                    **NOTHING,
                    "kubeconfig": self.config("http://x", user),
                    "context": "right",
                    "request_timeout": 0.3,
                }
            )

    def test_nothing_at_all(self) -> None:
        text = (
            "there is no ~/.kube/config: set K8S_AUTH_KUBECONFIG, or K8S_AUTH_HOST with "
            "K8S_AUTH_API_KEY"
        )
        for params in ({}, {"context": "right"}, {"host": "https://api"}):
            with pytest.raises(StorageOpsError, match=f"^{text}$"):
                make_cluster({**NOTHING, **params})


class Module:
    """What ``reveal`` needs of an AnsibleModule."""

    def __init__(self, masked: set[str], **params: Any) -> None:
        self.params, self.no_log_values = params, masked


def test_only_secrets_of_a_kubeconfig_are_masked() -> None:
    config = TestKubeconfig.config(
        "https://api",
        {
            "token": "s1",
            "exec": {"command": "aws", "args": ["s2"], "env": [{"name": "E", "value": "s3"}]},
        },
    )
    config["users"].append(
        {
            "name": "admin",
            "user": {
                "client-key-data": "s4",
                "password": "admin",
                "auth-provider": {"config": {"x": "s5"}},
            },
        }
    )
    texts = {
        "v1",
        "Config",
        "c",
        "https://api",
        "u",
        "right",
        "other",
        "s1",
        "aws",
        "s2",
        "E",
        "s3",
        "admin",
        "s4",
        "s5",
        "key",
    }
    module = Module(set(texts), kubeconfig=config, api_key="key")
    reveal(module)
    assert module.no_log_values == {"s1", "s2", "s3", "s4", "s5", "admin", "key"}


@pytest.mark.parametrize(
    "path", ["/root/.kube/config", "~/.kube/config", "/a/b:~/c", "here config"]
)
def test_the_path_of_a_kubeconfig_is_not_masked(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here config").touch()
    module = Module({path, "key"}, kubeconfig=path, api_key="key")
    reveal(module)
    assert module.no_log_values == {"key"}


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nusers: [{token: s1}]\n",
        "{apiVersion: v1, users: [{token: s1}]}",
        "not-there",
    ],
)
def test_the_text_of_a_kubeconfig_stays_masked(text: str) -> None:
    module = Module({text, "key"}, kubeconfig=text, api_key="key")
    reveal(module)
    assert module.no_log_values == {text, "key"}


@pytest.mark.parametrize("keys", ["publishInfo", [1], None, {"a": 1}])
def test_what_is_no_list_of_keys_is_refused(keys: Any) -> None:
    with pytest.raises(StorageOpsError, match="required_metadata must give a list of keys for d"):
        keys_by_driver("required_metadata", {"d": keys})
    assert keys_by_driver("x", {"d": ["a", "b"], "e": []}) == {"d": ("a", "b"), "e": ()}
