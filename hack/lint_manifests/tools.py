"""Runs each linter and reads its output as findings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .rendering import BIN, CHART

_ROOT = Path(__file__).parents[2]
_SCRIPTS = Path(sys.executable).parent
_YAMLLINT_LINE = re.compile(r"^(?P<path>[^:\s]+):(?P<line>\d+):\d+: (?P<message>.*)$", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Finding:
    tool: str
    rule: str
    subject: str
    """An object as Kind/name, or a file."""
    message: str


def run_kubeconform(files: Sequence[Path], schemas: Path, skipped: Sequence[str]) -> list[Finding]:
    """Checks the fields of each object by the schema of its kind."""
    template = "{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json"
    options = ("-output", "json", "-schema-location", f"{schemas}/{template}")
    output = _run(BIN / "kubeconform", *options, "-skip", ",".join(skipped), *files)
    return [
        Finding("kubeconform", item["status"], f"{item['kind']}/{item['name']}", item["msg"])
        for item in json.loads(output)["resources"]
        if item["status"] not in ("statusValid", "statusSkipped")
    ]


def run_kube_score(files: Sequence[Path]) -> list[Finding]:
    """Checks probes, limits, security context and disruption budgets."""
    findings = []
    for path in files:
        output = _run(BIN / "kube-score", "score", "--output-format", "json", path)
        # null for a file without an object that it checks.
        for item in json.loads(output) or ():
            name = f"{item['type_meta']['kind']}/{item['object_meta']['name']}"
            findings += [
                Finding("kube-score", check["check"]["id"], name, comment["summary"])
                for check in item["checks"] or ()
                # 10 is its best grade.
                if not check["skipped"] and check["grade"] < 10
                for comment in check["comments"] or ()
            ]
    return findings


def run_yamllint(paths: Sequence[Path]) -> list[Finding]:
    options = ("--format", "parsable", "--config-file", _ROOT / "hack/lint_manifests/yamllint.yaml")
    findings = []
    for match in _YAMLLINT_LINE.finditer(_run(_SCRIPTS / "yamllint", *options, *paths)):
        rule = re.search(r"\((\S+)\)$", match["message"])
        message = f"line {match['line']}: {match['message']}"
        name = rule[1] if rule else "syntax"
        findings.append(Finding("yamllint", name, _relative(match["path"]), message))
    return findings


def run_hadolint(dockerfiles: Sequence[Path]) -> list[Finding]:
    output = _run(_SCRIPTS / "hadolint", "--format", "json", *dockerfiles)
    return [
        Finding("hadolint", item["code"], _relative(item["file"]), item["message"])
        for item in json.loads(output)
    ]


def run_actionlint(workflows: Sequence[Path]) -> list[Finding]:
    # ShellCheck and pyflakes are not installed everywhere; the steps run make targets only.
    options = ("-shellcheck=", "-pyflakes=", "-format", "{{json .}}")
    output = _run(BIN / "actionlint", *options, *workflows)
    return [
        Finding("actionlint", item["kind"], _relative(item["filepath"]), item["message"])
        for item in json.loads(output)
    ]


def run_zizmor(folder: Path) -> list[Finding]:
    """Checks the security of workflows at the strictest level, without requests to GitHub."""
    options = ("--offline", "--persona", "auditor", "--format", "json", "--no-exit-codes")
    output = _run(_SCRIPTS / "zizmor", *options, folder)
    return [
        Finding(
            "zizmor",
            item["ident"],
            _relative(item["locations"][0]["symbolic"]["key"]["Local"]["given_path"]),
            item["desc"],
        )
        for item in json.loads(output)
    ]


def run_helm_lint() -> list[Finding]:
    output = _run(BIN / "helm", "lint", "--strict", CHART)
    return [
        Finding("helm", match[1].lower(), "chart", match[2])
        for match in re.finditer(r"^\[(ERROR|WARNING|INFO)\] (.*)$", output, re.MULTILINE)
    ]


def _relative(path: str) -> str:
    absolute = (_ROOT / path).resolve()
    return str(absolute.relative_to(_ROOT)) if absolute.is_relative_to(_ROOT) else path


def _run(*command: str | Path) -> str:
    """The output. Linters report findings with status 1, and their own faults with another one."""
    process = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if process.returncode not in (0, 1) or (process.returncode and not process.stdout.strip()):
        raise SystemExit(
            f"{Path(command[0]).name} ended with status {process.returncode}:\n"
            f"{process.stderr or process.stdout}"
        )
    return process.stdout
