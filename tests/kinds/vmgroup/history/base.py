"""What all events of a history share."""

from __future__ import annotations

from typing import Any

from .appliance import Appliance
from .model import Vm
from .world import World


class HistoryBase:
    """One world, and what can be chosen in it."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.random, self.last_group = self.world.random, 0
        # The last backup of each vCenter, and of the API server.
        self.backups: dict[str, Any] = {}
        self.statuses: dict[str, Any] = {}

    @property
    def appliance(self) -> Appliance:
        return self.world.served

    def list_names(self) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.world.api.objects.values()]

    def choose_name(self) -> str:
        names = self.list_names()
        return self.random.choice(names) if names else ""

    def list_idle_vms(self) -> list[Vm]:
        """The VMs of groups that users see, and that have no task."""
        return [
            vm
            for vm in self.appliance.vms
            if vm.owner
            and not vm.missing_until
            and not vm.visible_at
            and not (vm.clone or self.appliance.find_task_of(vm))
        ]

    def choose_vm(self) -> Vm | None:
        vms = self.list_idle_vms()
        return self.random.choice(vms) if vms else None

    def is_recorded(self) -> bool:
        """Whether the status of every group has all its VMs, and no clone is only in its records.

        Otherwise nothing would be left that knows of a VM that leaves the inventory.
        """
        recorded = {
            (uid, replica["name"])
            for uid, obj in self.world.list_groups().items()
            for replica in obj.get("status", {}).get("replicas", ())
        }
        groups = self.world.list_groups()
        return all(
            vm.owner not in groups
            or (
                (vm.owner, vm.replica) in recorded
                # Until the manager has seen it, the record has another VM that was deleted.
                and (not vm.returned or bool(vm.missing_until) or self.is_known(vm))
            )
            for _, vm in self.world.list_vms()
        )

    def is_idle(self, uid: str) -> bool:
        """Whether nothing of the group is in progress, and all its VMs are visible."""
        world = self.world
        calls = [*world.pending, *(call for _, call in world.late)]
        return (
            not any(owner == uid for owner, _ in world.list_clones())
            and all(
                (vm.owner != uid)
                or (
                    appliance is world.served
                    and appliance.is_seen(vm)
                    and not vm.clone
                    and not vm.inaccessible
                    and not appliance.find_task_of(vm)
                )
                for appliance, vm in world.list_vms()
            )
            and all(call.is_read for call in calls)
            # The VM that is being adopted does not belong to the group yet.
            and not any(
                task.method == "identify" and task.state == "running"
                for appliance in world.appliances
                for task in appliance.tasks.values()
            )
        )

    def is_known(self, vm: Vm) -> bool:
        """Whether its reference is stored: without it, a VM that stays hidden counts as deleted."""
        obj = self.world.list_groups().get(vm.owner, {})
        return not obj or any(
            (replica["name"], replica.get("moRef")) == (vm.replica, vm.ref)
            for replica in obj.get("status", {}).get("replicas", ())
        )
