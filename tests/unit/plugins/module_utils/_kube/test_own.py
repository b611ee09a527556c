# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and labels of our own objects."""

from __future__ import annotations

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.own import (
    object_name,
    selector,
)


def test_long_names() -> None:
    first, second = "n" * 252 + "1", "n" * 252 + "2"
    assert object_name("a") == "storage-ops-fence-a"
    assert len(object_name(first)) <= 253 and object_name(first) != object_name(second)


def test_labels_to_select_by() -> None:
    assert selector() == "app.kubernetes.io/managed-by=storage-ops-runbooks"
    assert selector({"a": "1", "b": "2"}) == "a=1,b=2"
