# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that cluster modules share, and the connection that is made from them.

Names, environment variables and precedence are those of kubernetes.core, so that one set of them
serves both, as well as AWX's own credential.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import ssl
import tempfile
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any, Callable, TypeVar
from urllib.parse import urlsplit

from ansible.module_utils.basic import missing_required_lib

from .._core.argspec import POSITIVE, ArgumentSpec, check_numbers
from .._core.bounded import Deadline, boottime
from .._core.errors import BadOption, StorageOpsError
from .client import Cluster, KubeError
from .endpoint import Endpoint, Headers, login_of, without_login

__all__ = ["AUTH", "BOUNDS", "ArgumentSpec", "keys_by_driver", "make_cluster", "reveal"]

AUTH = ArgumentSpec(
    {
        # raw: a path, or the parsed text of one, which holds tokens and keys.
        "kubeconfig": {"type": "raw", "no_log": True},
        "context": {"type": "str"},
        # URLs may have a password; reveal() lets the rest of them be seen.
        "host": {"type": "str", "no_log": True},
        "api_key": {"type": "str", "no_log": True},
        "username": {"type": "str"},
        "password": {"type": "str", "no_log": True},
        # No default: what is not given must not override the kubeconfig.
        "validate_certs": {"type": "bool", "aliases": ["verify_ssl"]},
        "ca_cert": {"type": "path", "aliases": ["ssl_ca_cert"]},
        "client_cert": {"type": "path", "aliases": ["cert_file"]},
        "client_key": {"type": "path", "aliases": ["key_file"]},
        "proxy": {"type": "str", "no_log": True},
        "no_proxy": {"type": "str"},
        "proxy_headers": {
            "type": "dict",
            # In the log a dictionary stands by its repr(), where parts of it are not known again.
            "no_log": True,
            "options": {
                "proxy_basic_auth": {"type": "str", "no_log": True},
                "basic_auth": {"type": "str", "no_log": True},
                "user_agent": {"type": "str"},
            },
        },
        "impersonate_user": {"type": "str"},
        "impersonate_groups": {"type": "list", "elements": "str"},
    }
)
BOUNDS = ArgumentSpec(
    {
        "request_timeout": {"type": "float", "default": 30.0},
        "deadline": {"type": "float", "default": 300.0},
    }
)

# What a kubeconfig holds that is no secret: everything else in it is masked in results.
_PLAIN = {
    "apiVersion",
    "as",
    "as-groups",
    "as-uid",
    "certificate-authority",
    "certificate-authority-data",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "cluster",
    "command",
    "current-context",
    "installHint",
    "interactiveMode",
    "kind",
    "name",
    "namespace",
    "proxy-url",
    "server",
    "tls-server-name",
    "tokenFile",
    "user",
    "username",
}
# Arguments and environment of a credential plugin: mostly names, as of the cluster, and sometimes
# a secret.
_UNSURE = {"args", "value"}
# Characters. A shorter password of a URL is masked only where a URL has it.
_MIN_ALONE = 8

T = TypeVar("T")


def make_cluster(params: Mapping[str, Any]) -> Cluster:
    """The API server that the options and the environment name. Nothing is sent yet, but a
    credential plugin may be run.

    Raises StorageOpsError for options that contradict each other, a kubeconfig that cannot be used,
    and a missing library.
    """
    check_numbers(params, {"request_timeout": POSITIVE, "deadline": POSITIVE})
    # A Lease at the API server goes on while this machine is suspended.
    deadline = Deadline(params["deadline"], boottime)
    given = _Given(params)
    return Cluster(
        _endpoint(given, deadline.cap(params["request_timeout"])),
        deadline,
        params["request_timeout"],
    )


