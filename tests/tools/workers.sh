#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# How many tests on real parts run at a time here. A test waits for a third of its time, so there are
# half as many again as processors; each needs up to 3 GB: a node, control planes, a Ceph.
set -euo pipefail

processors=$(nproc)
memory=$(awk '$1 == "MemAvailable:" { print int($2 / 1024 / 1024) }' /proc/meminfo)
workers=$(((processors * 3 + 1) / 2))
[ "$workers" -le $((memory / 3)) ] || workers=$((memory / 3))
echo $((workers > 1 ? workers : 1))
