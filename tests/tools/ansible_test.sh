#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# ansible-test without containers: ansible_test.sh sanity, with the newest and the lowest supported ansible-core;
# ansible_test.sh units all|K, with the oldest Python a quarter of what asks a cluster, and with the oldest ansible-core a quarter of the roles'
# tests, in turn by that number;
# ansible_test.sh modules FOLDER, with the ansible-core of that virtual environment.
set -euo pipefail

# shellcheck source=tests/tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
"$root/tests/lab/bootstrap.sh" lowest

# ansible-test finds the collection by the real path of the directory it is called in, so a link to the checkout does not do. A copy also keeps
# its output out of the checkout and lets edits go on meanwhile. tests/output stays: the virtual environments of "units" are in there, so all
# checkouts have one copy, in turn, and a new one installs nothing again.
copies=$cache/collections/copy
copy=$copies/ansible_collections/storage_ops/runbooks
mkdir -p "$copy"
exec 9>"$copies/lock"
flock --timeout 3600 9 || die "another run has had $copies for an hour: end it, and run this again"
find "$copy" -mindepth 1 -maxdepth 1 ! -name tests -exec rm -rf {} +
[ ! -d "$copy/tests" ] || find "$copy/tests" -mindepth 1 -maxdepth 1 ! -name output -exec rm -rf {} +
cd "$root"
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
    [ ! -f "$file" ] || printf '%s\0' "$file"
done | tar --create --null --files-from=- | tar --extract --directory "$copy"
cd "$copy"

# Its own home, since its bootstrap file for pip would come from a site that is not a package index, and may be out of reach.
home=$cache/ansible-test
mkdir -p "$home/.ansible/test/cache" "$home/.config"
for core in "$venv" "$venv_lowest" "${2:-}"; do
    # Each ansible-test asks for a version of its own.
    cat "$core"/lib/python3.*/site-packages/ansible_test/_internal/python_requirements.py 2>/dev/null || true
done | sed -nE "s/.*pip='([0-9.]+)'.*/\1/p" | while read -r version; do
    cp "$root/tests/tools/get_pip.py" "$home/.ansible/test/cache/get_pip_${version//./_}.py"
done
# What is imported is compiled then.
mkdir -p "$home/.pip"
printf '[install]\ncompile = false\n' >"$home/.pip/pip.conf"
[ -e "$home/.config/pip" ] || ln -sfnT "$HOME/.config/pip" "$home/.config/pip"
ln -sfnT "${XDG_CACHE_HOME:-$HOME/.cache}" "$home/.cache"

# Real interpreters first: the shims of pyenv exist for versions that are not active, and fail.
path=$(dirname "$python"):$PATH
for version in "$HOME"/.pyenv/versions/3.*/bin; do
    [ ! -d "$version" ] || path=$path:$version
done

# with CORE_VENV ARGUMENT...: ansible-test of that ansible-core.
with() {
    local core=$1
    shift
    printf '\n--- ansible-test %s (%s)\n' "$*" "$("$core/bin/python" -c 'from ansible.release import __version__; print("ansible-core", __version__)')"
    HOME=$home PATH=$core/bin:$path "$core/bin/ansible-test" "$@" --venv --color no || {
        printf 'FAILED ansible-test %s: exit code %s\n' "${*:1:3}" "$?"
        return 1
    }
}

pythons=()
for version in 3.9 3.10 3.11 3.12 3.13; do
    if PATH=$path "python$version" -c "" 2>/dev/null; then
        pythons+=("$version")
    fi
done
controller=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
status=0
case ${1:-} in
    sanity)
        # What imports with the oldest and with the newest Python here imports with those between them.
        with "$venv" sanity --skip-test import --skip-test pylint || status=1
        # The tests are for ruff and mypy, here and elsewhere; pylint takes as long for them as for all that runs on nodes.
        with "$venv" sanity --test pylint --exclude tests/ || status=1
        for version in $(printf '%s\n' "${pythons[0]}" "${pythons[-1]}" | sort -u); do
            with "$venv" sanity --test import --python "$version" || status=1
        done
        # The rest would check the same files by the same rules again; what a module imports of the core is the same with every Python.
        [ ! -e "$venv_lowest" ] || with "$venv_lowest" sanity --test import --test validate-modules --python "$controller" || status=1
        ;;
    units)
        # pytest runs all of them with the newest ansible-core and this machine's Python. Here is what differs elsewhere: on a node the oldest
        # Python, on the controller the oldest ansible-core.
        core=$venv
        [ ! -e "$venv_lowest" ] || core=$venv_lowest
        turn=${2:-all}
        folders=()
        number=0
        # Count one more, and say whether it is its turn.
        in_turn() {
            number=$((number + 1))
            [ "$turn" = all ] || [ $((number % 4)) = $((turn % 4)) ]
        }
        for tests in tests/unit/plugins/module_utils/_*/; do
            name=$(basename "$tests")
            # What asks a cluster or Ceph runs on a controller, whose Python is newer, unless a user delegates it; so that is taken in turn.
            if [[ $name =~ ^_(kube|ceph)$ ]] || grep -rqE '\b_(kube|ceph)( import|\.)' "plugins/module_utils/$name"; then
                in_turn || continue
            fi
            folders+=("$tests")
        done
        with "$core" units --python "${pythons[0]}" "${folders[@]}" tests/unit/plugins/module_utils/test_*.py || status=1
        if [ -e "$venv_lowest" ]; then
            roles=()
            for tests in tests/unit/roles/test_*.py; do
                in_turn && roles+=("$tests")
            done
            with "$venv_lowest" units --python "$controller" tests/unit/plugins/{action,callback,filter,inventory}/ "${roles[@]}" || status=1
        fi
        ;;
    modules)
        with "$2" sanity --test import --test validate-modules --python "$("$2/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" || status=1
        ;;
    *) die "usage: ansible_test.sh sanity|units|modules FOLDER" ;;
esac
exit "$status"
