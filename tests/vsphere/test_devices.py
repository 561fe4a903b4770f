"""Passthrough devices of VMs: decoding, and when the simulator's VMs are read."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter as Simulator
from vsphere_operators.vsphere.devices import DEVICES_PROPERTY, decode_passthrough_devices
from vsphere_operators.vsphere.model import PassthroughDevice
from vsphere_operators.vsphere.updates import Value
from vsphere_operators.vsphere.vcenter import VCenter

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials


def test_passthrough_device_of_each_backing() -> None:
    vgpu: Value = {"@type": "VirtualPCIPassthrough", "backing": {"vgpu": "grid_a100-4c"}}
    whole: Value = {"backing": {"deviceName": "A100", "id": "0000:3b:00.0", "vendorId": "4318"}}
    intel: Value = {"backing": {"deviceName": "X710", "id": "0000:5e:00.0", "vendorId": "-32634"}}
    dynamic: Value = {
        "backing": {"deviceName": "", "allowedDevice": ({"vendorId": "4318"}, {"vendorId": "4098"})}
    }
    assert decode_passthrough_devices(
        {DEVICES_PROPERTY: (vgpu, whole, intel, dynamic, {"key": "1"})}
    ) == (
        PassthroughDevice(vgpu_profile="grid_a100-4c"),
        PassthroughDevice(name="A100", pci_id="0000:3b:00.0", vendor_ids=(0x10DE,)),
        PassthroughDevice(name="X710", pci_id="0000:5e:00.0", vendor_ids=(0x8086,)),
        PassthroughDevice(vendor_ids=(0x10DE, 0x1002)),
    )
    assert decode_passthrough_devices({}) == ()


async def test_only_requested_vms_are_read_and_again_after_a_change(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    flags = (
        "--clusters=1",
        "--hosts=2",
        "--vms=3",
        "--gpu-vm=DC0_C0_RP0_VM0=vgpu",
        "--gpu-host=DC0_C0_H0=shared",
    )
    simulator = await Simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path, *flags
    ).start()
    tally = RecordingMetrics()
    vcenter = VCenter(
        "vc", simulator_address(simulator), simulator_credentials(simulator), Log("test"), tally
    )
    task = asyncio.create_task(vcenter.run())
    try:
        await eventually(lambda: vcenter.loaded)
        host = vcenter.inventory.find_host("DC0_C0_H0")
        assert {(device.name, device.type, device.memory_kb) for device in host.graphics} == {
            ("NVIDIA A100-PCIE-40GB", "sharedDirect", 40 << 20)
        }
        assert "grid_a100-10c" in host.vgpu_profiles
        first, second = (
            vcenter.inventory.find_vm(f"DC0_C0_RP0_VM{number}").ref for number in (0, 1)
        )
        assert not [method for method, _ in tally.calls if method == "RetrievePropertiesEx"]
        assert vcenter.passthrough_devices.get(first) is None
        assert vcenter.passthrough_devices.get(second) is None
        await eventually(
            lambda: (
                vcenter.passthrough_devices.get(first)
                == (PassthroughDevice(vgpu_profile="grid_a100-10c"),)
            )
        )
        assert vcenter.passthrough_devices.get(second) == ()
        await simulator.add_gpu("DC0_C0_RP0_VM1", "passthrough")
        await eventually(
            lambda: (
                [device.vendor_ids for device in vcenter.passthrough_devices.get(second) or ()]
                == [(0x10DE,)]
            )
        )
        assert set(vcenter.passthrough_devices.values) == {first, second}
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await simulator.stop()


async def test_unreadable_devices_are_hidden_until_readable(
    simulator: Simulator, log: Log, metrics: RecordingMetrics
) -> None:
    vcenter = VCenter(
        "vc", simulator_address(simulator), simulator_credentials(simulator), log, metrics
    )
    task = asyncio.create_task(vcenter.run())
    try:
        await eventually(lambda: vcenter.loaded)
        await simulator.fail_calls("RetrievePropertiesEx", "NoPermission")
        ref, changed_refs = min(vcenter.inventory.vms), list[str]()
        vcenter.passthrough_devices.changed.connect(changed_refs.append)
        assert vcenter.passthrough_devices.get(ref) is None
        await eventually(lambda: vcenter.passthrough_devices.unreadable == {ref})
        assert (vcenter.passthrough_devices.get(ref), changed_refs) == ((), [ref])
        vcenter.passthrough_devices.unreadable_retried_at -= 60
        vcenter.passthrough_devices.poll_schedule.trigger()
        await eventually(lambda: not vcenter.passthrough_devices.unreadable)
        assert changed_refs == [ref, ref]
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