def reveal(module: Any) -> None:
    """Let an AnsibleModule mask what is secret in ``kubeconfig`` and in URLs, and no more.

    The path of a kubeconfig, the names in it, and the host of a proxy are needed to understand a
    result.
    """
    params = module.params
    headers = params.get("proxy_headers") or {}
    logins = {name: value for name, value in headers.items() if name != "user_agent"}
    texts = _Texts()
    texts.sort({name: params.get(name) for name in ("api_key", "password")}, texts.secret)
    texts.sort(list(logins.values()), texts.secret)
    texts.sort(headers.get("user_agent"), texts.plain)
    for url in (str(params.get(name) or "") for name in ("host", "proxy")):
        # One without a scheme is refused, and may have a password all the same.
        texts.sort(url, texts.secret if "@" in url and "://" not in url else texts.plain)
    # Ansible masks every text of a no_log option wherever it occurs (remove_values of
    # ansible.module_utils.common.parameters), so a user named "v1" would hide the API version of
    # everything. A text that is not a path may be a whole kubeconfig, with its secrets.
    kubeconfig = params.get("kubeconfig")
    if not isinstance(kubeconfig, str) or _is_path(kubeconfig):
        texts.sort(kubeconfig, texts.plain)
    # A text that is both, as a password that is also a name, stays masked.
    module.no_log_values -= texts.plain - texts.secret
    module.no_log_values |= {part for text in texts.plain for part in _passwords(text)}


def _is_path(kubeconfig: str) -> bool:
    """It names a file, or several with colons between, as KUBECONFIG does; a file that does not
    exist must at least look like a path.
    """
    parts = [os.path.expanduser(part) for part in kubeconfig.split(os.pathsep) if part]
    # A kubeconfig has line breaks or braces, and a path nearly never has.
    return "\n" not in kubeconfig and all(
        os.path.exists(part) or re.fullmatch(r"/[^\s{}]*", part, re.UNICODE) for part in parts
    )


