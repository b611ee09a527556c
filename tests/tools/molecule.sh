#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Runs the scenarios of a number from 0 to 29, every fourth one, or all of them. Those on a cluster made by kind are run by
# tests/kind, which has one.
set -euo pipefail

choice=$1
chosen=()
mapfile -t scenarios < <(grep --files-without-match --fixed-strings ../kind/create.yml extensions/molecule/*/molecule.yml |
    grep --invert-match /default/)
for index in "${!scenarios[@]}"; do
    if [ "$choice" = all ] || [ $((index % 4)) -eq $((choice % 4)) ]; then
        chosen+=(--scenario-name "$(basename "$(dirname "${scenarios[index]}")")")
    fi
done
printf 'scenarios of the number %s:%s\n' "$choice" "${chosen[*]//--scenario-name/}"
# A run leaves behind what it had prepared, in a state that most scenarios share, and the next one would go on there.
molecule reset --scenario-name default --scenario-name attachment_repair
molecule test "${chosen[@]}" --report
