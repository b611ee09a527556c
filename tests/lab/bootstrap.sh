#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Installs what is missing: bootstrap.sh [lab] [kind] [report] [lowest] [release] [bare]
#   always  Debian packages for linting, and the controller's virtual environment
#   bare    no virtual environment
#   lab     also Debian packages for the virtual machines and for Ceph
#   kind    also Debian packages for kind clusters, a Docker engine among them
#   report  also Debian packages for the reports and the documentation: a browser, graphviz, Prometheus, and Java for ansible-rulebook
#   lowest  also a virtual environment with the lowest supported ansible-core
#   release also a virtual environment with what makes lists of packages
# Does nothing, in a fraction of a second, when everything is there.
set -euo pipefail

# shellcheck source=tests/tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/env.sh"

say() {
    printf '[bootstrap +%ss] %s\n' "$SECONDS" "$*" >&2
}

# Forbids services to be started for as long as this very process runs, so that a killed one harms nobody.
policy=/usr/sbin/policy-rc.d
write_policy() {
    install -m 755 /dev/stdin "$policy" <<END
#!/bin/sh
# Of storage_ops.runbooks: $STORAGE_OPS_RUN
set -- \$(cat /proc/$$/stat 2>/dev/null | sed 's/.*) //')
[ "\${20}" != "$(cut -d. -f2 <<<"$STORAGE_OPS_RUN")" ] || exit 101
END
}
if grep -qs '^# Of storage_ops.runbooks: ' "$policy" && "$policy"; then
    rm -f "$policy"
fi

# disable SERVICE...: what a package has enabled.
disable() {
    command -v systemctl >/dev/null || return 0
    systemctl disable --quiet "$@" || say "could not be disabled: $*"
}

# install_packages FILE...: the Debian packages named in the files, one in each line, some with the only release that has them.
install_packages() {
    local wanted missing release
    command -v dpkg-query >/dev/null || die "this is neither Debian nor Ubuntu; the packages to install are named in: $*"
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    mapfile -t wanted < <(sed -e 's/#.*//' "$@" | awk -v release="$release" 'NF == 1 || $2 == release { print $1 }')
    # A Docker from elsewhere will do, and Debian's would have it removed.
    if command -v dockerd >/dev/null && command -v docker >/dev/null; then
        mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | grep -vxE 'docker\.io|docker-cli')
    fi
    mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) \
        <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null | awk '$1 == "installed" { print $2 }' | sort -u))
    [ "${#missing[@]}" -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] || die "these packages are missing; as root: apt-get install --no-install-recommends ${missing[*]}"
    say "installing ${#missing[@]} packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    # Ceph's packages and Docker's have services, which is not wanted here: not now, and not after the next boot.
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        write_policy
    fi
    apt-get install --yes --no-remove --no-install-recommends "${missing[@]}"
    if [[ " ${missing[*]} " == *" ceph-"* ]]; then
        disable ceph-crash.service rbdmap.service
    fi
    if [[ " ${missing[*]} " == *" docker.io "* ]]; then
        disable docker.service docker.socket containerd.service
    fi
    say "packages installed"
}

# make_venv TARGET FILE: a virtual environment cannot be moved, so it is built under another name and TARGET becomes a link to it at the end.
make_venv() {
    local target=$1 requirements=$2 building
    [ ! -e "$target" ] || return 0
    mkdir -p "$cache"
    exec 9>"$target.lock"
    flock --nonblock 9 || { say "another process builds ${target##*/}: waiting for it"; flock 9; }
    if [ ! -e "$target" ]; then
        rm -rf "$target".[0-9]*
        building=$target.$$
        say "building ${target##*/} from ${requirements#"$root"/} (about a minute)"
        "$python" -m venv "$building"
        # What is imported is compiled then. All of it would take as long as installing it.
        "$building/bin/python" -m pip install --no-compile --disable-pip-version-check --progress-bar off --requirement "$requirements" |
            awk '/^Collecting/ && ++n % 25 == 0 { print "  " n " packages"; fflush() } /^Installing/ { print "  unpacking"; fflush() }' >&2
        ln -sfnT "${building##*/}" "$target"
        say "${target##*/} is ready"
    fi
    exec 9>&-
}

packages=("$root/requirements/apt.txt")
lowest=
release=
bare=
for part in "$@"; do
    case $part in
        report) packages+=("$root/tests/report/apt-packages.txt") ;;
        lab) packages+=("$root/tests/lab/apt-packages.txt") ;;
        kind) packages+=("$root/tests/lab/kind/apt-packages.txt") ;;
        lowest) lowest=yes ;;
        release) release=yes ;;
        bare) bare=yes ;;
        *) die "unknown part: $part" ;;
    esac
done

install_packages "${packages[@]}"
[ -n "$bare" ] || make_venv "$venv" "$root/requirements/controller.txt"
if [ -n "$release" ]; then
    make_venv "$venv_release" "$root/requirements/release.txt"
fi
if [ -n "$lowest" ]; then
    if "$python" -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then
        make_venv "$venv_lowest" "$root/requirements/lowest.txt"
    else
        say "NOT TESTED: ansible-core 2.16, which does not run on $("$python" --version)"
    fi
fi
if [ ! -e "$collections/ansible_collections/storage_ops/runbooks/galaxy.yml" ]; then
    mkdir -p "$collections/ansible_collections/storage_ops"
    ln -sfnT "$root" "$collections/ansible_collections/storage_ops/runbooks"
fi
