#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Sourced by the other scripts, which use what is set here: where things are. Installs nothing.
# shellcheck disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cache=${STORAGE_OPS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/storage_ops.runbooks}

# run_name PID: as tests/lab/runs.py names a run of the tests.
run_name() {
    local stat
    stat=$(<"/proc/$1/stat")
    read -ra stat <<<"${stat##*) }"
    printf '%s.%s.%s.%.8s' "$1" "${stat[19]}" "$(stat -Lc %i /proc/self/ns/pid)" "$(</proc/sys/kernel/random/boot_id)"
}
# What this script starts belongs to it, and is swept by the next one if it is killed.
STORAGE_OPS_RUN=$(run_name $$)
export STORAGE_OPS_RUN

# temporary NAME: makes a folder that is removed at the end, or swept by the next run; it is in $temporary.
temporary() {
    temporary=${TMPDIR:-/tmp}/lab-$1-$$
    mkdir -p "$cache/runs/$STORAGE_OPS_RUN"
    ln -s "$temporary" "$cache/runs/$STORAGE_OPS_RUN/$1"
    # shellcheck disable=SC2064
    trap "rm -rf '$temporary' '$cache/runs/$STORAGE_OPS_RUN'" EXIT
    mkdir -m 700 "$temporary"
}

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# key PYTHON FILE: names what is built from FILE by PYTHON.
key() {
    { "$1" -c 'import sys; print(sys.version, sys.executable)'; cat "$2"; } | sha256sum | cut -c1-12
}

# A real interpreter that ansible-core 2.19 runs on. The system's own comes first: it has the distribution's venv, and a shim of a version manager
# would change its meaning with the directory it is called from.
find_python() {
    local candidate
    for candidate in /usr/bin/python3 /usr/{,local/}bin/python3.1{3,2,1}; do
        if [ -x "$candidate" ] && "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; then
            echo "$candidate"
            return
        fi
    done
    die "no Python 3.11, 3.12 or 3.13 in /usr/bin or /usr/local/bin (Debian 12, Debian 13 and Ubuntu 24.04 have one)"
}

python=$(find_python)
venv=$cache/venv-$(key "$python" "$root/requirements/controller.txt")
venv_lowest=$cache/venv-$(key "$python" "$root/requirements/lowest.txt")
venv_release=$cache/venv-$(key "$python" "$root/requirements/release.txt")

# Several checkouts share one cache, so each has its own collections directory.
collections=$cache/collections/$(printf %s "$root" | sha256sum | cut -c1-12)
