# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How Sphinx makes the site; tests/tools/docs.sh calls it. Nothing is fetched by the build."""

from __future__ import annotations

import gc
import re
from typing import TYPE_CHECKING, Any

from docutils import nodes  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# The trees of all pages fit into memory, and looking for what is left of them takes a third of the
# build.
gc.disable()

project = "storage_ops.runbooks"
author = "The storage_ops.runbooks contributors"
html_title = "Storage runbooks"

extensions = ["myst_parser", "sphinx.ext.graphviz", "sphinx_antsibull_ext"]
graphviz_output_format = "svg"
# Guides link to headings by the names that GitHub gives them.
myst_heading_anchors = 3

html_theme = "sphinx_ansible_theme"
html_theme_options = {
    "documentation_home_url": "https://github.com/storage-ops/runbooks",
    # In place of Ansible's own links, and its advertising.
    "topbar_links": {
        "Source": "https://github.com/storage-ops/runbooks",
        "Issues": "https://github.com/storage-ops/runbooks/issues",
    },
    "show_extranav": False,
    "show_rtd_ethical_ads": False,
}
pygments_style = "ansible"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

nitpicky = True
# Other collections and ansible-core are documented elsewhere.
nitpick_ignore_regex = [
    ("ansplugin", r"(ansible|kubernetes|community)\..*"),
    ("envvar", r"ANSIBLE_.*"),
]
ANSIBLE = "https://docs.ansible.com/ansible/latest/"
ELSEWHERE = {
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "callback_plugins": "plugins/callback.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}
PLUGIN = re.compile(r"ansible_collections\.((?:ansible|kubernetes)\.\w+)\.(\w+)")


def link_elsewhere(
    _app: Sphinx, _environment: Any, node: Any, content: nodes.TextElement
) -> nodes.reference | None:
    """antsibull-docs refers to pages of Ansible's own documentation by labels, in the belief that
    they are built with these.
    """
    plugin = PLUGIN.fullmatch(node["reftarget"])
    page = (
        f"collections/{plugin[1].replace('.', '/')}/{plugin[2]}.html"
        if plugin
        else ELSEWHERE.get(node["reftarget"])
    )
    return nodes.reference("", "", content, refuri=ANSIBLE + page) if page else None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("missing-reference", link_elsewhere)
