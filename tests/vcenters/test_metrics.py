"""The labels of metrics of vCenters."""

from __future__ import annotations

import pytest

from kubewright.metrics import Metrics
from vsphere_operators.vcenters.metrics import VCenterMetrics


@pytest.mark.parametrize(
    ("call", "label"),
    [
        ("GET /api/cis/tagging/tag/urn:vmomi:Tag:1:GLOBAL", "GET /api/cis/tagging/tag/id"),
        ("GET /rest/com/vmware/cis/tagging/tag/id:1", "GET /rest/com/vmware/cis/tagging/tag/id"),
        ("GET /api/cis/tagging/category/urn:2", "GET /api/cis/tagging/category/id"),
        ("POST /api/cis/tagging/tag-association", "POST /api/cis/tagging/tag-association"),
        ("POST /api/session", "POST /api/session"),
    ],
)
def test_ids_of_tags_are_not_labels(call: str, label: str) -> None:
    metrics = Metrics()
    VCenterMetrics(metrics).for_vcenter("lab").observe_call(call, "ok", 0.1)
    samples = {
        sample.labels["method"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if family.name == "vsphere_vcenter_calls"
    }
    assert samples == {label}
