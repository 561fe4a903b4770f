"""What people type: every sample, and every kind by its names, at a real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubewright.builder.project import Project
from kubewright.testing.controlplane import ControlPlane

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "config/samples").glob("*.yaml"))
NAMES = ["hostinfo", "ch", "hi", "vminfo", "vi", "fcdinfo", "fcd", "gpuinfo", "gpu", "vmgroup", "vg", "mycustomresource"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_admitted_field_by_field(installed: ControlPlane, namespace: str, sample: Path) -> None:
    installed.kubectl("-n", namespace, "apply", "--dry-run=server", "--validate=strict", "-f", str(sample))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_a_kind_works(installed: ControlPlane, namespace: str, name: str) -> None:
    assert installed.kubectl("-n", namespace, "get", name, "-o", "wide") == ""
    assert "FIELDS" in installed.kubectl("explain", name)


def test_the_folder_of_samples_is_applied_as_a_whole_and_a_group_scales(installed: ControlPlane, namespace: str) -> None:
    installed.kubectl("-n", namespace, "apply", "-f", str(ROOT / "config/samples"))
    installed.kubectl("-n", namespace, "scale", "vg", "vg-1", "--replicas=2")
    group: dict[str, Any] = json.loads(installed.kubectl("-n", namespace, "get", "vg", "vg-1", "-o", "json"))
    assert group["spec"]["replicas"] == 2


def test_pyproject_lists_exactly_the_kinds_that_are_served() -> None:
    project = Project.read(ROOT)
    served = {(each.definition.group, each.definition.version, each.definition.name) for each in project.declared().kinds}
    assert {(each.group, each.version, each.kind) for each in project.table.resources} == served
    assert all(project.load(each.path).definition.plural == each.plural for each in project.table.resources)
