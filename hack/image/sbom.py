"""Generates hack/image/sbom.cdx.json: the image's Python packages and their hashes, as CycloneDX.

`python hack/image/sbom.py` reads only the lock, so its output is the same on every machine;
`--check` fails if the file is stale. cyclonedx-py does not write it: from this lock its document
has no dependency graph (0 edges instead of 23), no environment markers, not kubewright, and the
address of a package index. hack/check_sbom.py compares both.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[2]
_LOCK = _REPOSITORY / "requirements/runtime.txt"
_SBOM = _REPOSITORY / "hack/image/sbom.cdx.json"
_PROJECT_FILES = ("pyproject.toml", "packages/kubewright/pyproject.toml")
Json = dict[str, Any]


@dataclass(frozen=True)
class LockedPackage:
    name: str
    version: str
    marker: str
    sha256: tuple[str, ...]
    required_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL, which is also its bom-ref."""
        return f"pkg:pypi/{self.name}@{self.version}"


def parse_lock(lock: str) -> list[LockedPackage]:
    return [
        _parse_package(block)
        for block in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
        if block.strip()
    ]


def _parse_package(block: str) -> LockedPackage:
    """Parses `name==version ; marker`, its hashes, and the packages after `# via`."""
    head = re.match(r"([a-z0-9._-]+)==(\S+)(?: ; (.*?))? \\\n", block)
    if not head:
        raise SystemExit(
            f"{_LOCK.name} has a line that is not a pin with a hash; run `make lock`:\n"
            f"{block.splitlines()[0]}"
        )
    name, version, marker = head.groups(default="")
    # `-r runtime.in` is not a package: the manager itself requires this one.
    required_by = re.findall(r"^    #(?: via)? +([a-z0-9._-]+)$", block, re.MULTILINE)
    return LockedPackage(
        name,
        version,
        marker,
        tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)),
        tuple(required_by),
    )


def _package_component(pin: LockedPackage) -> Json:
    """A component of CycloneDX; a marker shows that only some interpreters need it."""
    component: Json = {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in pin.sha256],
        "purl": pin.purl,
    }
    if pin.marker:
        component["properties"] = [{"name": "python:marker", "value": pin.marker}]
    return component


def _own_component(project: Json) -> Json:
    """One of our two packages; it is built from this repository, so it has no hash."""
    reference = f"pkg:pypi/{project['name']}@{project['version']}"
    return {
        "bom-ref": reference,
        "name": project["name"],
        "version": project["version"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": reference,
    }


def build_bom(lock: str, application: Json, library: Json) -> Json:
    """The document; its serial number is derived from its content, so it is stable."""
    packages = parse_lock(lock)
    manager, runtime = (
        {"type": "application", **_own_component(application)},
        {"type": "library", **_own_component(library)},
    )
    content: Json = {
        "metadata": {"component": manager},
        "components": [runtime, *(_package_component(pin) for pin in packages)],
        "dependencies": _dependency_graph(
            packages, manager["bom-ref"], runtime["bom-ref"], library
        ),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **content,
    }


def _dependency_graph(
    packages: list[LockedPackage], manager: str, runtime: str, library: Json
) -> list[Json]:
    """Which package requires which; one that no other package requires is ours."""
    own_needs = _requirement_names(
        library["dependencies"] + library["optional-dependencies"]["tls"]
    )
    direct = [pin for pin in packages if not pin.required_by]
    needs = {
        pin.name: sorted(other.purl for other in packages if pin.name in other.required_by)
        for pin in packages
    }
    return [
        {
            "ref": manager,
            "dependsOn": [runtime, *(pin.purl for pin in direct if pin.name not in own_needs)],
        },
        {"ref": runtime, "dependsOn": [pin.purl for pin in direct if pin.name in own_needs]},
        *({"ref": pin.purl, "dependsOn": needs[pin.name]} for pin in packages),
    ]


def _requirement_names(requirements: list[str]) -> set[str]:
    """The package names, normalized as in a lock."""
    return {re.split(r"[<>=\[; ]", text)[0].lower().replace("_", "-") for text in requirements}


def render_sbom() -> str:
    application, library = (
        tomllib.loads((_REPOSITORY / path).read_text())["project"] for path in _PROJECT_FILES
    )
    # All packages have the version of the repository.
    library["version"] = application["version"]
    return json.dumps(build_bom(_LOCK.read_text(), application, library), indent=1) + "\n"


def main() -> None:
    if "--check" not in sys.argv:
        _SBOM.write_text(render_sbom())
    elif not _SBOM.exists() or _SBOM.read_text() != render_sbom():
        raise SystemExit(
            f"{_SBOM.relative_to(_REPOSITORY)} is stale; run `make sbom` and commit the result"
        )


if __name__ == "__main__":
    main()
