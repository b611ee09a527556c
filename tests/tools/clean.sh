#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Stops the nodes, the control planes, the kind clusters and the Ceph clusters, then removes the cache and what tools left in the checkout. Debian packages stay.
set -euo pipefail

# shellcheck source=tests/tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

cd "$root"
PYTHONPATH=tests STORAGE_OPS_CACHE=$cache "$python" -m lab sweep
if [ -d "$cache/vms" ]; then
    PYTHONPATH=tests STORAGE_OPS_CACHE=$cache "$python" -m lab stop --all
fi
if [ -d "$cache/clusters" ]; then
    PYTHONPATH=tests STORAGE_OPS_CACHE=$cache "$python" -m lab cluster stop-all
fi
if [ -d "$cache/kind" ]; then
    PYTHONPATH=tests STORAGE_OPS_CACHE=$cache "$python" -m lab kind down-all
fi
if [ -d "$cache/ceph" ]; then
    PYTHONPATH=tests STORAGE_OPS_CACHE=$cache "$python" -m lab ceph stop-all
fi
rm -rf "$cache" .ansible .hypothesis .mypy_cache .nox .pytest_cache .ruff_cache tests/output storage_ops-runbooks-*.tar.gz
find . -name __pycache__ -prune -exec rm -rf {} +