def keys_by_driver(option: str, given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """An option of lists by driver name, checked."""
    # A single text would be taken for a list of its letters.
    for driver, keys in given.items():
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise BadOption(f"{option} must give a list of keys for {driver}, not {keys!r}")
    return {driver: tuple(keys) for driver, keys in given.items()}


class _Texts:
    """The texts of options and of a kubeconfig: those to be seen, and those to be masked."""

    def __init__(self) -> None:
        self.plain: set[str] = set()
        self.secret: set[str] = set()

    def sort(self, value: Any, where: set[str]) -> None:
        """Put every text where it belongs: by its key in a dictionary, all others there."""
        if isinstance(value, dict):
            for key, inner in value.items():
                # What is not sure is not revealed, unless it is a name as well.
                named = self.plain if key in _PLAIN else self.secret
                self.sort(inner, set() if key in _UNSURE else named)
        elif isinstance(value, list):
            for inner in value:
                self.sort(inner, where)
        elif value not in (None, ""):
            where.add(str(value))


def _passwords(text: str) -> list[str]:
    """The password in a URL (without one, its user, which may be a token), as it is to be masked.
    Of a short one only where it stands in a URL: it may be part of many words.
    """
    login = re.match(
        r"[a-z][a-z0-9+.-]*://(?:[^@:]*:)?(.+)@", text, re.IGNORECASE | re.DOTALL | re.ASCII
    )
    if not login:
        return []
    alone = {login[1], login_of(text)[1]}
    return [f"{login[1]}@", *(part for part in alone if len(part) >= _MIN_ALONE)]


class _Given:
    """The options, and the environment where an option was not given."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = {}
        # The option or variable each value is from.
        self.sources: dict[str, str] = {}
        for name, spec in AUTH.options.items():
            value, source = params.get(name), f"the option {name}"
            # An AWX survey sends an empty string for a question without an answer.
            if value in (None, "", []):
                value, source = self._from_environment(name, spec)
            if value not in (None, "", []):
                self.values[name], self.sources[name] = value, source

    @staticmethod
    def _from_environment(name: str, spec: Mapping[str, Any]) -> tuple[Any, str]:
        """The value of an option by its variables, and the variable that has it."""
        if spec["type"] == "dict":
            inner = {
                key: os.environ.get(f"K8S_AUTH_{name}_{key}".upper()) for key in spec["options"]
            }
            found = {key: value for key, value in inner.items() if value}
            return found or None, f"K8S_AUTH_{name}_*".upper()
        for spelling in [name, *spec.get("aliases", [])]:
            variable = f"K8S_AUTH_{spelling}".upper()
            value = os.environ.get(variable)
            if value:
                return _read_variable(value, spec["type"]), variable
        return None, ""

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def has(self, *names: str) -> bool:
        """All of them are given."""
        return all(name in self.values for name in names)


def _read_variable(value: str, kind: str) -> Any:
    """The text of an environment variable as the type of its option."""
    # As kubernetes.core reads them: whatever is not one of these words means yes.
    if kind == "bool":
        return value.lower() not in ("0", "false", "no")
    if kind == "list":
        return [item for item in value.split(",") if item]
    return os.path.expanduser(value) if kind == "path" else value


def _endpoint(given: _Given, timeout: float) -> Endpoint:
    """Where the API server is, as kubernetes.core decides it.

    A host with credentials is enough; else a kubeconfig or a context that was named; else the
    service account of our pod; else the default kubeconfig. Single options then override what was
    found there.
    """
    # kubernetes.core, plugins/module_utils/k8s/client.py, _create_configuration.
    named = [
        name
        for name in ("kubeconfig", "context")
        if given.sources.get(name, "").startswith("the option")
    ]
    if named and given.sources.get("host", "").startswith("K8S_AUTH_"):
        raise BadOption(
            f"the option {named[0]} names one API server and K8S_AUTH_HOST another; unset "
            "K8S_AUTH_HOST, or give the option host instead"
        )
    # Then no kubeconfig is read: one that is broken or belongs to another cluster would only
    # disturb.
    if given.has("host") and (
        given.has("api_key")
        or given.has("username", "password")
        or given.has("client_cert", "client_key")
    ):
        return _make(given, "", {}, lambda: [])
    with tempfile.TemporaryDirectory() as folder:
        # The library writes keys out of a kubeconfig into files: ssl.SSLContext.load_cert_chain
        # reads nothing else.
        configuration, source = _configuration(given, folder, timeout)
        found = {
            "host": configuration.host,
            "validate_certs": configuration.verify_ssl,
            "ca_cert": configuration.ssl_ca_cert,
            "client_cert": configuration.cert_file,
            "client_key": configuration.key_file,
            "server_name": getattr(configuration, "tls_server_name", None),
            "proxy": configuration.proxy,
            "no_proxy": configuration.no_proxy,
            "proxy_headers": configuration.proxy_headers,
        }

        def headers() -> Headers:
            # Asking renews a token that is about to expire.
            settings = configuration.auth_settings().values()
            return [
                (setting["key"].title(), setting["value"])
                for setting in settings
                if setting["value"]
            ]

        renew = (
            headers
            if configuration.refresh_api_key_hook is None
            else lambda: _within(timeout, source, headers)
        )
        return _make(given, source, found, renew)


def _make(
    given: _Given, source: str, found: Mapping[str, Any], renew: Callable[[], Headers]
) -> Endpoint:
    """The endpoint: what was given, and for the rest what was found in a kubeconfig."""
    merged = {**{name: value for name, value in found.items() if value is not None}, **given.values}
    fixed, credentials = _credentials(given)
    impersonated = _impersonation(given)
    # Both are in messages, so from here on without the passwords in them.
    url = without_login(merged["host"].rstrip("/"))
    proxy = _proxy(url, merged)
    return Endpoint(
        url=url,
        source=" and ".join(text for text in (credentials, source) if text),
        # What was given counts; else what the kubeconfig has, asked again for each request.
        credentials=lambda: [*(fixed or renew()), *impersonated],
        tls=_tls(merged) if url.startswith("https:") else None,
        server_name=merged.get("server_name", ""),
        proxy=without_login(proxy),
        proxy_headers=_proxy_headers(merged.get("proxy_headers") or {}, login_of(proxy)),
    )


def _credentials(given: _Given) -> tuple[Headers, str]:
    """Headers that log in, and a description of what they hold; no header for a certificate."""
    if given.has("api_key"):
        token = [("Authorization", f"Bearer {given['api_key']}")]
        return token, f"the token of {given.sources['api_key']}"
    if given.has("username", "password"):
        pair = b64encode(f"{given['username']}:{given['password']}".encode()).decode()
        password = f"the password of {given.sources['password']}"
        return [("Authorization", f"Basic {pair}")], password
    if given.has("client_cert"):
        return [], f"the certificate of {given.sources['client_cert']}"
    return [], ""


def _impersonation(given: _Given) -> Headers:
    """Headers of kubectl's --as and --as-group (Kubernetes documentation, User impersonation)."""
    user = [("Impersonate-User", given["impersonate_user"])]
    groups = [("Impersonate-Group", group) for group in given["impersonate_groups"] or []]
    return [*(user if given.has("impersonate_user") else []), *groups]


def _proxy(url: str, merged: Mapping[str, Any]) -> str:
    """The proxy for this URL; empty without one."""
    proxy: str = merged.get("proxy") or ""
    host = urlsplit(url).hostname or ""
    return "" if proxy and _bypasses(host, merged.get("no_proxy") or "") else proxy


def _configuration(given: _Given, folder: str, timeout: float) -> tuple[Any, str]:
    """A Configuration of the library ``kubernetes``, loaded, and a description of its source."""
    try:
        import kubernetes.client
        import kubernetes.config
    except ImportError as error:
        raise StorageOpsError(
            f"{missing_required_lib('kubernetes')} For a task that is delegated to the controller, "
            "set ansible_python_interpreter to "
            "{{ ansible_playbook_python }}, the Python that Ansible itself runs on",
            code="program_missing",
        ) from error
    configuration = kubernetes.client.Configuration()
    if not given.has("kubeconfig") and not given.has("context"):
        with contextlib.suppress(kubernetes.config.ConfigException):
            kubernetes.config.load_incluster_config(client_configuration=configuration)
            return configuration, "the service account of this pod"
    default = kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION
    source = _kubeconfig_source(given, default)
    if isinstance(given["kubeconfig"], dict):
        load: Callable[..., None] = kubernetes.config.load_kube_config_from_dict
        where = {"config_dict": given["kubeconfig"]}
    else:
        load, where = kubernetes.config.load_kube_config, {"config_file": given["kubeconfig"]}
    options = {
        **where,
        "context": given["context"],
        "client_configuration": configuration,
        # A renewed token is never written back: the kubeconfig belongs to the user.
        "persist_config": False,
        "temp_file_path": folder,
    }
    with _complaints() as complaints:
        try:
            _within(timeout, source, lambda: load(**options))
        # Its own words, about a login that hangs, say more than that it cannot be used.
        except KubeError:
            raise
        except Exception as error:
            raise StorageOpsError(
                f"{source} cannot be used: {_complaint(error)}", code="api_login"
            ) from error
    # Else the first request would be anonymous, and fail with a right that seems to be missing.
    if complaints and not (configuration.api_key or configuration.cert_file):
        raise StorageOpsError(
            f"{source} gives no credentials: {'; '.join(complaints)[:500]}", code="api_login"
        )
    return configuration, source


def _kubeconfig_source(given: _Given, default: str) -> str:
    """A description of the kubeconfig; raises where it cannot be one, or where there is none."""
    kubeconfig = given["kubeconfig"]
    if isinstance(kubeconfig, str) and not _is_path(kubeconfig):
        # Not quoted: it may be the text of a kubeconfig.
        raise BadOption(
            f"{given.sources['kubeconfig']} is not the path of a file. The text of a kubeconfig is "
            "given as a dictionary: "
            "kubeconfig: \"{{ lookup('file', PATH) | from_yaml }}\""
        )
    if not kubeconfig and not any(
        os.path.exists(os.path.expanduser(part)) for part in default.split(os.pathsep)
    ):
        raise StorageOpsError(
            f"there is no {default or 'kubeconfig'}: set KUBECONFIG or K8S_AUTH_KUBECONFIG, or "
            "K8S_AUTH_HOST with K8S_AUTH_API_KEY",
            code="api_login",
        )
    if isinstance(kubeconfig, dict):
        source = "the kubeconfig given as a dictionary"
    else:
        _check_files(kubeconfig or default)
        source = f"the kubeconfig {kubeconfig or default}"
    return f"the context {given['context']} of {source}" if given.has("context") else source


def _check_files(kubeconfig: str) -> None:
    """Refuse a file that cannot be read. Of several, those count that exist, as for kubectl."""
    # The library passes over every file for which os.path.exists is false, and then misses a
    # configuration (kubernetes.config.kube_config, KubeConfigMerger).
    problems: dict[str, OSError | None] = {}
    for part in filter(None, kubeconfig.split(os.pathsep)):
        try:
            with open(os.path.expanduser(part), "rb"):
                problems[part] = None
        except OSError as error:
            problems[part] = error
    some = None in problems.values()
    for part, problem in problems.items():
        if problem and not (some and isinstance(problem, FileNotFoundError)):
            raise StorageOpsError(
                f"the kubeconfig {part} cannot be read: {problem.strerror}. The task looks for it "
                f"on {socket.gethostname()}, as user {os.geteuid()}: give the path of a file that "
                "this user can read there, or delegate the task to the host that has it",
                code="api_login",
            )


def _complaint(error: Exception) -> str:
    """What is wrong with a kubeconfig, in one line and with the next step."""
    said = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, (AttributeError, KeyError, TypeError)):
        # As for a file with a list, or with a single word.
        return f"it is no kubeconfig, which has clusters, users and contexts ({said})"
    if "context" in said:
        return f"{said}. 'kubectl config get-contexts' shows its contexts: name one by context"
    return f"{said}. 'kubectl config view' shows whether kubectl can read it"


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """What is logged as an error meanwhile."""
    # The library only logs that a credential plugin failed (kubernetes.config.kube_config,
    # _load_from_exec_plugin).
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    # On the root logger, whichever module of the library it is that complains.
    handler = Handler(logging.ERROR)
    logging.getLogger().addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger().removeHandler(handler)


