"""The flags of the labels and the condition of Nodes."""

from __future__ import annotations

import pytest

from kubewright.errors import ConfigError
from kubewright.flags import parse_command_line
from vsphere_operators.settings.flags import Settings


def test_labels_are_off_by_default_and_independent_of_those_of_gpuinfo() -> None:
    assert not Settings().node_labels.enabled
    settings = parse_command_line(Settings, ("-label-nodes", "-host-pressure-interval=5m"), {})
    assert settings.node_labels.enabled
    assert settings.node_labels.pressure_interval_seconds == 300.0
    assert not settings.gpu.label_nodes
    suitable = parse_command_line(Settings, ("-label-suitable-nodes",), {})
    assert (suitable.node_labels.enabled, suitable.gpu.label_nodes) == (False, True)


@pytest.mark.parametrize("value", ["0s", "500ms", "25h"])
def test_interval_outside_of_its_range_is_rejected(value: str) -> None:
    with pytest.raises(ConfigError, match=r"host-pressure-interval: must be from 1s to 24h"):
        parse_command_line(Settings, (f"-host-pressure-interval={value}",), {})
