#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Lists what the collection and its execution environment consist of, as CycloneDX (called through
# run.sh): sbom.sh [FOLDER]
set -euo pipefail

# shellcheck source=tests/tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
target=${1:-$root/build/sbom}
"$root/tests/lab/bootstrap.sh" release
temporary sbom

ansible-galaxy collection build --output-path "$temporary" "$root"
"$venv_release/bin/cyclonedx-py" requirements --output-reproducible --spec-version 1.6 --output-format JSON \
    --output-file "$temporary/packages.json" "$root/requirements/execution-environment.txt"
"$venv_release/bin/python" -P "$root/tests/tools/sbom.py" "$temporary"/storage_ops-runbooks-*.tar.gz "$temporary/packages.json" \
    "$root/execution-environment.yml" "$target"
