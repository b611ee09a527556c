# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists of what is shipped, as CycloneDX 1.6, of the collection and of its execution environment.

``sbom.py TARBALL PACKAGES DEFINITION FOLDER``: the built collection; the environment's Python
packages, as cyclonedx-py lists them; execution-environment.yml; where both lists are written. What
does not hold to CycloneDX's schema is an error.
"""

from __future__ import annotations

import json
import sys
import tarfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

LICENSE = "GPL-3.0-or-later"


def main(tarball: Path, packages: Path, definition: Path, target: Path) -> None:
    """Write both."""
    with tarfile.open(tarball) as archive:
        info, files = (_member(archive, name) for name in ("MANIFEST.json", "FILES.json"))
    info = info["collection_info"]
    target.mkdir(parents=True, exist_ok=True)
    name = f"{info['namespace']}.{info['name']}"

    collection = Bom(
        components=[_file(entry) for entry in files["files"] if entry["ftype"] == "file"]
    )
    collection.metadata.component = _collection(name, info["version"], ComponentType.APPLICATION)
    needs = [_collection(other, version) for other, version in info["dependencies"].items()]
    _finish(collection, needs, target / "collection.cdx.json")

    environment = Bom.from_json(json.loads(packages.read_text()))  # type: ignore[attr-defined]
    root = Component(
        name=f"{name} execution environment", version=info["version"], type=ComponentType.CONTAINER
    )
    environment.metadata.component = root
    needs = [_collection(name, info["version"]), *_pinned(definition)]
    _finish(environment, [*needs, *environment.components], target / "environment.cdx.json")


def _member(archive: tarfile.TarFile, name: str) -> Any:
    stream = archive.extractfile(name)
    assert stream is not None
    return json.load(stream)


def _file(entry: dict[str, Any]) -> Component:
    return Component(
        name=entry["name"],
        bom_ref=f"file:{entry['name']}",
        type=ComponentType.FILE,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=entry["chksum_sha256"])],
    )


def _collection(name: str, version: str, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    # There is no type of package URL for collections.
    where = PackageURL("generic", "ansible-collection", name, version)
    return Component(name=name, version=version, type=kind, purl=where, bom_ref=str(where))


def _pinned(definition: Path) -> list[Component]:
    """The collections that the definition gets beside this one."""
    import yaml

    wanted = yaml.safe_load(definition.read_text())["dependencies"]["galaxy"]["collections"]
    return [_collection(found["name"], found["version"]) for found in wanted if "version" in found]


def _finish(bom: Bom, needs: Iterable[Component], target: Path) -> None:
    root = bom.metadata.component
    assert root is not None
    if root.type is ComponentType.APPLICATION:
        root.licenses.add(LicenseExpression(LICENSE))
    for found in needs:
        bom.components.add(found)
    bom.register_dependency(
        root, [found for found in bom.components if found.type is not ComponentType.FILE]
    )
    # The same content has the same number.
    content = sorted(
        (str(found.bom_ref), sorted(map(str, found.hashes))) for found in bom.components
    )
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content))
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong:
        raise SystemExit(f"{target.name} does not hold to CycloneDX's schema: {wrong}")
    target.write_text(text + "\n")
    print(f"{target}: {len(bom.components)} components")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
