#!/usr/bin/env bash
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Builds the documentation site from the checkout, without network (called through run.sh --report): docs.sh [FOLDER]
# A link to nowhere and every other warning is an error.
set -euo pipefail

site=${1:-build/docs}
source=$site/source

# What speaks of this repository by its full address, as ansible-doc has to, is checked here; the rest is Sphinx's.
grep -rhoE --include='*.md' --include='*.py' --include='*.yml' 'github\.com/storage-ops/runbooks/(blob|tree)/main/[^])"# ]+' \
    ./*.md docs plugins roles galaxy.yml |
    sed -E 's#.*/(blob|tree)/main/##' | sort -u | while read -r path; do
    [ -e "$path" ] || { printf 'error: %s is linked to and not there\n' "$path" >&2; exit 1; }
done

rm -rf "$site"
mkdir -p "$source"/{reference,pictures}
# Where they are in the checkout, so that their links to each other hold.
cp --parents ./*.md LICENSES/* docs/*.md docs/guides/*.md roles/*/README.md playbooks/*.yml playbooks/files/*.yml "$source"
cp docs/site/index.md "$source"
# The pictures are no part of the repository, so neither are they of its guide.
python -P docs/site/screenshots.py "$source/pictures"
cat docs/site/pictures.md >> "$source/docs/guides/report.md"
# Nor are the diagrams, which PlantUML and graphviz draw: a comment in the guide has their place. A wrong line exits with 200.
plantuml -tsvg -pipe < docs/site/fail_over_volumes.puml > "$source/pictures/fail_over_volumes.svg"
sed -i '/^<!-- On the documentation site, /r docs/site/fail_over_volumes.md' "$source/docs/guides/fail_over_volumes.md"
grep -q '{graphviz}' "$source/docs/guides/fail_over_volumes.md"
# antsibull-docs insists on a folder that only its owner may write to.
chmod 755 "$source/reference"
antsibull-docs --config-file docs/site/antsibull-docs.cfg collection --use-current --squash-hierarchy --fail-on-error \
    --dest-dir "$source/reference" storage_ops.runbooks
sphinx-build --quiet --fail-on-warning --keep-going --jobs 2 --conf-dir docs/site --doctree-dir "$site/doctrees" "$source" "$site/html"
printf 'the site is %s\n' "$site/html/index.html"
