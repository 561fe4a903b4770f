"""What the image's Python packages are, with the hash of every file that pip may take for them, as CycloneDX: hack/image/sbom.cdx.json.

`python hack/image/sbom.py` writes it from the lock alone, so it is the same on every machine; `--check` only says whether it is current.
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

REPOSITORY = Path(__file__).resolve().parents[2]
LOCK = REPOSITORY / "requirements/runtime.txt"
SBOM = REPOSITORY / "hack/image/sbom.cdx.json"
PROJECT_FILES = ("pyproject.toml", "packages/kubewright/pyproject.toml")
Json = dict[str, Any]


@dataclass(frozen=True)
class LockedPackage:
    """One package of the lock."""

    name: str
    version: str
    marker: str
    sha256: tuple[str, ...]
    required_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL, which is also what others call it by."""
        return f"pkg:pypi/{self.name}@{self.version}"


def parse_lock(lock: str) -> list[LockedPackage]:
    """The packages of a lock as `make lock` writes it."""
    return [
        parse_package(block)
        for block in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
        if block.strip()
    ]


def parse_package(block: str) -> LockedPackage:
    """One package: `name==version ; marker`, its hashes, and after `# via` who wants it."""
    head = re.match(r"([a-z0-9._-]+)==(\S+)(?: ; (.*?))? \\\n", block)
    if not head:
        raise SystemExit(
            f"{LOCK.name} has a line that is no pin with a hash; make it with `make lock`:\n{block.splitlines()[0]}"
        )
    name, version, marker = head.groups(default="")
    # -r runtime.in is not a package: it says that the manager itself wants it.
    wanted_by = re.findall(r"^    #(?: via)? +([a-z0-9._-]+)$", block, re.MULTILINE)
    return LockedPackage(
        name,
        version,
        marker,
        tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)),
        tuple(wanted_by),
    )


def package_component(pin: LockedPackage) -> Json:
    """A package as CycloneDX has it; where only some interpreters need it, with the marker that says which."""
    told: Json = {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "hashes": [{"alg": "SHA-256", "content": each} for each in pin.sha256],
        "purl": pin.purl,
    }
    return told | (
        {"properties": [{"name": "python:marker", "value": pin.marker}]} if pin.marker else {}
    )


def own_component(project: Json) -> Json:
    """One of our two packages: built from this repository, so without a hash."""
    reference = f"pkg:pypi/{project['name']}@{project['version']}"
    return {
        "bom-ref": reference,
        "name": project["name"],
        "version": project["version"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": reference,
    }


def build_bom(lock: str, application: Json, library: Json) -> Json:
    """The whole document; its serial number follows from its content, so that it is stable."""
    packages = parse_lock(lock)
    manager, runtime = (
        {"type": "application", **own_component(application)},
        {"type": "library", **own_component(library)},
    )
    content: Json = {
        "metadata": {"component": manager},
        "components": [runtime, *(package_component(pin) for pin in packages)],
        "dependencies": dependency_graph(packages, manager["bom-ref"], runtime["bom-ref"], library),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **content,
    }


def dependency_graph(
    packages: list[LockedPackage], manager: str, runtime: str, library: Json
) -> list[Json]:
    """Who needs whom; what no other package wants, one of ours does."""
    own_needs = requirement_names(library["dependencies"] + library["optional-dependencies"]["tls"])
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


def requirement_names(requirements: list[str]) -> set[str]:
    """The names alone, as a lock spells them."""
    return {re.split(r"[<>=\[; ]", each)[0].lower().replace("_", "-") for each in requirements}


def render_sbom() -> str:
    """The file as it has to be now."""
    application, library = (
        tomllib.loads((REPOSITORY / path).read_text())["project"] for path in PROJECT_FILES
    )
    return json.dumps(build_bom(LOCK.read_text(), application, library), indent=1) + "\n"


def main() -> None:
    """Write the file, or say whether it is current."""
    if "--check" not in sys.argv:
        SBOM.write_text(render_sbom())
    elif not SBOM.exists() or SBOM.read_text() != render_sbom():
        raise SystemExit(
            f"{SBOM.relative_to(REPOSITORY)} is not what the lock says; run `make sbom` and commit it"
        )


if __name__ == "__main__":
    main()
