#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Runs a command where the tests run, installing what is missing first: run.sh [--lab] [--kind] [--report] COMMAND [ARGUMENT...]
# With --bare: run.sh ... --bare ARGUMENT... runs the system's Python with those, and waits for no virtual environment.
set -euo pipefail

# shellcheck source=tests/tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

PYTHONPATH=$root/tests STORAGE_OPS_CACHE=$cache "$python" -m lab sweep

parts=()
while [[ $1 == --* ]]; do
    parts+=("${1#--}")
    shift
done
"$root/tests/lab/bootstrap.sh" "${parts[@]}"

cd "$root"
export PATH=$venv/bin:$PATH
export PYTHONPATH=$collections:$root/tests
export ANSIBLE_COLLECTIONS_PATH=$collections
export STORAGE_OPS_CACHE=$cache
[ ! -e "$venv_lowest" ] || export STORAGE_OPS_LOWEST=$venv_lowest
if [[ " ${parts[*]} " == *" bare "* ]]; then
    exec "$python" "$@"
fi
exec "$@"
