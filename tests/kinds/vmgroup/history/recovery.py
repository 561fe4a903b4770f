"""The end of a history: all disturbances stop, and every group has to become correct and quiet."""

from __future__ import annotations

from typing import Any

from vsphere_operators.kinds.vmgroup.model import Quota
from vsphere_operators.kinds.vmgroup.ownership import is_replica_name

from .appliance import DISCOVERED_FOLDER, Appliance
from .events import History
from .world import World

MAX_ROUNDS = 400


async def recover(history: History) -> None:
    world = history.world
    world.faults = False
    for appliance in world.appliances:
        _repair(history, appliance)
    for name in history.list_names():
        # Otherwise the requests may exceed the quota.
        small = {"replicas": 1, "cpu": 1, "memory": 1}
        limited = world.limits.quota != Quota()
        world.api.edit(name, paused=False, **(small if limited else {}))
        world.api.annotate(name, "")
    world.check()
    first, second = world.appliances
    has_second = any(
        obj.get("status", {}).get("vcenterUUID") == second.instance_uuid
        for obj in world.list_groups().values()
    )
    # First in both without a check: groups of one may wait for quota that those of the other have.
    for appliance in (second, first, second) if has_second else ():
        world.served = appliance
        await world.start_manager()
        world.raise_allowed_usage()
        # Also longer than missing VMs are waited for.
        await world.run_manager(30.0, stride=3.0)
        await world.run_manager(330.0, stride=30.0)
        await world.run_manager(30.0, stride=3.0)
    for appliance in (second, first) if has_second else (first,):
        world.served = appliance
        await world.start_manager()
        world.raise_allowed_usage()
        await _settle(world, appliance)


def _repair(history: History, appliance: Appliance) -> None:
    world = history.world
    for host in ("host-1", "host-2", "host-3"):
        world.add_host(appliance, host)
    world.register_found_vms(appliance, [vm for vm in appliance.vms if vm.missing_until])
    for folder in appliance.folders.values():
        history.set_folder_hidden(appliance, folder, False)
    for vm in appliance.vms:
        vm.hidden, vm.inaccessible, vm.disk = False, False, ""
        # In the folder of another group, it would block that group.
        if vm.owner:
            vm.folder = DISCOVERED_FOLDER
    _delete_leftovers(world, appliance)
    appliance.end_sessions()
    world.raise_allowed_usage()


async def _settle(world: World, appliance: Appliance) -> None:
    """Run until the groups of this vCenter are as desired, then check that nothing happens."""
    for round_number in range(MAX_ROUNDS):
        is_busy = bool(world.list_clones()) or round_number < 15
        await world.run_manager(1.0 if is_busy else 5.0, stride=1.0 if is_busy else 5.0)
        _delete_leftovers(world, appliance)
        if not any(task.state == "running" for task in appliance.tasks.values()) and all(
            _is_correct(world, appliance, uid, obj) for uid, obj in world.list_groups().items()
        ):
            break
    else:
        messages = {
            uid: (
                obj["spec"],
                obj["metadata"].get("deletionTimestamp"),
                obj.get("status", {}).get("lastMessage"),
                obj.get("status", {}).get("replicas"),
            )
            for uid, obj in world.list_groups().items()
        }
        vms = [(vm.label, vm.power, vm.size) for vm in appliance.vms if vm.owner]
        raise AssertionError(
            f"seed {world.seed}: not recovered in {appliance.instance_uuid}: {messages}; {vms}; "
            f"events: {' | '.join(world.events[-25:])}"
        )
    sent = _count_sent(world)
    await world.run_manager(60.0, stride=20.0)
    if _count_sent(world) != sent:
        raise AssertionError(f"seed {world.seed}: calls are sent though nothing has to change")


def _delete_leftovers(world: World, appliance: Appliance) -> None:
    """Users delete the VMs of deleted groups, and VMs of theirs that have the name of a replica."""
    groups = world.list_groups()
    records = {
        replica["name"]
        for obj in groups.values()
        for replica in obj.get("status", {}).get("replicas", ())
    }
    names = [obj["metadata"]["name"] for obj in groups.values()]
    for vm in list(appliance.vms):
        is_left = bool(vm.owner) and vm.owner not in groups
        has_name = vm.name in records or any(is_replica_name(name, vm.name) for name in names)
        if is_left or (not vm.owner and not vm.clone and has_name):
            appliance.remove_vm(vm)


def _count_sent(world: World) -> int:
    return sum(count for name, count in world.counts.items() if name.startswith("sent "))


def _is_correct(world: World, appliance: Appliance, uid: str, obj: dict[str, Any]) -> bool:
    status, spec = obj.get("status", {}), obj["spec"]
    if status.get("vcenterUUID", "") not in ("", appliance.instance_uuid):
        # Its vCenter is not served now, and it has to wait.
        return True
    if "deletionTimestamp" in obj["metadata"]:
        return False
    vms = [vm for owner, vm in world.list_vms() if owner is appliance and vm.owner == uid]
    return (
        status.get("phase") == "RUNNING"
        and len(vms) == len(status.get("replicas", ())) == spec["replicas"]
        and all(
            (vm.power, vm.cpus, vm.memory_mb)
            == (spec.get("powerState", "poweredOn"), spec["cpu"], 1024 * spec["memory"])
            for vm in vms
        )
    )
