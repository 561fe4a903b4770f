"""The flags of GPUInfo."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from kubewright import Key
from kubewright.flags import Duration, flag, format_duration, invalid_value

from .node import Simulation
from .rules import SelectionRules

_RESOURCE_PATTERN = re.compile(r"[A-Za-z0-9*.?-]+/[A-Za-z0-9*._?-]+")
_DEFAULT_GPU_RESOURCES = (
    "nvidia.com/gpu,nvidia.com/gpu.shared,nvidia.com/mig-*,amd.com/gpu,gpu.intel.com/*"
)
# 100 years: now plus the horizon stays within the range of datetime.
_MAX_HORIZON_HOURS = 876_000
_VSPHERE, _SIMULATED = "vsphere", "simulated"


@dataclass(frozen=True)
class GPUFlags:
    """How a node is selected for a GPUInfo."""

    source: str = flag(
        "accelerator-source",
        _VSPHERE,
        "Source of GPUs and hours to maintenance: vsphere, or simulated (random, for trials).",
    )
    seed: str = flag(
        "accelerator-seed",
        "",
        "Seed for -accelerator-source=simulated. If empty, a random seed is used.",
    )
    resources: str = flag(
        "gpu-resources",
        _DEFAULT_GPU_RESOURCES,
        "Node resources that count as GPUs: comma-separated names or globs.",
    )
    calendar: str = flag(
        "maintenance-calendar",
        "",
        "ConfigMap with planned maintenance, as namespace/name; see docs/designs/gpuinfo.md.",
    )
    horizon_seconds: Duration = flag(
        "maintenance-horizon",
        8760 * 3600.0,
        "Hours reported for nodes without scheduled maintenance.",
    )
    margin_percent: float = flag(
        "suitable-node-margin-percent",
        10.0,
        "Minimum relative difference in CPU demand (percent) before another node is selected.",
    )
    margin_mhz: float = flag(
        "suitable-node-margin-mhz",
        100.0,
        "Minimum absolute difference in CPU demand (MHz) before another node is selected.",
    )
    label_nodes: bool = flag(
        "label-suitable-nodes",
        False,
        "Label the selected Node with the name of the GPUInfo; requires permission to patch nodes.",
    )

    def __post_init__(self) -> None:
        if self.source not in (_VSPHERE, _SIMULATED):
            raise invalid_value(
                "accelerator-source", self.source, f"must be {_VSPHERE} or {_SIMULATED}"
            )
        for name in self.gpu_resource_globs:
            if not _RESOURCE_PATTERN.fullmatch(name):
                raise invalid_value(
                    "gpu-resources", name, "must be the name of a resource, such as nvidia.com/gpu"
                )
        if self.calendar and not re.fullmatch("[a-z0-9-]+/[a-z0-9.-]+", self.calendar):
            raise invalid_value(
                "maintenance-calendar", self.calendar, "must be the namespace/name of a ConfigMap"
            )
        if not 3600 <= self.horizon_seconds <= _MAX_HORIZON_HOURS * 3600:
            raise invalid_value(
                "maintenance-horizon",
                format_duration(self.horizon_seconds),
                f"must be at least 1h and at most {_MAX_HORIZON_HOURS}h",
            )
        if not 0 <= self.margin_percent <= 100:
            raise invalid_value(
                "suitable-node-margin-percent", f"{self.margin_percent:g}", "must be from 0 to 100"
            )
        if not 0 <= self.margin_mhz < 1e6:
            raise invalid_value(
                "suitable-node-margin-mhz", f"{self.margin_mhz:g}", "must be 0 or more"
            )

    @property
    def gpu_resource_globs(self) -> tuple[str, ...]:
        return tuple(filter(None, (name.strip() for name in self.resources.split(","))))

    @property
    def calendar_key(self) -> Key | None:
        namespace, _, name = self.calendar.partition("/")
        return Key(namespace, name) if name else None

    @property
    def selection_rules(self) -> SelectionRules:
        return SelectionRules(
            int(self.horizon_seconds // 3600), self.margin_percent / 100, self.margin_mhz
        )

    def build_simulation(self) -> Simulation | None:
        return Simulation(self.seed or secrets.token_hex(8)) if self.source == _SIMULATED else None
