#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Every check that only reads the source (called through run.sh). All of them run; the failed ones are named at the end.
set -uo pipefail

failed=()

# check NAME COMMAND...
check() {
    local name=$1 begin=$SECONDS
    shift
    printf -- '--- %s\n' "$name"
    "$@" || failed+=("$name")
    printf '    %ss\n' "$((SECONDS - begin))"
}

# The import names of a collection come from the directories above it.
types() (
    config=$PWD/pyproject.toml cache=$PWD/.mypy_cache
    cd "${ANSIBLE_COLLECTIONS_PATH:?}" || return
    mypy --config-file "$config" --cache-dir "$cache" ansible_collections/storage_ops/runbooks/{plugins,tests/lab}
)

shell_scripts() {
    git ls-files -z --cached --others --exclude-standard '*.sh' .ci/run | xargs -0 shellcheck --external-sources
}

pages() {
    git ls-files -z --cached --others --exclude-standard '*.md' | xargs -0 python -P tests/tools/tables.py
}

check "ruff check" ruff check
check "ruff format" ruff format --check
check returns python -P tests/tools/returns.py --check
check mypy types
check shellcheck shell_scripts
check yamllint yamllint --strict .
check clocks python -P tests/tools/clocks.py tests
check tables pages
check reuse reuse lint --lines
check antsibull-changelog antsibull-changelog lint
check antsibull-docs antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs=dependent --disallow-unknown-collection-refs .
check ansible-lint ansible-lint --strict --nocolor

if [ "${#failed[@]}" -gt 0 ]; then
    printf 'FAILED lint: %s\n' "${failed[*]}" >&2
    exit 1
fi
