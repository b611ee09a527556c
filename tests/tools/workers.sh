#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# How many tests on real parts run at a time here: as many as there are processors. Each has programs
# for more than one, and with more tests what waits for an emulated node gave up. Each needs up to
# 3 GB: a node, control planes, a Ceph.
set -euo pipefail

workers=$(nproc)
memory=$(awk '$1 == "MemAvailable:" { print int($2 / 1024 / 1024) }' /proc/meminfo)
[ "$workers" -le $((memory / 3)) ] || workers=$((memory / 3))
echo $((workers > 1 ? workers : 1))
