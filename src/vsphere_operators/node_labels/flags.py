"""The flags of the labels and the condition on Nodes."""

from __future__ import annotations

from dataclasses import dataclass

from kubewright.flags import Duration, flag, format_duration, invalid_value


@dataclass(frozen=True)
class NodeLabelFlags:
    enabled: bool = flag(
        "label-nodes",
        False,
        "Label each Node with the ESXi host, cluster and datacenter of its VM, and set the "
        "condition VSphereHostPressure; requires the component label-nodes.",
    )
    pressure_interval_seconds: Duration = flag(
        "host-pressure-interval",
        60.0,
        "Time for which a figure must be beyond its threshold to change VSphereHostPressure, and "
        "minimum time between two writes of this condition on one Node.",
    )

    def __post_init__(self) -> None:
        if not 1 <= self.pressure_interval_seconds <= 86400:
            raise invalid_value(
                "host-pressure-interval",
                format_duration(self.pressure_interval_seconds),
                "must be from 1s to 24h",
            )
