#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# What differs between ansible-cores, with those that the other stages do not have (called through run.sh --lab): the unit tests, the imports and
# documentation of modules, a compliance run, the callback and the other plugins in runs of ansible, and one repair on a node.
#
#   cores.sh [CORE...]   2.18, 2.20 and 2.21. newest is the newest of all, also if it is a pre-release; from 2.23 on, modules refuse to run on hosts
#                        (plugins/action/on_node.py)
#
# All of them run, whatever an earlier one says. The exit code is 1 if one failed, or was not tested.
set -uo pipefail

# shellcheck source=tests/tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# What the unit tests need, in the versions of controller.txt.
mapfile -t needed < <(sed -nE 's/^((hypothesis|jmespath|jsonpatch|kubernetes|prometheus-client|pytest|pytest-xdist) .*)/\1/p' \
    "$root/requirements/controller.txt" | tr -d ' ')

# newest_python: the newest one here that all of these ansible-cores run on. 2.20 and later need 3.12.
newest_python() {
    local version folder
    for version in 3.13 3.12 3.11; do
        for folder in /usr/bin /usr/local/bin "$HOME"/.pyenv/versions/"$version".*/bin; do
            if "$folder/python$version" -c 'import ensurepip, venv' 2>/dev/null; then
                echo "$folder/python$version"
                return
            fi
        done
    done
    return 1
}

# install CORE PYTHON FOLDER: a virtual environment with it.
install() {
    local core=$1 python=$2 folder=$3 options=()
    options=("ansible-core~=$core.0")
    if [ "$core" = newest ]; then
        # So that of its dependencies no pre-release is taken.
        options=(--upgrade 'ansible-core>=2.22.0a0')
    fi
    [ -e "$folder/bin/python" ] || "$python" -m venv "$folder" || return
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${options[@]}" "${needed[@]}"
}

# tested CORE FOLDER: all that is tested with it.
tested() {
    local folder=$1 status=0
    # What runs on the controller, as with the lowest one in "make units".
    PATH=$folder/bin:$PATH "$folder/bin/python" -P -m pytest -q -n 2 tests/unit/plugins/{action,callback,filter,inventory} \
        tests/unit/roles || status=1
    tests/tools/ansible_test.sh modules "$folder" || status=1
    # The tests of the lowest ansible-core are those in which the core matters.
    STORAGE_OPS_LOWEST=$folder pytest -q --turn=all -k lowest tests/adhoc tests/report tests/vm/test_{scenarios,without_sudo}.py || status=1
    return "$status"
}

[ "$#" -gt 0 ] || set -- 2.18 2.20 2.21
results=()
failed=0
for core in "$@"; do
    result=failed
    if ! python=$(newest_python); then
        result="NOT TESTED: no Python 3.11, 3.12 or 3.13 here"
    else
        # Without dots: by those the sweep knows what is half built. Here pip completes it.
        folder=$cache/venv-core-${core//./_}-$("$python" -c 'import sys; print("%d_%d_%d" % sys.version_info[:3])')
        printf '\n=== ansible-core %s on %s\n' "$core" "$("$python" --version)"
        if ! install "$core" "$python" "$folder"; then
            result="NOT TESTED: it could not be installed for $("$python" --version)"
        elif tested "$folder"; then
            result=passed
        fi
        result="$("$folder/bin/python" -c 'from ansible.release import __version__; print(__version__)' 2>/dev/null): $result"
    fi
    results+=("$core: $result")
    [[ $result == *passed ]] || failed=1
done
printf '\n'
printf '%s\n' "${results[@]}"
exit "$failed"
