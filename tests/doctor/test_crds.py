"""Installed CRDs, compared with the generated ones: plain calls, and a fake API server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright import Client, ObjectMeta
from kubewright.crd import build_crds
from kubewright.errors import Forbidden
from kubewright.testing.fake import FakeApi
from vsphere_operators.doctor.crds import _diff_specs, check
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.kinds.vmgroup import VmGroup


def installed_crd_spec() -> dict[str, Any]:
    (crd,) = build_crds([HostInfo])
    return {**crd["spec"], "conversion": {"strategy": "None"}}


def test_fields_that_the_server_adds_are_no_difference() -> None:
    (crd,) = build_crds([HostInfo])
    assert _diff_specs(crd["spec"], installed_crd_spec()) == []


def test_missing_and_additional_fields_are_both_named() -> None:
    (crd,) = build_crds([HostInfo])
    installed = installed_crd_spec()
    schema = installed["versions"][0]["schema"]["openAPIV3Schema"]
    fields = schema["properties"]["spec"]["properties"]
    fields["host"] = fields.pop("hostname")
    path = "versions.v1.schema.openAPIV3Schema.properties.spec.properties"
    assert _diff_specs(crd["spec"], installed) == [
        f"{path}.hostname (missing in the cluster)",
        f"{path}.host (only in the cluster)",
    ]


@pytest.mark.parametrize(
    ("readable", "remaining"),
    [(True, "2 remain"), (False, "their number is unknown because they cannot be listed")],
)
async def test_crd_in_deletion_is_a_problem(readable: bool, remaining: str) -> None:
    api = FakeApi([HostInfo])
    api.add(*(HostInfo(metadata=ObjectMeta(namespace="a", name=name)) for name in ("one", "two")))
    name = "hostinfoes.topology.corinternal.com"
    (crd,) = (item for key, item in api.objects.items() if key.endswith(name))
    crd["metadata"]["deletionTimestamp"] = "2026-11-16T12:00:00Z"
    if not readable:
        api.fail_next("GET", "v1/hostinfoes", Forbidden("hostinfoes is forbidden"))
    (finding,) = [finding async for finding in check(Client(api), [HostInfo], Installation())]
    assert finding.level == "problem"
    assert finding.message.startswith(
        f"{name} has been in deletion since 2026-11-16T12:00:00Z, with all its objects: {remaining}"
    )
    assert finding.fix.startswith(f"kubectl wait --for=delete crd/{name} ")
    assert "kubectl apply --server-side -k config/crd" in finding.fix


async def test_deletion_of_vmgroups_destroys_vms() -> None:
    api = FakeApi([VmGroup])
    (crd,) = api.objects.values()
    crd["metadata"]["deletionTimestamp"] = "2026-11-16T12:00:00Z"
    (finding,) = [finding async for finding in check(Client(api), [VmGroup], Installation())]
    assert "with all its objects: 0 remain." in finding.message
    assert "destroys the VMs of each VmGroup" in finding.message


JSON_VALUES = st.recursive(
    st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON_VALUES), st.dictionaries(st.text(), JSON_VALUES))
def test_values_have_differences_exactly_if_they_are_not_equal(
    generated: dict[str, Any], installed: dict[str, Any]
) -> None:
    installed = {
        key: value
        for key, value in installed.items()
        if key not in ("conversion", "preserveUnknownFields")
    }
    assert bool(_diff_specs(generated, installed)) == (generated != installed)
