"""The flags of GPUInfo."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from kubewright import Key
from kubewright.flags import Duration, FlagError, flag, format_duration

from .node import Simulation
from .rules import SelectionRules

_RESOURCE_PATTERN = re.compile(r"[A-Za-z0-9*.?-]+/[A-Za-z0-9*._?-]+")
_DEFAULT_GPU_RESOURCES = (
    "nvidia.com/gpu,nvidia.com/gpu.shared,nvidia.com/mig-*,amd.com/gpu,gpu.intel.com/*"
)
_MAX_HORIZON_HOURS = 876_000
VSPHERE, SIMULATED = "vsphere", "simulated"


@dataclass(frozen=True)
class GPUFlags:
    """How nodes for long jobs are chosen."""

    source: str = flag(
        "accelerator-source",
        VSPHERE,
        "Where GPUs and hours to maintenance come from: vsphere, or simulated (random numbers, to try it out).",
    )
    seed: str = flag(
        "accelerator-seed",
        "",
        "With -accelerator-source=simulated: the same seed gives the same numbers. Empty: others each start.",
    )
    resources: str = flag(
        "gpu-resources",
        _DEFAULT_GPU_RESOURCES,
        "Resources of a Node that are GPUs; names or globs, with commas between them.",
    )
    calendar: str = flag(
        "maintenance-calendar",
        "",
        "ConfigMap with planned maintenance, as namespace/name; see docs/designs/gpuinfo.md.",
    )
    horizon_seconds: Duration = flag(
        "maintenance-horizon",
        8760 * 3600.0,
        "The time that a node has for which no maintenance is known.",
    )
    margin_percent: float = flag(
        "suitable-node-margin-percent",
        10.0,
        "How much less CPU demand, of the present one's, another node must have for an answer to move to it.",
    )
    margin_mhz: float = flag(
        "suitable-node-margin-mhz", 100.0, "And how many MHz less beside that."
    )
    label_nodes: bool = flag(
        "label-suitable-nodes",
        False,
        "Label the chosen Node with the name of the GPUInfo; needs the right to patch nodes.",
    )

    def __post_init__(self) -> None:
        if self.source not in (VSPHERE, SIMULATED):
            raise FlagError(
                f'invalid value "{self.source}" for flag -accelerator-source: it has to be {VSPHERE} or {SIMULATED}'
            )
        for name in self.gpu_resource_globs:
            if not _RESOURCE_PATTERN.fullmatch(name):
                raise FlagError(
                    f'invalid value "{name}" for flag -gpu-resources: it has to be the name of a resource, such as nvidia.com/gpu'
                )
        if self.calendar and not re.fullmatch("[a-z0-9-]+/[a-z0-9.-]+", self.calendar):
            raise FlagError(
                f'invalid value "{self.calendar}" for flag -maintenance-calendar: it has to be namespace/name of a ConfigMap'
            )
        if not 3600 <= self.horizon_seconds <= _MAX_HORIZON_HOURS * 3600:
            words = f"it has to be at least 1h and at most {_MAX_HORIZON_HOURS}h"
            raise FlagError(
                f'invalid value "{format_duration(self.horizon_seconds)}" for flag -maintenance-horizon: {words}'
            )
        if not 0 <= self.margin_percent <= 100:
            raise FlagError(
                f'invalid value "{self.margin_percent:g}" for flag -suitable-node-margin-percent: it has to be from 0 to 100'
            )
        if not 0 <= self.margin_mhz < 1e6:
            raise FlagError(
                f'invalid value "{self.margin_mhz:g}" for flag -suitable-node-margin-mhz: it has to be 0 or more'
            )

    @property
    def gpu_resource_globs(self) -> tuple[str, ...]:
        """The resources one by one."""
        return tuple(filter(None, (name.strip() for name in self.resources.split(","))))

    @property
    def calendar_key(self) -> Key | None:
        """Which ConfigMap, None for none."""
        namespace, _, name = self.calendar.partition("/")
        return Key(namespace, name) if name else None

    @property
    def selection_rules(self) -> SelectionRules:
        """How answers are found."""
        return SelectionRules(
            int(self.horizon_seconds // 3600), self.margin_percent / 100, self.margin_mhz
        )

    def build_simulation(self) -> Simulation | None:
        """Random numbers, if they are asked for by name."""
        return Simulation(self.seed or secrets.token_hex(8)) if self.source == SIMULATED else None
