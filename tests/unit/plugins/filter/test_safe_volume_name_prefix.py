# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter as a template calls it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.storage_ops.runbooks.plugins.filter.safe_volume_name_prefix import (
    FilterModule,
)

safe = FilterModule().filters()["safe_volume_name_prefix"]
DRIVER = "csi-unity.dellemc.com"


def test_one_handle_or_many() -> None:
    volume = "csivol-c6b8f2c16a-iSCSI-fnm00153800463-sv_9"
    assert (
        safe(volume, DRIVER, prefix="csivol")
        == safe([volume], driver=DRIVER, prefix="csivol")
        == "csivolxxxx"
    )


def test_the_prefix_of_the_external_provisioner_is_the_default() -> None:
    assert safe("pvc-" + "v" * 60, "csi.example.com") == "pvc"


@pytest.mark.parametrize(
    ("handles", "driver", "prefix"),
    [
        (None, DRIVER, "pvc"),
        ([1], DRIVER, "pvc"),
        ({"pvc": 1}, DRIVER, "pvc"),
        (["pvc"], None, "pvc"),
        (["pvc"], DRIVER, None),
    ],
)
def test_what_is_no_text(handles: Any, driver: Any, prefix: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="give volume handles"):
        safe(handles, driver, prefix)


def test_what_cannot_be_helped_is_an_error() -> None:
    with pytest.raises(AnsibleFilterError, match="does not contain the prefix"):
        safe(["lun-7"], DRIVER)
