# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import basic

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
    def asked(self, server: Server, **params: Any) -> tuple[str, list[str]]:
        """The error of a proxy that refuses, and the logins that it got."""
        server.answers = [says({}, 403)]
        with pytest.raises(KubeError) as caught:
            make_cluster(
                {**NOTHING, "host": "https://api.example.com", "api_key": "t", **params}
            ).version()
        assert server.requests == ["CONNECT api.example.com:443"]
        return str(caught.value), [
            value for name, value in server.headers[-1] if name == "Proxy-Authorization"
        ]

    def test_a_proxy_is_asked_to_connect(self, server: Server) -> None:
        said, logins = self.asked(server, proxy=server.url)
        assert f"through the proxy {server.url}: Tunnel connection failed: 403" in said
        assert logins == []

    @pytest.mark.parametrize("where", ["option", "K8S_AUTH_PROXY", "kubeconfig", "HTTPS_PROXY"])
    def test_a_password_in_the_url_is_used_and_not_shown(
        self, server: Server, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        url = server.url.replace("//", "//u:s3%40cret@")
        params: dict[str, Any] = {}
        if where == "option":
            params["proxy"] = url
        elif where == "K8S_AUTH_PROXY":
            monkeypatch.setenv(where, url)
        else:
            pytest.importorskip("kubernetes")
            config = TestKubeconfig.config("https://api.example.com", {"token": "t"})
            if where == "kubeconfig":
                config["clusters"][0]["cluster"]["proxy-url"] = url
            else:
                monkeypatch.setenv(where, url)
            params |= {"kubeconfig": config, "context": "right", "host": None, "api_key": None}
        said, logins = self.asked(server, **params)
        assert logins == ["Basic " + base64.b64encode(b"u:s3@cret").decode()]
        assert f"through the proxy {server.url}: " in said and "cret" not in said

    def test_an_option_with_the_password_comes_first(self, server: Server) -> None:
        url = server.url.replace("//", "//u:theirs@")
        _said, logins = self.asked(server, proxy=url, proxy_headers={"proxy_basic_auth": "u:ours"})
        assert logins == ["Basic " + base64.b64encode(b"u:ours").decode()]

    @pytest.mark.parametrize(
        "params",
        [
            {"host": "https://u:s3cret@127.0.0.1:1"},
            {"host": "u:s3cret@127.0.0.1:1"},
            {"host": "https://u:s3/cret@127.0.0.1:1"},
            {"host": "https://api", "proxy": "https://u:s3cret@127.0.0.1:1"},
            {"host": "https://api", "proxy": "u:s3cret@127.0.0.1:1"},
            {"host": "https://api", "proxy": "http://u:s3cret@127.0.0.1:x"},
            {"host": "https://api", "proxy": "http://u:s3cret@127.0.0.1:1"},
        ],
    )
    def test_no_message_shows_a_password(self, params: dict[str, str]) -> None:
        with pytest.raises(StorageOpsError, match="127.0.0.1") as caught:
            make_cluster({**NOTHING, **params, "api_key": "t", "deadline": 0.5}).version()
        assert "cret" not in str(caught.value)

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

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("none", "No such file or directory"),
            ("file/below", "Not a directory"),
            ("folder", "Is a directory"),
            ("locked", "Permission denied"),
            ("locked-folder/config", "Permission denied"),
            ("none:{0}/nor-this", "No such file or directory"),
            ("file:{0}/locked", "Permission denied"),
        ],
    )
    def test_one_that_cannot_be_read(self, name: str, why: str) -> None:
        # The tests may run as root, which may read everything, and whose temporary folders of
        # pytest are closed to others.
        with tempfile.TemporaryDirectory() as folder:
            self._cannot_be_read(Path(folder), name, why)

    @staticmethod
    def _cannot_be_read(tmp_path: Path, name: str, why: str) -> None:
        (tmp_path / "file").touch()
        for folder in ("folder", "locked-folder"):
            (tmp_path / folder).mkdir()
        (tmp_path / "locked").touch(0)
        (tmp_path / "locked-folder").chmod(0)
        wrong = name.rpartition("{0}/")[2] if "file:" in name else name.partition(":")[0]
        tmp_path.chmod(0o755)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            with pytest.raises(
                StorageOpsError,
                match=f"the kubeconfig {tmp_path}/{wrong} cannot be read: {why}. The task looks "
                f"for it on .*, as user {os.geteuid()}: give the path .*delegate",
            ):
                make_cluster({**NOTHING, "kubeconfig": f"{tmp_path}/{name.format(tmp_path)}"})
        finally:
            os.seteuid(user)
            (tmp_path / "locked-folder").chmod(0o700)

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "file is empty"),
            ("hello", "it is no kubeconfig, which has clusters"),
            ("[]", "it is no kubeconfig, which has clusters"),
            ("a: [b", "line 1, column 6"),
            ("a: b", "current-context.*kubectl config get-contexts"),
            ("current-context: q\ncontexts: []", "q .*kubectl config get-contexts"),
        ],
    )
    def test_a_file_that_is_none(self, tmp_path: Path, text: str, why: str) -> None:
        file = tmp_path / "config"
        file.write_text(text)
        with pytest.raises(
            StorageOpsError, match=f"the kubeconfig {file} cannot be used: .*{why}"
        ) as caught:
            make_cluster({**NOTHING, "kubeconfig": str(file)})
        assert "\n" not in str(caught.value)

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
            "there is no ~/.kube/config: set KUBECONFIG or K8S_AUTH_KUBECONFIG, or K8S_AUTH_HOST "
            "with K8S_AUTH_API_KEY"
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
            # The name of a cluster is no secret, wherever it is.
            "exec": {"command": "aws", "args": ["s2", "c"], "env": [{"name": "E", "value": "s3"}]},
        },
    )
    config["users"].append(
        {
            "name": "admin",
            "user": {
                "client-key-data": "s4",
                "username": "a",
                "as-groups": ["g"],
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
        "a",
        "g",
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
    "given",
    [
        {"proxy": "http://u:s3cret@proxy.example.com:3128"},
        {"proxy": "http://u:s3cret-and-long@proxy.example.com:3128"},
        {"proxy": "http://s3cret@proxy.example.com:3128"},
        {"proxy": "http://u:s3c/r@et@proxy.example.com:3128"},
        {"proxy": "u:s3cret@proxy.example.com:3128"},
        {"host": "https://u:s3cret@api.example.com:6443"},
        {"host": "https://s3cret@api.example.com:6443"},
        {"host": "https://u:s3c@ret@api.example.com:6443"},
        {"host": "u:s3cret@api.example.com:6443"},
        {"kubeconfig": {"clusters": [{"cluster": {"proxy-url": "http://u:s3cret@p:1"}}]}},
        {"kubeconfig": {"clusters": [{"cluster": {"server": "http://u:s3cret@p:1"}}]}},
    ],
)
def test_no_password_of_a_url_is_in_a_log_or_a_result(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a real AnsibleModule, which writes its options to the journal and into the result."""
    said: list[str] = []
    monkeypatch.setattr(
        basic.AnsibleModule,
        "log",
        lambda _self, text, log_args=None: said.append(f"{text} {log_args}"),
    )
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode())
    # ansible-core 2.19 asks how they are written.
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    module = basic.AnsibleModule(**AUTH.to_kwargs())
    reveal(module)
    with pytest.raises(SystemExit):
        module.exit_json(msg=f"a user of {given}", user="u")
    result = capsys.readouterr().out
    for text in (*said, result):
        for part in ("s3c", "cret", "et@"):
            assert part not in text
    # What is no password is not masked, also where it is part of one.
    assert json.loads(result)["user"] == "u" and "a user of" in result


def test_the_host_of_a_proxy_is_not_masked() -> None:
    url, plain = "http://u:p@proxy:3128", "http://proxy:3128"
    for proxy, left in ((url, {"p@"}), (plain, set())):
        module = Module({proxy}, proxy=proxy, proxy_headers={"user_agent": "a"})
        module.no_log_values.add("a")
        reveal(module)
        assert module.no_log_values == left


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
