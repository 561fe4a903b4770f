"""What the image's Python packages are, with the hash of every file that pip may take for them, as CycloneDX: image/sbom.cdx.json.

`python image/sbom.py` writes it from the lock alone, so it is the same on every machine; `--check` only says whether it is current.
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

REPOSITORY = Path(__file__).resolve().parents[1]
LOCK = REPOSITORY / "requirements/runtime.txt"
SBOM = REPOSITORY / "image/sbom.cdx.json"
OURS = ("pyproject.toml", "packages/kubewright/pyproject.toml")
Json = dict[str, Any]


@dataclass(frozen=True)
class Pin:
    """One package of the lock."""

    name: str
    version: str
    marker: str
    sha256: tuple[str, ...]
    wanted_by: tuple[str, ...]

    @property
    def reference(self) -> str:
        """Its package URL, which is also what others call it by."""
        return f"pkg:pypi/{self.name}@{self.version}"


def pins(lock: str) -> list[Pin]:
    """The packages of a lock as `make lock` writes it."""
    return [pin_of(block) for block in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE) if block.strip()]


def pin_of(block: str) -> Pin:
    """One package: `name==version ; marker`, its hashes, and after `# via` who wants it."""
    head = re.match(r"([a-z0-9._-]+)==(\S+)(?: ; (.*?))? \\\n", block)
    if not head:
        raise SystemExit(f"{LOCK.name} has a line that is no pin with a hash; make it with `make lock`:\n{block.splitlines()[0]}")
    name, version, marker = head.groups(default="")
    # -r runtime.in is not a package: it says that the manager itself wants it.
    wanted_by = re.findall(r"^    #(?: via)? +([a-z0-9._-]+)$", block, re.MULTILINE)
    return Pin(name, version, marker, tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)), tuple(wanted_by))


def component(pin: Pin) -> Json:
    """A package as CycloneDX has it; where only some interpreters need it, with the marker that says which."""
    told: Json = {
        "type": "library",
        "bom-ref": pin.reference,
        "name": pin.name,
        "version": pin.version,
        "hashes": [{"alg": "SHA-256", "content": each} for each in pin.sha256],
        "purl": pin.reference,
    }
    return told | ({"properties": [{"name": "python:marker", "value": pin.marker}]} if pin.marker else {})


def own(project: Json) -> Json:
    """One of our two packages: built from this repository, so without a hash."""
    reference = f"pkg:pypi/{project['name']}@{project['version']}"
    return {
        "bom-ref": reference,
        "name": project["name"],
        "version": project["version"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": reference,
    }


def bom(lock: str, application: Json, library: Json) -> Json:
    """The whole document; its serial number follows from its content, so that it is stable."""
    packages = pins(lock)
    manager, runtime = {"type": "application", **own(application)}, {"type": "library", **own(library)}
    content: Json = {
        "metadata": {"component": manager},
        "components": [runtime, *(component(pin) for pin in packages)],
        "dependencies": graph(packages, manager["bom-ref"], runtime["bom-ref"], library),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(content, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1, **content}


def graph(packages: list[Pin], manager: str, runtime: str, library: Json) -> list[Json]:
    """Who needs whom; what no other package wants, one of ours does."""
    own_needs = names(library["dependencies"] + library["optional-dependencies"]["tls"])
    direct = [pin for pin in packages if not pin.wanted_by]
    needs = {pin.name: sorted(other.reference for other in packages if pin.name in other.wanted_by) for pin in packages}
    return [
        {"ref": manager, "dependsOn": [runtime, *(pin.reference for pin in direct if pin.name not in own_needs)]},
        {"ref": runtime, "dependsOn": [pin.reference for pin in direct if pin.name in own_needs]},
        *({"ref": pin.reference, "dependsOn": needs[pin.name]} for pin in packages),
    ]


def names(requirements: list[str]) -> set[str]:
    """The names alone, as a lock spells them."""
    return {re.split(r"[<>=\[; ]", each)[0].lower().replace("_", "-") for each in requirements}


def text() -> str:
    """The file as it has to be now."""
    application, library = (tomllib.loads((REPOSITORY / path).read_text())["project"] for path in OURS)
    return json.dumps(bom(LOCK.read_text(), application, library), indent=1) + "\n"


def main() -> None:
    """Write the file, or say whether it is current."""
    if "--check" not in sys.argv:
        SBOM.write_text(text())
    elif not SBOM.exists() or SBOM.read_text() != text():
        raise SystemExit(f"{SBOM.relative_to(REPOSITORY)} is not what the lock says; run `make sbom` and commit it")


if __name__ == "__main__":
    main()
