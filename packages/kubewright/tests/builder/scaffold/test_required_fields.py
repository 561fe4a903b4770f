"""`create api --owns` of a kind without a template: what the user has to set."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubewright.api import (
    coordination_v1,
    core_v1,
    networking_v1,
    policy_v1,
    rbac_v1,
    scheduling_v1,
)
from kubewright.builder.cli import main
from kubewright.builder.scaffold.external_kinds import ExternalKind
from kubewright.builder.scaffold.required_fields import find_missing_fields
from kubewright.kind import Object
from kubewright.testing.controlplane import ControlPlane
from kubewright.yaml_text import to_yaml

from ..builder_commands import create_api
from ..typegen.generated_modules import new_crd

SPEC: dict[str, Any] = {"type": "object", "properties": {"size": {"type": "integer"}}}
STATUS = {"type": "object", "properties": {"ready": {"type": "boolean"}}}
TEST = "tests/kinds/test_greeting.py"


def import_widget(project: Path, spec: dict[str, Any]) -> None:
    crd = new_crd(spec_schema=spec)
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = STATUS
    file = project.parent / "crds.yaml"
    file.write_text(to_yaml(crd))
    assert main(["import", str(file), "--project", str(project)]) == 0
    # A command is a process of its own. Here the package of an earlier project may be loaded.
    for name in [name for name in sys.modules if name.partition(".")[0] == "greeter"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def run_tests(project: Path, *paths: str) -> str:
    sources = [str(project / "src"), *(entry for entry in sys.path if entry.endswith("src"))]
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *paths],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sources)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout


def test_real_children_of_an_imported_kind(project: Path, binaries: dict[str, Path]) -> None:
    import_widget(project, SPEC)
    owns = "example.com/v1/Widget,autoscaling/v2/HorizontalPodAutoscaler"
    assert create_api(project, "--owns", owns) == 0
    assert "skip" not in (project / TEST).read_text()
    assert "2 passed" in run_tests(project, "tests/kinds")


@pytest.mark.parametrize(
    ("kind", "next_step"),
    [
        ("example.com/v1/Widget", "set spec.size in build_widget, "),
        ("v1/Pod", "set the fields that the API server requires in build_pod, "),
        ("rbac.authorization.k8s.io/v1/RoleBinding", "set roleRef in build_rolebinding, "),
    ],
)
def test_fields_to_set_are_named_and_the_test_is_skipped(
    project: Path, capsys: pytest.CaptureFixture[str], kind: str, next_step: str
) -> None:
    import_widget(project, {**SPEC, "required": ["size"]})
    assert create_api(project, "--owns", kind) == 0
    output = capsys.readouterr().out
    assert f"\n  {next_step}then remove the skip in {TEST}\n  make test\n" in output
    assert "2 skipped" in run_tests(project, "tests/kinds")
    for command in (["ruff", "check"], ["ruff", "format", "--check"]):
        subprocess.run([sys.executable, "-m", *command, "src", "tests"], cwd=project, check=True)


@pytest.mark.parametrize(
    "kind",
    [
        *(core_v1.Endpoints, core_v1.LimitRange, core_v1.Namespace, core_v1.ResourceQuota),
        *(policy_v1.PodDisruptionBudget, rbac_v1.ClusterRole, rbac_v1.Role),
        *(coordination_v1.Lease, networking_v1.NetworkPolicy, scheduling_v1.PriorityClass),
    ],
)
def test_real_api_server_accepts_metadata_alone(
    control_plane: ControlPlane, namespace: str, kind: type[Object]
) -> None:
    definition = kind.definition
    assert find_missing_fields(ExternalKind(kind.__module__, definition)) is None
    child: dict[str, Any] = {"apiVersion": definition.api_version, "kind": definition.name}
    child["metadata"] = {"name": "example"}
    options = ("-n", namespace, "--dry-run=server", "-f", "-")
    control_plane.kubectl("create", *options, stdin=json.dumps(child))
