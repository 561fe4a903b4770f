"""Every sample and existing manifest, and every kind by its names, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubewright.builder.project import Project
from kubewright.testing.controlplane import ControlPlane, KubectlFailed

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "config/samples"
SEEDS = ROOT / "tests/seeds"
STRICT_FLAGS = ("--dry-run=server", "--validate=strict")
NAMES_BY_KIND = {
    "HostInfo": ["hostinfo", "hostinfoes", "ch", "hi"],
    "VMInfo": ["vminfo", "vminfoes", "vi"],
    "FCDInfo": ["fcdinfo", "fcdinfoes", "fcd"],
    "DatastoreInfo": ["datastoreinfo", "datastoreinfoes", "di"],
    "ClusterInfo": ["clusterinfo", "clusterinfoes", "ci"],
    "GPUInfo": ["gpuinfo", "gpuinfoes", "gpu"],
    "VmGroup": ["vmgroup", "vmgroups", "vg"],
    "MyCustomResource": ["mycustomresource", "mycustomresources"],
}
# The columns of the original operators; ours follow them.
COLUMNS_BY_KIND = {
    "HostInfo": ["NAME", "HOSTNAME"],
    "VMInfo": ["NAME", "NODENAME"],
    "FCDInfo": ["NAME", "PVID"],
    "DatastoreInfo": ["NAME", "DATASTORE"],
    "ClusterInfo": ["NAME", "CLUSTER"],
    "GPUInfo": ["NAME", "DESIRED ACCESS TIME (HRS)", "GPU REQUIRED"],
    "VmGroup": ["NAME", "PHASE", "CURRENT", "DESIRED", "CPU", "MEMORY", "TEMPLATE", "LAST_MESSAGE"],
    "MyCustomResource": ["NAME"],
}


@pytest.fixture(scope="module")
def sample_namespace(installed: ControlPlane) -> Iterator[str]:
    """The namespace of one of the manifests."""
    installed.create_namespace("myoperator-vms")
    yield "myoperator-vms"
    installed.remove_namespace("myoperator-vms")


@pytest.mark.parametrize("folder", [SAMPLES, SEEDS], ids=["samples", "seeds"])
def test_every_manifest_is_admitted_field_by_field(
    installed: ControlPlane, sample_namespace: str, folder: Path
) -> None:
    admitted = installed.kubectl(
        "-n", sample_namespace, "create", *STRICT_FLAGS, "-f", str(folder)
    ).splitlines()
    assert len(admitted) == len(list(folder.glob("*.yaml"))) >= 5
    applied = installed.kubectl(
        "-n", sample_namespace, "apply", *STRICT_FLAGS, "-f", str(folder)
    ).splitlines()
    assert len(applied) == len(admitted)


def test_every_kind_has_all_its_names_and_is_explained(installed: ControlPlane) -> None:
    rows = [
        line.split() for line in installed.kubectl("api-resources", "--no-headers").splitlines()
    ]
    names_by_kind = {
        row[-1]: {row[0], *(row[1].split(",") if len(row) == 5 else ()), row[-1].lower()}
        for row in rows
        if row[-1] in NAMES_BY_KIND
    }
    assert names_by_kind == {kind: set(names) for kind, names in NAMES_BY_KIND.items()}
    for kind in NAMES_BY_KIND:
        assert "FIELDS" in installed.kubectl("explain", f"{kind.lower()}.spec")


def test_get_prints_the_original_columns_first(
    installed: ControlPlane, sample_namespace: str
) -> None:
    installed.kubectl("-n", sample_namespace, "apply", "-f", str(SAMPLES))
    names = ",".join(NAMES_BY_KIND[kind][-1] for kind in COLUMNS_BY_KIND)
    short_titles, wide_titles = (
        [
            parse_column_titles(table)
            for table in installed.kubectl("-n", sample_namespace, "get", names, *how).split("\n\n")
        ]
        for how in ((), ("-o", "wide"))
    )
    # kubectl prints a table for each kind, in this order.
    kinds = zip(COLUMNS_BY_KIND.items(), short_titles, wide_titles, strict=True)
    for (kind, columns), short, wide in kinds:
        assert short[: len(columns)] == wide[: len(columns)] == columns
        assert {"READY", "AGE"} <= set(short) <= set(wide), kind


def parse_column_titles(table: str) -> list[str]:
    # kubectl separates columns by at least three spaces; a title may contain one.
    return [title.strip() for title in table.splitlines()[0].split("   ") if title.strip()]


def test_editor_can_scale_a_group_and_viewer_only_read_it(
    installed: ControlPlane, sample_namespace: str
) -> None:
    installed.kubectl(
        "-n", sample_namespace, "apply", "-f", str(SAMPLES / "vm_v1alpha1_vmgroup_vg1.yaml")
    )
    for user in ("editor", "viewer"):
        role = f"--clusterrole=vsphere-operators-vmgroup-{user}-role"
        installed.kubectl(
            "-n", sample_namespace, "create", "rolebinding", user, role, f"--user={user}"
        )
    with pytest.raises(KubectlFailed, match='cannot patch resource "vmgroups/scale"'):
        installed.kubectl(
            "-n", sample_namespace, "scale", "vg", "vg-1", "--replicas=1", "--as=viewer"
        )
    installed.kubectl("-n", sample_namespace, "scale", "vg", "vg-1", "--replicas=2", "--as=editor")
    group = json.loads(
        installed.kubectl("-n", sample_namespace, "get", "vg", "vg-1", "-o", "json", "--as=viewer")
    )
    assert group["spec"]["replicas"] == 2


def test_pyproject_lists_exactly_the_served_kinds() -> None:
    project = Project.read(ROOT)
    served = {
        (kind.definition.group, kind.definition.version, kind.definition.name)
        for kind in project.load_declarations().kinds
    }
    assert {
        (resource.group, resource.version, resource.kind) for resource in project.config.resources
    } == served
    assert all(
        project.load_object(resource.path).definition.plural == resource.plural
        for resource in project.config.resources
    )
