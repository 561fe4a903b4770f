"""The status of a VM, the names of the original CRD, and the controller on a fake API server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from kubewright import Cache, Terminal
from kubewright.crd import build_crds
from support.fake_environment import FakeEnvironment, make_refs, run_manager
from vsphere_operators.kinds.vminfo import (
    VMInfo,
    VMInfoController,
    VMInfoStatus,
    ready_outcome,
    vm_status_of,
)
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vsphere.model import Location, VirtualMachine, VirtualMachineStats
from vsphere_operators.vsphere.updates import Ref

SAMPLES = Path(__file__).parents[2] / "config/samples"
LOCATION = Location(path="/dc-1/vm/tkg/node-1", datacenter="dc-1", cluster="cluster-1")
VM = VirtualMachine(
    ref="vm-7",
    name="node-1",
    parent="group-v3",
    host="host-12",
    connection="connected",
    power="poweredOn",
    bios_uuid="422a1b2c-0000-4000-8000-000000000001",
    instance_uuid="502a1b2c-0000-4000-8000-000000000001",
    configured_guest_id="otherLinux64Guest",
    hardware_version="vmx-19",
    cpus=4,
    memory_mb=8192,
    cpu_reservation_mhz=0,
    memory_reservation_mb=1024,
    vmx_path="[nvme-1] node-1/node-1.vmx",
    datastores=("datastore-2", "datastore-1", "datastore-9"),
    tools_running="guestToolsRunning",
    tools_version="guestToolsCurrent",
    guest_id="vmwarePhoton64Guest",
    guest_hardware_version="vmx-17",
    ip_address="10.0.0.7",
    ip_addresses=("10.0.0.7", "fe80::1", "172.16.0.7"),
    stats=VirtualMachineStats(cpu_usage_mhz=100, guest_memory_mb=200),
)
FULL_STATUS = VMInfoStatus(
    guestId="vmwarePhoton64Guest",
    totalCPU=4,
    resvdCPU=0,
    totalMem=8192,
    resvdMem=1024,
    powerState="poweredOn",
    hwVersion="vmx-17",
    ipAddress="10.0.0.7",
    pathToVM="[nvme-1] node-1/node-1.vmx",
    host="esxi-1",
    connectionState="connected",
    toolsRunningStatus="guestToolsRunning",
    toolsVersionStatus="guestToolsCurrent",
    ipAddresses=["10.0.0.7", "fe80::1", "172.16.0.7"],
    datastores=["iso", "nvme-1"],
    biosUUID="422a1b2c-0000-4000-8000-000000000001",
    instanceUUID="502a1b2c-0000-4000-8000-000000000001",
    template=False,
    cluster="cluster-1",
    datacenter="dc-1",
    inventoryPath="/dc-1/vm/tkg/node-1",
    vcenter="vc-1",
)
VM_WITHOUT_TOOLS = replace(
    VM,
    tools_running="guestToolsNotRunning",
    tools_version="",
    guest_id="",
    guest_hardware_version="",
    ip_address="",
    ip_addresses=(),
)


def make_status(vm: VirtualMachine) -> VMInfoStatus:
    return vm_status_of(vm, LOCATION, "esxi-1", ["nvme-1", "iso", ""], "vc-1")


def test_status_of_a_vm() -> None:
    assert make_status(VM) == FULL_STATUS
    assert ready_outcome(VM).reason == "Reconciled"


def test_without_tools_the_configured_guest_is_shown() -> None:
    assert make_status(VM_WITHOUT_TOOLS) == replace(
        FULL_STATUS,
        guestId="otherLinux64Guest",
        hwVersion="vmx-19",
        ipAddress=None,
        ipAddresses=None,
        toolsRunningStatus="guestToolsNotRunning",
        toolsVersionStatus=None,
    )
    done = ready_outcome(VM_WITHOUT_TOOLS)
    assert done.reason == "ToolsNotRunning"
    assert "Install or start open-vm-tools" in done.message


def test_tools_that_execute_scripts_are_running() -> None:
    assert (
        ready_outcome(replace(VM, tools_running="guestToolsExecutingScripts")).reason
        == "Reconciled"
    )


def test_powered_off_or_suspended_vm_is_ready_with_a_reason() -> None:
    off = replace(VM_WITHOUT_TOOLS, power="poweredOff")
    assert make_status(off).powerState == "poweredOff"
    assert make_status(off).totalCPU == 4
    assert ready_outcome(off).reason == "PoweredOff"
    assert ready_outcome(replace(VM_WITHOUT_TOOLS, power="suspended")).reason == "Suspended"


def test_template_is_not_reported_as_powered_off() -> None:
    template = replace(VM_WITHOUT_TOOLS, power="poweredOff", is_template=True)
    assert make_status(template).template is True
    assert ready_outcome(template).reason == "Template"


@pytest.mark.parametrize(
    ("state", "reason", "next_step"),
    [
        ("disconnected", "VMDisconnected", "Reconnect the host"),
        ("inaccessible", "VMInaccessible", "Check the datastore"),
        ("invalid", "VMInvalid", "register the VM again"),
        ("orphaned", "VMOrphaned", "remove it from the inventory"),
    ],
)
def test_unavailable_vm_keeps_its_configuration_and_has_no_state(
    state: str, reason: str, next_step: str
) -> None:
    vm = replace(VM, connection=state)
    assert make_status(vm) == replace(
        FULL_STATUS,
        connectionState=state,
        powerState=None,
        ipAddress=None,
        ipAddresses=None,
        toolsRunningStatus=None,
        toolsVersionStatus=None,
    )
    with pytest.raises(Terminal, match=next_step) as caught:
        ready_outcome(vm)
    assert caught.value.reason == reason


def test_no_reservation_is_0_and_an_unknown_one_is_absent() -> None:
    assert make_status(VM).resvdCPU == 0
    unknown = vm_status_of(VirtualMachine(ref="vm-1", name="new"), Location(), "", [], "vc-1")
    assert unknown == VMInfoStatus(template=False, vcenter="vc-1")


def test_crd_has_the_names_of_the_contract() -> None:
    crd = build_crds([VMInfo])[0]["spec"]
    assert (crd["group"], crd["scope"]) == ("topology.corinternal.com", "Namespaced")
    assert crd["names"] == {
        "kind": "VMInfo",
        "listKind": "VMInfoList",
        "plural": "vminfoes",
        "singular": "vminfo",
        "shortNames": ["vi"],
    }
    [version] = crd["versions"]
    assert (version["name"], version["subresources"]) == ("v1", {"status": {}})
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    assert properties["spec"]["properties"].keys() == {"nodename"}
    assert "required" not in properties["spec"]
    types = {name: shape["type"] for name, shape in properties["status"]["properties"].items()}
    numbers = dict.fromkeys(("totalCPU", "resvdCPU", "totalMem", "resvdMem"), "integer")
    texts = dict.fromkeys(("guestId", "powerState", "hwVersion", "ipAddress", "pathToVM"), "string")
    assert types.items() >= (numbers | texts).items()
    columns = version["additionalPrinterColumns"]
    assert [column["name"] for column in columns if not column.get("priority")] == [
        "Nodename",
        "Power",
        "CPUs",
        "Memory-MB",
        "Address",
        "Ready",
        "Age",
    ]


def test_sample_is_that_of_the_contract() -> None:
    sample = yaml.safe_load((SAMPLES / "topology_v1_vminfo.yaml").read_text())
    assert sample == {
        "apiVersion": "topology.corinternal.com/v1",
        "kind": "VMInfo",
        "metadata": {"name": "tkg-worker-1"},
        "spec": {"nodename": "tkg-cluster-1-18-5b-workers-kc5xn-dd68c4685-5v298"},
    }


def make_controller(vcenters: VCenterRegistry, cache: Cache) -> VMInfoController:
    return VMInfoController(vcenters)


def environment_with_vm() -> FakeEnvironment:
    """A VM on a standalone host, with its files on two datastores."""
    environment = FakeEnvironment()
    environment.enter("Datacenter", "datacenter-1", name="dc-1")
    environment.enter("Folder", "group-v1", name="vm", parent=Ref("Datacenter", "datacenter-1"))
    environment.enter("Datastore", "datastore-1", name="nvme-1")
    environment.enter("Datastore", "datastore-2", name="iso")
    environment.enter("HostSystem", "host-1", name="esxi-1", runtime__connectionState="connected")
    environment.enter(
        "VirtualMachine",
        "vm-1",
        name="node-1",
        parent=Ref("Folder", "group-v1"),
        runtime__host=Ref("HostSystem", "host-1"),
        runtime__connectionState="connected",
        runtime__powerState="poweredOn",
        summary__config__numCpu=4,
        summary__config__cpuReservation=0,
        datastore=make_refs("Datastore", ["datastore-1", "datastore-2"]),
        config__guestId="otherLinux64Guest",
        summary__guest__toolsRunningStatus="guestToolsRunning",
        summary__guest__guestId="vmwarePhoton64Guest",
        summary__guest__ipAddress="10.0.0.7",
    )
    environment.mark_loaded()
    return environment


async def test_change_in_vcenter_updates_the_status() -> None:
    environment = environment_with_vm()
    environment.create(VMInfo, "v", nodename="node-1")
    async with run_manager(environment, make_controller):
        info, _ = await environment.wait_for_ready(VMInfo, "v", "Reconciled")
        assert (info.status.totalCPU, info.status.resvdCPU, info.status.totalMem) == (4, 0, None)
        assert (info.status.host, info.status.datastores) == ("esxi-1", ["iso", "nvme-1"])
        assert (info.status.inventoryPath, info.status.cluster) == ("/dc-1/vm/node-1", None)
        environment.modify("Datastore", "datastore-2", name="images")
        await environment.wait_for_ready(
            VMInfo, "v", "Reconciled", lambda status: status.datastores == ["images", "nvme-1"]
        )
        environment.modify("HostSystem", "host-1", name="esxi-2")
        await environment.wait_for_ready(
            VMInfo, "v", "Reconciled", lambda status: status.host == "esxi-2"
        )
        environment.modify(
            "VirtualMachine",
            "vm-1",
            summary__guest__toolsRunningStatus="guestToolsNotRunning",
            summary__guest__guestId=None,
            summary__guest__ipAddress=None,
        )
        info, condition = await environment.wait_for_ready(VMInfo, "v", "ToolsNotRunning")
        assert (condition.status, info.status.guestId, info.status.ipAddress) == (
            "True",
            "otherLinux64Guest",
            None,
        )
        environment.modify("VirtualMachine", "vm-1", runtime__powerState="poweredOff")
        await environment.wait_for_ready(VMInfo, "v", "PoweredOff")


async def test_deleted_vm_clears_the_numbers_and_a_new_one_is_found() -> None:
    environment = environment_with_vm()
    environment.create(VMInfo, "v", nodename="node-1")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(VMInfo, "v", "Reconciled")
        environment.leave("VirtualMachine", "vm-1")
        info, _ = await environment.wait_for_ready(VMInfo, "v", "VMNotFound")
        assert info.status == VMInfoStatus(conditions=info.status.conditions, observedGeneration=1)
        environment.enter(
            "VirtualMachine",
            "vm-2",
            name="node-1",
            runtime__powerState="poweredOff",
            summary__config__numCpu=8,
        )
        await environment.wait_for_ready(
            VMInfo, "v", "PoweredOff", lambda status: status.totalCPU == 8
        )
        environment.enter("VirtualMachine", "vm-3", name="node-1")
        info, condition = await environment.wait_for_ready(VMInfo, "v", "VMAmbiguous")
        assert (condition.status, info.status.totalCPU) == ("False", None)


async def test_empty_spec_reports_the_missing_field() -> None:
    environment = environment_with_vm()
    environment.create(VMInfo, "v")
    async with run_manager(environment, make_controller):
        _, condition = await environment.wait_for_ready(VMInfo, "v", "NodenameMissing")
        assert condition.status == "False"
        assert "Set it to the name of a virtual machine" in condition.message
