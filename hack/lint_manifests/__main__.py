"""Prints the findings that allowed.yaml does not list, and fails if there are any."""

from __future__ import annotations

import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import Struct

from . import tools
from .rendering import render_all
from .schemas import write_schemas

_ROOT = Path(__file__).parents[2]
_ALLOWED = Path(__file__).with_name("allowed.yaml")
_OUTPUT = _ROOT / "dist/lint"
_DOCKERFILES = ("Dockerfile", "tests/golden/greeter/Dockerfile")
_YAML_PATHS = ("config", ".github", "local-dev-cluster", "mkdocs.yml")


class Allowed(Struct, frozen=True, forbid_unknown_fields=True):
    tool: str
    rule: str
    subject: str
    """A pattern such as `Deployment/*`."""
    reason: str

    def matches(self, finding: tools.Finding) -> bool:
        return (self.tool, self.rule) == (finding.tool, finding.rule) and fnmatchcase(
            finding.subject, self.subject
        )


class AllowedFile(Struct, frozen=True, forbid_unknown_fields=True):
    skipped_kinds: dict[str, str]
    """Kinds without a schema here, each with the reason."""
    findings: list[Allowed]


def collect_findings(allowed: AllowedFile) -> list[tools.Finding]:
    schemas, manifests = _OUTPUT / "schemas", _OUTPUT / "manifests"
    write_schemas(schemas)
    files = render_all(manifests)
    workflows = sorted((_ROOT / ".github/workflows").glob("*.yml"))
    return [
        *tools.run_kubeconform(files, schemas, sorted(allowed.skipped_kinds)),
        *tools.run_kube_score(files),
        *tools.run_yamllint([_ROOT / name for name in _YAML_PATHS]),
        *tools.run_hadolint([_ROOT / name for name in _DOCKERFILES]),
        *tools.run_actionlint(workflows),
        *tools.run_zizmor(_ROOT / ".github"),
        *tools.run_helm_lint(),
    ]


def main() -> int:
    allowed = msgspec.yaml.decode(_ALLOWED.read_bytes(), type=AllowedFile)
    # A set, because several files contain the same object.
    findings = sorted(set(collect_findings(allowed)))
    used: Counter[Allowed] = Counter()
    new = []
    for finding in findings:
        entry = next((entry for entry in allowed.findings if entry.matches(finding)), None)
        if entry is None:
            new.append(finding)
        else:
            used[entry] += 1
    for finding in new:
        print(f"{finding.tool} {finding.rule}: {finding.subject}: {finding.message}")
    unused = [entry for entry in allowed.findings if entry not in used]
    for entry in unused:
        print(
            f"{_ALLOWED.name} allows {entry.tool} {entry.rule} for {entry.subject}, "
            "but there is no such finding; remove the entry"
        )
    print(f"{len(new)} findings, and {used.total()} that {_ALLOWED.name} allows")
    return 1 if new or unused else 0


if __name__ == "__main__":
    sys.exit(main())
