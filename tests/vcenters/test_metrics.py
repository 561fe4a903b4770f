"""The labels of metrics of vCenters."""

from __future__ import annotations

import pytest

from kubewright.metrics import Metrics
from support.fake_environment import FakeEnvironment
from vsphere_operators.vcenters.metrics import VCenterMetrics
from vsphere_operators.vsphere.faults import Unreachable, VCenterError, WrongLogin


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


@pytest.mark.parametrize(
    ("problem", "up", "login_rejected"),
    [(None, 1, 0), (Unreachable("no response"), 0, 0), (WrongLogin("wrong password"), 0, 1)],
)
def test_availability_of_a_vcenter(
    problem: VCenterError | None, up: float, login_rejected: float
) -> None:
    metrics, environment = Metrics(), FakeEnvironment()
    VCenterMetrics(metrics).register_gauges(environment.vcenter)

    def read() -> tuple[float | None, float | None]:
        return (
            metrics.registry.get_sample_value("vsphere_vcenter_up", {"vcenter": "vc-1"}),
            metrics.registry.get_sample_value(
                "vsphere_vcenter_login_rejected", {"vcenter": "vc-1"}
            ),
        )

    assert read() == (0, 0)
    environment.mark_loaded()
    environment.vcenter.problem = problem
    assert read() == (up, login_rejected)
