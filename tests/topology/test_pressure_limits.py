"""The model has the limits of the Node condition, so that a page colours a VM as it does."""

from __future__ import annotations

import pytest

from vsphere_operators.topology import model
from vsphere_operators.topology.store import store_of
from vsphere_operators.vsphere.pressure import PressureHysteresis, PressureType


def read_limits() -> dict[str, model.PressureLimit]:
    return store_of([]).build_topology().pressureLimits


def test_every_figure_has_limits() -> None:
    assert {
        type_: (limit.warmPercent, limit.hotPercent) for type_, limit in read_limits().items()
    } == {
        "MemorySwapping": (5, 10),
        "MemoryBallooning": (2, 5),
        "CPUReady": (5, 10),
    }


@pytest.mark.parametrize("type_", ["MemorySwapping", "MemoryBallooning", "CPUReady"])
def test_condition_begins_at_hot_and_ends_below_warm(type_: str) -> None:
    limit, pressure_type = read_limits()[type_], PressureType(type_)
    gauge = PressureHysteresis(hold_seconds=0.0)

    def is_active_at(percent: float) -> bool:
        gauge.update({pressure_type: percent}, 0.0)
        return pressure_type in gauge.active_types

    assert not is_active_at(limit.hotPercent - 0.1)
    assert is_active_at(limit.hotPercent)
    assert is_active_at(limit.warmPercent)
    assert not is_active_at(limit.warmPercent - 0.1)
