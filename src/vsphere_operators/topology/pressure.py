"""Signs that a host has less CPU or memory than its VMs ask for. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from ..vsphere.model import Host, VirtualMachine
from .model import Pressure

# VMware's guidance: above 5 % of ready time, users of a VM notice.
_CPU_READINESS_PERCENT = 5
# Ballooned and swapped memory below this share of the host's memory is common after a short peak,
# and swapped memory stays swapped until the guest reads it.
_MEMORY_SHARE = 0.01
_BYTES_PER_MB = 2**20


def find_pressure(
    host: Host, vms: Sequence[VirtualMachine], *, is_entering: bool = False
) -> tuple[Pressure, ...]:
    """What a Node on this host suffers from; empty if nothing is known or all is well."""
    signs = []
    if host.in_maintenance or is_entering:
        state = "is in" if host.in_maintenance else "is entering"
        signs.append(Pressure(type="Maintenance", message=f"The host {state} maintenance mode."))
    readiness = max((vm.stats.cpu_readiness_percent or 0 for vm in vms), default=0)
    if readiness >= _CPU_READINESS_PERCENT:
        count = sum((vm.stats.cpu_readiness_percent or 0) >= _CPU_READINESS_PERCENT for vm in vms)
        signs.append(
            Pressure(
                type="CPUReady",
                message=f"{_count_vms(count)} waited for a CPU {_CPU_READINESS_PERCENT} % of the "
                f"time or more; the highest value is {readiness} %.",
            )
        )
    limit_mb = (host.memory_bytes or 0) / _BYTES_PER_MB * _MEMORY_SHARE
    for pressure_type, action, sizes in (
        ("Ballooning", "taken from", [vm.stats.ballooned_memory_mb or 0 for vm in vms]),
        ("Swapping", "swapped to disk for", [vm.stats.swapped_memory_mb or 0 for vm in vms]),
    ):
        if (total := sum(sizes)) > limit_mb:
            message = f"{total} MB are {action} {_count_vms(sum(map(bool, sizes)))}."
            signs.append(Pressure(type=pressure_type, message=message))
    return tuple(signs)


def _count_vms(count: int) -> str:
    return "1 VM" if count == 1 else f"{count} VMs"
