# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that is cut off from the API server writes on until it is fenced, and is then reset, as by
its operator or a watchdog. It boots while it is fenced and still cut off, so no run can know of
that boot yet.
"""

from __future__ import annotations

import pytest
from support.fencing import OUT_OF_SERVICE, Fencing
from support.kubelets import KubeletScene


@pytest.mark.variation
def test_the_node_is_reset_while_it_is_cut_off(scene: KubeletScene) -> None:
    fencing, ceph, vm = Fencing(scene), scene.storage.ceph, scene.vm()

    def boot() -> str:
        said: str = scene.node()["status"]["nodeInfo"]["bootID"]
        return said

    scene.count()
    before = boot()
    last, first = scene.fail_over(fencing.fail_over)
    assert set(ceph.blocklist()) == {f"{vm.address}:0/0"} and scene.mapped()

    vm.reboot()
    # Its disk is the same, and its kernel has forgotten the image.
    assert scene.acknowledged() == last and not scene.mapped()
    state = fencing.state()
    refused = fencing.release()
    assert refused.rc != 0 and "not Ready" in refused.text, refused.text
    assert fencing.state() == state and boot() == before

    scene.heal()
    scene.wait_back(seconds=180)
    assert boot() != before
    assert fencing.cordoned and OUT_OF_SERVICE in scene.taints()
    fencing.let_go()
    # Not one write of A has come after B's first.
    assert scene.acknowledged() == last and scene.moved_once() == first
    scene.move_back()
