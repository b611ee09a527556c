# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this doc fragment is **PRIVATE** to the collection. It can have breaking changes at any
# time.

from __future__ import annotations


class ModuleDocFragment:
    """Options that several cluster modules share."""

    AUTH = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig, or several joined by V(:), or its content as a dictionary. A
        kubeconfig in a string is refused.
      - If it is not given, E(K8S_AUTH_KUBECONFIG) is used.
      - An C(exec) credential plugin in it is run, for at most O(request_timeout) seconds.
      - A renewed token is never written back, so there is no option C(persist_config) as in
        kubernetes.core.
    type: raw
  context:
    description:
      - Context of the kubeconfig. The default is its current context.
      - If it is not given, E(K8S_AUTH_CONTEXT) is used.
    type: str
  host:
    description:
      - URL of the API server, for example V(https://10.0.0.1:6443).
      - If it is not given, E(K8S_AUTH_HOST) is used.
    type: str
  api_key:
    description:
      - Token, for example of a service account.
      - If it is not given, E(K8S_AUTH_API_KEY) is used.
    type: str
  username:
    description:
      - User for basic authentication, which only a proxy in front of the API server still supports.
      - If it is not given, E(K8S_AUTH_USERNAME) is used.
    type: str
  password:
    description:
      - Password for basic authentication.
      - If it is not given, E(K8S_AUTH_PASSWORD) is used.
    type: str
  validate_certs:
    description:
      - Whether the certificate of the API server must be valid. The default comes from the
        kubeconfig, or is V(true).
      - If it is not given, E(K8S_AUTH_VERIFY_SSL) is used.
    type: bool
    aliases: [verify_ssl]
  ca_cert:
    description:
      - File with the certificate authority of the API server, in PEM. The default comes from the
        kubeconfig, or is the system's list.
      - If it is not given, E(K8S_AUTH_SSL_CA_CERT) is used.
    type: path
    aliases: [ssl_ca_cert]
  client_cert:
    description:
      - File with a client certificate, in PEM.
      - If it is not given, E(K8S_AUTH_CERT_FILE) is used.
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - File with the key of O(client_cert), in PEM.
      - If it is not given, E(K8S_AUTH_KEY_FILE) is used.
    type: path
    aliases: [key_file]
  proxy:
    description:
      - URL of an HTTP proxy, for example V(http://proxy.example.com:3128).
      - A user and a password in the URL are sent to the proxy. They are masked in results and logs.
      - If it is not given, E(K8S_AUTH_PROXY) is used.
    type: str
  no_proxy:
    description:
      - Hosts, domains, addresses and networks that are reached without O(proxy), joined by commas.
      - If it is not given, E(K8S_AUTH_NO_PROXY) is used.
    type: str
  proxy_headers:
    description: Headers for the proxy.
    type: dict
    suboptions:
      proxy_basic_auth:
        description:
          - User and password for the proxy, joined by a colon.
          - If it is not given, E(K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH) is used.
        type: str
      basic_auth:
        description:
          - User and password for the header C(Authorization), joined by a colon.
          - If it is not given, E(K8S_AUTH_PROXY_HEADERS_BASIC_AUTH) is used.
        type: str
      user_agent:
        description:
          - Value of the header C(User-Agent).
          - If it is not given, E(K8S_AUTH_PROXY_HEADERS_USER_AGENT) is used.
        type: str
  impersonate_user:
    description:
      - User to act as.
      - If it is not given, E(K8S_AUTH_IMPERSONATE_USER) is used.
    type: str
  impersonate_groups:
    description:
      - Groups to act as.
      - If it is not given, E(K8S_AUTH_IMPERSONATE_GROUPS) is used, with the groups joined by
        commas.
    type: list
    elements: str
requirements:
  - kubernetes >= 29.0.0, unless O(host) and credentials for it are given.
notes:
  - The task of a module runs where the API server can be reached, usually on the controller. There,
    set C(ansible_python_interpreter) to C({{ ansible_playbook_python }}), the Python that Ansible
    runs on and that has the library.
  - Names, environment variables and precedence of the options are the same as in the collection
    kubernetes.core, so AWX's credential type for OpenShift and Kubernetes works. O(host) with
    credentials is enough. Otherwise O(kubeconfig) or O(context) is used, or the service account of
    the pod that the task runs in, or C(~/.kube/config), and the other options override its values.
    O(kubeconfig) or O(context) together with E(K8S_AUTH_HOST) is refused, since they may name two
    clusters.
"""

    BOUNDS = r"""
options:
  request_timeout:
    description:
      - Seconds without data from the API server after which a request is aborted.
      - Requests that can safely be repeated are tried again for about 15 seconds. Once the API
        server has answered, they are tried for up to 120 seconds through an outage, but not beyond
        O(deadline).
    type: float
    default: 30
  deadline:
    description:
      - Seconds after which the run ends even if something hangs.
      - A module that changes something begins no further step with less than 30 seconds left.
    type: float
    default: 300
"""
