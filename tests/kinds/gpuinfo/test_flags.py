"""The flags of GPUInfo."""

from __future__ import annotations

import pytest

from kubewright import Key
from kubewright.flags import FlagError, parse_command_line
from vsphere_operators.kinds.gpuinfo.flags import GPUFlags
from vsphere_operators.kinds.gpuinfo.label_slots import LabelLimits
from vsphere_operators.kinds.gpuinfo.rules import SelectionRules


def parse_flags(*arguments: str) -> GPUFlags:
    return parse_command_line(GPUFlags, arguments, {})


def test_defaults() -> None:
    flags = parse_flags()
    assert flags.selection_rules == SelectionRules(
        unplanned_hours=8760, margin_fraction=0.1, margin_mhz=100
    )
    assert (flags.build_simulation(), flags.calendar_key, flags.label_nodes) == (None, None, False)
    assert "nvidia.com/mig-*" in flags.gpu_resource_globs
    assert flags.label_limits == LabelLimits(per_node=50, per_namespace=50, interval_seconds=60)


def test_flags_are_parsed() -> None:
    flags = parse_flags(
        "-accelerator-source=simulated",
        "-accelerator-seed=7",
        "-maintenance-calendar=a/b",
        "-maintenance-horizon=48h",
        "-labels-per-node=7",
        "-labels-per-namespace=9",
        "-label-move-interval=0s",
    )
    assert flags.label_limits == LabelLimits(per_node=7, per_namespace=9, interval_seconds=0)
    simulation = flags.build_simulation()
    assert simulation is not None
    assert simulation.seed == "7"
    assert (flags.calendar_key, flags.selection_rules.unplanned_hours) == (Key("a", "b"), 48)
    other = parse_flags("-accelerator-source=simulated")
    assert other.build_simulation() != other.build_simulation()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("-accelerator-source=dice", "must be vsphere or simulated"),
        ("-gpu-resources=nvidia.com/gpu,gpu", 'invalid value "gpu" for flag -gpu-resources'),
        ("-maintenance-calendar=calendar", "namespace/name of a ConfigMap"),
        ("-maintenance-horizon=5m", "at least 1h"),
        ("-maintenance-horizon=1000000h", "at most 876000h"),
        ("-suitable-node-margin-mhz=-1", "0 or more"),
        ("-labels-per-node=0", "from 1 to 1000"),
        ("-labels-per-namespace=1001", "from 1 to 1000"),
        ("-label-move-interval=-1s", "from 0s to 24h"),
        ("-suitable-node-margin-percent=200", "from 0 to 100"),
    ],
)
def test_invalid_value_is_rejected(argument: str, message: str) -> None:
    with pytest.raises(FlagError, match=message):
        parse_flags(argument)
