# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lists that `make sbom` writes: CycloneDX's own validator takes them, and they name what is
shipped, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import yaml
from lab.common import patient
from support.node import environment

ROOT = Path(__file__).resolve().parents[2]


def test_lists_of_what_is_shipped(tmp_path: Path) -> None:
    def run(*command: str) -> None:
        answer = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=patient(300),
            env=environment(),
            cwd=ROOT,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr

    # It ends with an error where a list does not hold to CycloneDX's schema.
    run("tests/tools/sbom.sh", str(tmp_path))
    run("ansible-galaxy", "collection", "build", "--output-path", str(tmp_path), str(ROOT))
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]

    def listed(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / f"{name}.cdx.json").read_text())
        assert (found["bomFormat"], found["metadata"]["component"]["version"]) == (
            "CycloneDX",
            version,
        )
        return found

    (tarball,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(tarball) as archive:
        inside = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        # They hold the sums of all others.
        shipped = {
            name: hashlib.sha256(stream.read()).hexdigest()
            for name, stream in inside.items()
            if stream and name not in ("MANIFEST.json", "FILES.json")
        }
    parts = listed("collection")["components"]
    assert {
        part["name"]: part["hashes"][0]["content"] for part in parts if part["type"] == "file"
    } == shipped
    assert [part["name"] for part in parts if part["type"] != "file"] == ["kubernetes.core"]

    locked = (ROOT / "requirements/execution-environment.txt").read_text()
    packages = dict(re.findall(r"^([a-z0-9-]+)==(\S+) ", locked, re.MULTILINE))
    assert len(packages) > 20
    parts = listed("environment")["components"]
    collections = {"storage_ops.runbooks": version, "kubernetes.core": pinned()}
    assert {part["name"]: part["version"] for part in parts} == {**packages, **collections}
    sums = {
        entry["content"]
        for part in parts
        for where in part.get("externalReferences", ())
        for entry in where["hashes"]
    }
    assert sums == set(re.findall(r"--hash=sha256:(\w+)", locked))


def pinned() -> str:
    definition = yaml.safe_load((ROOT / "execution-environment.yml").read_text())
    (found,) = [
        each
        for each in definition["dependencies"]["galaxy"]["collections"]
        if each["name"] == "kubernetes.core"
    ]
    return str(found["version"])


def test_a_release_is_verified_as_its_page_says(tmp_path: Path) -> None:
    """By the commands of docs/releases.md, with a key of the test's own."""
    page = (ROOT / "docs/releases.md").read_text()
    blocks = re.findall(r"^```shell\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    assert f"runbooks-{version}.tar.gz" in blocks[0] and "verify" in blocks[0]
    home, folder = tmp_path / "gnupg", tmp_path / "release"
    home.mkdir(mode=0o700)
    folder.mkdir()
    (tmp_path / "installed").mkdir()
    settings = {
        **environment(),
        "GNUPGHOME": str(home),
        "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "installed"),
        # Not the tree that is being tested.
        "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false",
        # What it depends on would be fetched.
        "ANSIBLE_GALAXY_SERVER": "http://127.0.0.1:9",
    }

    def run(script: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-euo", "pipefail", "-c", script]
        limit = patient(120)
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=limit,
            env=settings,
            cwd=folder,
        )

    def done(script: str) -> None:
        answer = run(script)
        assert answer.returncode == 0, answer.stdout + answer.stderr

    sign = re.search(r"`(tar --extract .*?asc)`", page, re.DOTALL)
    assert sign
    try:
        done(
            "gpg --batch --quiet --passphrase '' --quick-gen-key "
            "releases@example.com ed25519 sign never"
        )
        done("gpg --armor --export --output storage_ops.asc")
        done(f"ansible-galaxy collection build --output-path . {ROOT}")
        done(" ".join(sign[1].split()).replace("X.Y.Z", version))
        install, _verify, rest = blocks[0].partition("ansible-galaxy collection verify")
        verify = f"ansible-galaxy collection verify{rest}"
        done(install.replace("collection install", "collection install --offline --no-deps"))
        done(verify)

        installed = tmp_path / "installed/ansible_collections/storage_ops/runbooks"
        playbook = installed / "playbooks/triage.yml"
        before = playbook.read_text()
        playbook.write_text(before + "\n")
        changed = run(verify)
        assert changed.returncode and "playbooks/triage.yml" in changed.stdout + changed.stderr
        # Whoever changes a file can change the sums of files, too, but sign nothing.
        playbook.write_text(before)
        done(verify)
        manifest = installed / "MANIFEST.json"
        manifest.write_text(manifest.read_text() + "\n")
        forged = run(verify)
        assert (
            forged.returncode and "Signature verification failed" in forged.stdout + forged.stderr
        )
    finally:
        run("gpgconf --kill all")
