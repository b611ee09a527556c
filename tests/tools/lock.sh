#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Writes requirements/execution-environment.txt and requirements/decision-environment.txt: the versions that the files
# *.in lead to today, each with the hashes of its files. lock.sh [--upgrade]: else what is there and still fits stays.
# The first one is for Python 3.12 and later, as ansible-core 2.20 and later are, and that Python has to be here. The second one is for that of its
# base image.
set -euo pipefail

# shellcheck source=tests/tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
"$root/tests/lab/bootstrap.sh" release
temporary lock

# find_newer: a Python 3.12. What is only for older ones than 3.13 is in the list then.
find_newer() {
    local folder
    for folder in /usr/bin /usr/local/bin "$HOME"/.pyenv/versions/3.12.*/bin; do
        if "$folder/python3.12" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$folder/python3.12"
            return
        fi
    done
    die "no Python 3.12 in /usr/bin, /usr/local/bin or pyenv: ansible-core 2.20 and later need it"
}

newer=$(find_newer)
"$newer" -m venv "$temporary/newer"
"$temporary/newer/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$root/requirements/release.txt"

cd "$root/requirements"
# write NAME PYTHON VENV [OPTION...]
write() {
    local name=$1 version=$2 folder=$3
    shift 3
    [ ! -e "$name.txt" ] || cp "$name.txt" "$temporary/$name.txt"
    # Where packages are fetched from is the machine's business, and no part of the file.
    "$folder/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-options \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links "$@" --output-file "$temporary/$name.txt" "$name.in"
    {
        sed -n '1,/^$/p' "$name.in"
        printf '# Written by "make lock" from %s.in, for Python %s and later: do not edit it.\n' "$name" "$version"
        cat "$temporary/$name.txt"
    } >"$temporary/new"
    mv "$temporary/new" "$name.txt"
}
# In this order: what the second one has is of the versions of the first.
write execution-environment 3.12 "$temporary/newer" "$@"
write decision-environment 3.11 "$venv_release" "$@"