def _within(seconds: float, source: str, function: Callable[[], T]) -> T:
    """``function()``, which may run a credential plugin that never ends."""
    # A thread cannot be killed; as a daemon it does not delay our exit.
    results: list[T] = []
    errors: list[Exception] = []

    def target() -> None:
        try:
            results.append(function())
        except Exception as error:  # raised again below
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise KubeError(
            f"{source} gave no credentials within {seconds:g} s: does its credential plugin wait "
            "for a login?",
            code="api_login",
        )
    return results[0]


def _tls(merged: Mapping[str, Any]) -> ssl.SSLContext:
    """A TLS context as strict as those of the API server's other clients."""
    # ssl.create_default_context() of Python 3.13 sets VERIFY_X509_STRICT, and refuses certificates
    # of clusters that kubectl accepts.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not merged.get("validate_certs", True):
        context.check_hostname = False
        # check_hostname first: ssl refuses CERT_NONE while it is on (Python,
        # SSLContext.check_hostname).
        context.verify_mode = ssl.CERT_NONE
    name = "ca_cert"
    try:
        if merged.get("ca_cert"):
            context.load_verify_locations(merged["ca_cert"])
        else:
            context.load_default_certs()
        name = "client_cert"
        if merged.get("client_cert"):
            context.load_cert_chain(merged["client_cert"], merged.get("client_key"))
    except OSError as error:
        raise StorageOpsError(
            f"{name} {merged[name]} cannot be read as PEM: {error.strerror or error}",
            code="api_login",
        ) from error
    return context


