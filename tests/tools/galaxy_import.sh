#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Builds the collection and imports it as Galaxy would (called through run.sh). A warning is a failure.
# But for ansible-lint, which the importer ends after 180 s, also on a busy machine: `make lint` runs it on all of this.
set -euo pipefail

# shellcheck source=tests/tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
temporary importer

ansible-galaxy collection build --output-path "$temporary" .
cd "$temporary"
GALAXY_IMPORTER_RUN_ANSIBLE_LINT=false python -m galaxy_importer.main storage_ops-runbooks-*.tar.gz 2>&1 | tee log
if grep -E '^(WARNING|ERROR|CRITICAL)' log >problems; then
    printf 'galaxy-importer: %s problems, see above\n' "$(wc -l <problems)" >&2
    exit 1
fi
