"""The request of each action that changes a VM: its verb for messages, its call, its effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, assert_never

from msgspec import Struct

from ...vsphere.vm_calls import VmCalls
from .group_memory import TaskEffect
from .model import Destroy, PowerOff, PowerOn, Resize
from .read_age import seconds_left

VmAction = PowerOn | PowerOff | Resize | Destroy
# Receives the result of the read before the call, None without one.
Call = Callable[[Any], Awaitable[Any]]


class VmRequest(Struct, frozen=True):
    verb: str
    effect: TaskEffect
    call: Call


def build_vm_request(action: VmAction, vm_calls: VmCalls, clock: Callable[[], float]) -> VmRequest:
    ref = action.vm.ref
    match action:
        case PowerOn():
            return VmRequest("Powering on", "poweredOn", lambda _: vm_calls.power_on(ref))
        case PowerOff():
            return VmRequest("Powering off", "poweredOff", lambda _: vm_calls.power_off(ref))
        case Resize(cpus=cpus, cores_per_socket=cores, memory_mb=memory_mb):
            return VmRequest(
                "Resizing", "reconfigured", lambda _: vm_calls.resize(ref, cpus, cores, memory_mb)
            )
        case Destroy():
            return VmRequest(
                "Destroying",
                "destroyed",
                lambda read_at: vm_calls.destroy(ref, seconds_left(clock() - read_at)),
            )
        case _:
            assert_never(action)
