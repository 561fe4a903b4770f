"""Assignable hardware: decoding, and when hosts are read."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from kubewright.testing import eventually
from simulator import SimulatedVCenter as Simulator
from vsphere_operators.vsphere.converters import require_assigned_devices
from vsphere_operators.vsphere.devices import AssignableHardwareCache, _decode_device_info
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.model import (
    AssignableDevice,
    AssignableHardware,
    AssignedDevice,
    GraphicsDevice,
    Host,
)
from vsphere_operators.vsphere.polling import PollSchedule
from vsphere_operators.vsphere.updates import Ref, Value
from vsphere_operators.vsphere.vcenter import VCenter

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials

A100 = "NVIDIA A100-PCIE-40GB"
HARDWARE = AssignableHardware((AssignableDevice("A100"),))


def test_assigned_devices_of_a_host() -> None:
    vm = Ref("VirtualMachine", "vm-7")
    binding: Value = {"instanceId": "pcie:0000:3B:00.0", "vm": vm}
    silent: Value = {"instanceId": "group-1", "vm": vm}
    assert require_assigned_devices((binding, silent)) == (
        AssignedDevice("vm-7", ""),
        AssignedDevice("vm-7", "0000:3b:00.0"),
    )
    with pytest.raises(TypeError, match="dict instead of a list"):
        require_assigned_devices(binding)


def test_assignable_device_of_a_host() -> None:
    info: dict[str, Value] = {"name": "0000:3B:00.0", "deviceName": "A100", "vendorName": "NVIDIA"}
    assert _decode_device_info(info) == AssignableDevice("A100", "NVIDIA", "", "0000:3b:00.0")
    assert _decode_device_info(
        {"name": "a", "deviceName": "", "vendorName": "", "customLabel": "fast"}
    ) == AssignableDevice("a", "", "fast", "")


async def test_real_calls_follow_vms_that_power_on_and_off(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    flags = ("--clusters=1", "--hosts=1", "--vms=1", "--gpu-vm=DC0_C0_RP0_VM0=dynamic")
    simulator = await Simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path, *flags
    ).start()
    vcenter = VCenter(
        "vc",
        simulator_address(simulator),
        simulator_credentials(simulator),
        Mock(),
        RecordingMetrics(),
    )
    # Instead of 5 s between two polls.
    vcenter.assignable_hardware.poll_schedule = PollSchedule(
        300.0, debounce_seconds=0.05, min_interval_seconds=0.1
    )
    task = asyncio.create_task(vcenter.run())
    try:
        await simulator.set_host_gpus("DC0_C0_H0", 2, "direct")
        await eventually(lambda: vcenter.loaded)
        host, vm = (
            vcenter.inventory.find_host("DC0_C0_H0").ref,
            vcenter.inventory.find_vm("DC0_C0_RP0_VM0").ref,
        )
        devices = tuple(
            AssignableDevice(A100, "NVIDIA Corporation", "", f"0000:{number}:00.0")
            for number in ("3b", "3c")
        )
        await eventually(
            lambda: vcenter.assignable_hardware.get(host) == AssignableHardware(devices)
        )
        assert vcenter.inventory.hosts[host].assigned_devices == (
            AssignedDevice(vm, "0000:3b:00.0"),
        )
        await simulator.set_power("DC0_C0_RP0_VM0", on=False)
        await eventually(lambda: vcenter.inventory.hosts[host].assigned_devices == ())
        await simulator.set_power("DC0_C0_RP0_VM0", on=True)
        await eventually(lambda: len(vcenter.inventory.hosts[host].assigned_devices) == 1)
        await simulator.set_host_gpus("DC0_C0_H0", 1, "direct")
        await eventually(
            lambda: vcenter.assignable_hardware.get(host) == AssignableHardware(devices[:1])
        )
    finally:
        await cancel_task(task)
        await simulator.stop()


async def cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_host_is_read_on_request_and_when_its_graphics_change() -> None:
    inventory, host = Inventory("vc"), Host(ref="host-1")
    inventory.hosts["host-1"] = host
    assignable, changed_refs = (
        AssignableHardwareCache(Mock(), Mock(), inventory, Mock()),
        list[str](),
    )
    assignable.changed.connect(changed_refs.append)
    other = Host(ref="host-1", graphics=(GraphicsDevice("A100"),))
    assert assignable.due_hosts == set()
    assert assignable.get("host-1") == AssignableHardware()
    assert (assignable.due_hosts, assignable.poll_schedule.triggered.is_set()) == ({"host-1"}, True)
    assignable.due_hosts.clear()
    for hardware in (AssignableHardware(), HARDWARE, HARDWARE):
        assignable.apply("host-1", hardware)
    assignable.apply("host-2", HARDWARE)
    assert (assignable.get("host-1"), changed_refs) == (HARDWARE, ["host-1"])
    assert assignable.due_hosts == set()
    inventory.hosts["host-1"] = other
    assert assignable.get("host-1") == HARDWARE
    assert assignable.due_hosts == {"host-1"}
    del inventory.hosts["host-1"]
    await assignable.poll()
    assert (assignable.due_hosts, assignable.by_host) == (set(), {})
