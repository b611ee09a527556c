# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Maps whose alias libdevmapper mangles: sysfs says my\\x20disk, dmsetup says my disk, and multipathd's JSON is none at times."""

from __future__ import annotations

import pytest
from node import Node


@pytest.mark.parametrize("alias", ["my disk", "dätä"])
def test_aliases_that_are_mangled(node: Node, alias: str) -> None:
    """A map that queues is found by its name, its queueing is seen, and it goes."""
    wwid = node.map_of(2)[1]
    node.queue()
    section = f'multipaths {{\n  multipath {{\n    wwid {wwid}\n    alias "{alias}"\n  }}\n}}\n'
    node.vm.run("cat >> /etc/multipath.conf && multipathd reconfigure", stdin=section)
    node.wait(
        lambda: node.sh(f"dmsetup info -c --noheadings -o uuid {node.quote(alias)}", check=False) == f"mpath-{wwid}",
        "the map has its alias",
    )
    node.labctl("lun unmap 2")
    node.wait(lambda: node.sh(f"dmsetup status {node.quote(alias)}").count(" F ") == 2, "both paths failed")
    check = node.residual(check=True, maps=[alias])
    assert check.finding(alias)["verdict"] == "repair", check.finding(alias)
    assert check.finding(alias)["evidence"]["queueing"] is True
    run = node.residual(maps=[alias])
    assert not run.failed, run.msg
    assert run.outcomes == [("disable_queueing", "done"), ("flush_map", "done"), ("delete_path", "done"), ("delete_path", "done")]
    assert f"mpath-{wwid}" not in node.sh("dmsetup info -c --noheadings -o uuid")
    assert wwid not in node.sh("ls -l /dev/disk/by-id")
    assert node.residual(maps=[alias]).findings == []