def _bypasses(host: str, no_proxy: str) -> bool:
    """``no_proxy`` excepts this host, by name, domain, address or network."""
    # As Go does, and so kubectl (golang.org/x/net/http/httpproxy, Config.NoProxy).
    for entry in filter(None, (entry.strip().lower() for entry in no_proxy.split(","))):
        with contextlib.suppress(ValueError):
            if ip_address(host) in ip_network(entry, strict=False):
                return True
        if entry == "*" or host == entry or host.endswith("." + entry.lstrip(".")):
            return True
    return False


def _proxy_headers(headers: Mapping[str, str], login: tuple[str, str]) -> dict[str, str]:
    """The options of proxy_headers as headers; what a kubeconfig gave are headers already.

    ``login``: user and password in the proxy's URL, which count where no option has them.
    """
    made = {
        name: value
        for name, value in headers.items()
        if name not in AUTH.options["proxy_headers"]["options"]
    }
    # As kubectl takes it (net/http/transport.go of Go, Transport.dialConn).
    in_url = ":".join(login) if any(login) and "Proxy-Authorization" not in made else ""
    for pair, header in (
        (headers.get("proxy_basic_auth") or in_url, "Proxy-Authorization"),
        (headers.get("basic_auth"), "Authorization"),
    ):
        if pair:
            # RFC 7617, section 2.
            made[header] = "Basic " + b64encode(pair.encode()).decode()
    if headers.get("user_agent"):
        made["User-Agent"] = headers["user_agent"]
    return made
