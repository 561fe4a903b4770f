"""Checks the SBOM with CycloneDX's own library: its schema, and the same packages and hashes as
cyclonedx-py finds in the lock.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

_ROOT = Path(__file__).parents[1]
_LOCK = _ROOT / "requirements/runtime.txt"
_SBOM = _ROOT / "hack/image/sbom.cdx.json"
Packages = dict[str, set[str]]


def _read_packages(components: list[dict[str, Any]]) -> Packages:
    """The SHA-256 digests by package URL. cyclonedx-py writes them to external references."""
    return {
        component["purl"]: {
            digest["content"]
            for holder in (component, *component.get("externalReferences", ()))
            for digest in holder.get("hashes", ())
        }
        for component in components
    }


def main() -> None:
    text = _SBOM.read_text()
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"{_SBOM.name} violates the schema of CycloneDX 1.6: {error}")
    command = (sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "--sv", "1.6")
    output = subprocess.run(
        [*command, "--short-PURLs", _LOCK], check=True, capture_output=True, text=True
    ).stdout
    ours = _read_packages(json.loads(text)["components"])
    # kubewright is built from this repository, so it is not in the lock.
    built_here = {purl for purl in ours if purl.startswith("pkg:pypi/kubewright@")}
    expected = _read_packages(json.loads(output)["components"])
    if difference := sorted(
        purl
        for purl in expected.keys() | ours.keys() - built_here
        if ours.get(purl) != expected.get(purl)
    ):
        raise SystemExit(
            f"{_SBOM.name} and cyclonedx-py differ in: {', '.join(difference)}. "
            "Run `make sbom`; if they still differ, correct hack/image/sbom.py."
        )
    print(f"{_SBOM.name} is valid, and has the {len(expected)} packages that cyclonedx-py finds")


if __name__ == "__main__":
    main()
