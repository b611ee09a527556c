#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The number from 0 to 29 that the commit's hash chooses: which of the tests that CI takes in turn run.
set -euo pipefail

hash=$(git rev-parse HEAD 2>/dev/null || echo 0)
number=0
while read -r -n 1 digit; do
    number=$(((number * 16 + 16#$digit) % 30))
done < <(printf %s "$hash")
echo "$number"
