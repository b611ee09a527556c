# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Maps whose alias libdevmapper mangles: sysfs says my\\x20disk, dmsetup says my disk, and
multipathd's JSON is none at times.
"""

from __future__ import annotations

import pytest
from support.node import Node
from support.selection import variation


@pytest.mark.parametrize("alias", ["my disk", variation("dätä")])
def test_alias_that_multipath_does_not_take(node: Node, alias: str) -> None:
    """The map is found by it, and refused with the cause and the remedy, which works; other maps
    are none of its business.
    """
    wwid = node.map_of(2)[1]
    node.queue()
    node.sh("cp /etc/multipath.conf /run/before.conf")
    section = f'multipaths {{\n  multipath {{\n    wwid {wwid}\n    alias "{alias}"\n  }}\n}}\n'
    node.vm.run("cat >> /etc/multipath.conf && multipathd reconfigure", stdin=section)
    named = f"dmsetup info -c --noheadings -o uuid {node.quote(alias)}"
    node.wait(lambda: node.sh(named, check=False) == f"mpath-{wwid}", "the map has its alias")
    node.labctl("lun unmap 2")
    node.unmap(3)
    node.wait(
        lambda: node.sh(f"dmsetup status {node.quote(alias)}").count(" F ") == 2,
        "both paths failed",
    )
    for _time in range(3):
        finding = node.residual(check=True).finding(alias)
        assert finding["verdict"] == "refuse"
        assert f"do not take the alias {alias!r}" in finding["reason"]
        assert finding["evidence"]["queueing"] is True
    run = node.residual(maps=[alias])
    assert run.failed and not run.changed, run.msg
    assert f"do not take the alias {alias!r}" in run.msg
    run = node.residual()
    assert not run.failed, run.msg
    assert {outcome for _action, outcome in run.outcomes} == {"done"}
    node.gone(3)
    assert node.sh(named) == f"mpath-{wwid}"
    # The remedy.
    node.sh("cp /run/before.conf /etc/multipath.conf && multipathd reconfigure")
    name = node.map_of(2)[0]
    node.wait(
        lambda: (
            node.sh(f"dmsetup info -c --noheadings -o uuid {name}", check=False) == f"mpath-{wwid}"
        ),
        "another alias",
    )
    run = node.residual(maps=[name])
    assert not run.failed, run.msg
    # Not by the links: udev keeps those of the mangled name at times, whoever removed the map.
    state = node.state()
    assert wwid not in state["maps"]
    assert wwid not in [disk["wwid"] for disk in state["disks"].values()]
