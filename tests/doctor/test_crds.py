"""The comparison of installed and generated CRDs: plain calls."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubewright.crd import build_crds
from vsphere_operators.doctor.crds import _diff_specs
from vsphere_operators.kinds.hostinfo import HostInfo


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
