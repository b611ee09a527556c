#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Writes requirements/execution-environment.txt and requirements/decision-environment.txt: the versions that the files
# *.in lead to today, each with the hashes of its files. lock.sh [--upgrade]: else what is there and still fits stays.
set -euo pipefail

# shellcheck source=tests/tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
"$root/tests/lab/bootstrap.sh" release
temporary lock

cd "$root/requirements"
# In this order: what the second one has is of the versions of the first.
for name in execution-environment decision-environment; do
    [ ! -e "$name.txt" ] || cp "$name.txt" "$temporary/$name.txt"
    # Where packages are fetched from is the machine's business, and no part of the file.
    "$venv_release/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-options \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links "$@" --output-file "$temporary/$name.txt" "$name.in"
    {
        sed -n '1,/^$/p' "$name.in"
        printf '# Written by "make lock" from %s.in, for Python 3.11 and later: do not edit it.\n' "$name"
        cat "$temporary/$name.txt"
    } >"$temporary/new"
    mv "$temporary/new" "$name.txt"
done
