"""config/optional grants exactly what the code declares beyond the generated role."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.rbac import manager_rules
from support.fake_node_cluster import FakeNodeCluster, run_gpuinfo_manager
from vsphere_operators.kinds.gpuinfo.calendar_watcher import CALENDAR_PERMISSION
from vsphere_operators.kinds.gpuinfo.calendar_watcher import ROLE_MANIFEST as CALENDAR_ROLE
from vsphere_operators.kinds.gpuinfo.labels import ROLE_MANIFEST as LABEL_ROLE

ROOT = Path(__file__).parents[3]
NAMESPACE = "vsphere-operators-system"


def read_documents(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / file).read_text()))


def permissions_in(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        permission
        for rule in rules
        for permission in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


async def declared_permissions(*, labels: bool) -> set[tuple[str, str, str]]:
    cluster = FakeNodeCluster()
    cluster.mark_loaded()
    async with run_gpuinfo_manager(cluster, labels=labels) as controller:
        return permissions_in(manager_rules([controller]))


async def test_label_role_is_what_labeling_declares_in_addition() -> None:
    role, _ = read_documents(LABEL_ROLE)
    assert permissions_in(role["rules"]) == await declared_permissions(
        labels=True
    ) - await declared_permissions(labels=False)


def test_calendar_role_is_what_the_watch_needs() -> None:
    role, _ = read_documents(CALENDAR_ROLE)
    definition = CALENDAR_PERMISSION.kind.definition
    assert permissions_in(role["rules"]) == {
        (definition.group, definition.plural, verb) for verb in CALENDAR_PERMISSION.verbs
    }


@pytest.mark.parametrize(("file", "kind"), [(LABEL_ROLE, "ClusterRole"), (CALENDAR_ROLE, "Role")])
def test_optional_roles_are_bound_only_to_the_manager(file: str, kind: str) -> None:
    role, binding = read_documents(file)
    (generated,) = read_documents("config/rbac/role_binding.yaml")
    assert role["kind"] == kind
    assert binding["kind"] == f"{kind}Binding"
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (
        kind,
        role["metadata"]["name"],
    )
    assert binding["subjects"] == generated["subjects"]
    assert (
        role["metadata"].get("namespace")
        == binding["metadata"].get("namespace")
        == (NAMESPACE if kind == "Role" else None)
    )
