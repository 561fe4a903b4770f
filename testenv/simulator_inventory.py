"""Changes to the inventory of a simulated vCenter, as an administrator makes them.

`SimulatedVCenter` in simulator.py has these methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal


class InventoryControl(ABC):
    """Calls of the control endpoint that read or change the inventory."""

    user: str

    @abstractmethod
    async def request(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Calls the control endpoint."""

    async def entities(self) -> list[dict[str, str]]:
        """Type, ref, name and path of all entities."""
        return list(await self.request("GET", "/entities"))

    async def rename(self, entity: str, name: str) -> None:
        await self.request("POST", "/rename", {"of": entity, "name": name})

    async def set_host_connected(self, host: str, connected: bool = True) -> None:
        await self.request("POST", "/host", {"host": host, "connected": connected})

    async def set_maintenance(self, host: str, on: bool = True, *, seconds: float = 0.0) -> None:
        """Returns when it is done; `seconds` is how long the task to enter maintenance runs."""
        body = {"host": host, "maintenance": on, "length": seconds}
        await self.request("POST", "/host", body)

    async def set_host_gpus(
        self, host: str, count: int, kind: Literal["shared", "direct"] = "shared"
    ) -> None:
        await self.request("POST", "/host", {"host": host, "gpus": count, "gpuKind": kind})

    async def schedule_maintenance(self, host: str, at: datetime, **fields: Any) -> str:
        """Returns the reference of the scheduled task, which never starts.

        See testenv/vcsim/scheduled_tasks.go for the fields.
        """
        return str(
            (
                await self.request(
                    "POST", "/schedule", {"host": host, "at": at.isoformat(), **fields}
                )
            )["ref"]
        )

    async def remove_scheduled_task(self, task: str) -> None:
        await self.request("POST", "/unschedule", {"of": task})

    async def remove_host(self, host: str) -> int:
        """Removes a host from the inventory with its VMs; returns their number."""
        return int((await self.request("POST", "/host/remove", {"host": host}))["vms"])

    async def add_host(self, host: str, *, discovered: bool = False) -> dict[str, Any]:
        """Adds a removed host with its VMs; returns the new references: `host`, and `vms` by name.

        With `discovered` the VMs are in the folder "Discovered virtual machine".
        """
        body = {"host": host, "discovered": discovered}
        return dict(await self.request("POST", "/host/add", body))

    async def back_up(self) -> None:
        """Saves the inventory of VMs and VM folders for `restore_backup`."""
        await self.request("POST", "/backup")

    async def restore_backup(
        self, *, keep_sessions: bool = False, orphaned: bool = False
    ) -> dict[str, int]:
        """Restores the inventory without tasks; returns how many VMs it `dropped` and `returned`.

        All sessions end, as in a vCenter that restarts. With `orphaned`, VMs that were destroyed
        since the backup have that connection state.
        """
        body = {"keepSessions": keep_sessions, "orphaned": orphaned}
        return dict(await self.request("POST", "/restore", body))

    async def discover_vms(self) -> dict[str, str]:
        """Adds the VMs that the last restore dropped, as vCenter finds them on its hosts.

        They are in the folder "Discovered virtual machine"; returns their new references by name.
        """
        return dict((await self.request("POST", "/discover"))["vms"])

    async def set_permission(
        self,
        user: str,
        privileges: Collection[str],
        entity: str = "",
        *,
        propagate: bool = True,
    ) -> None:
        """Sets the privileges of an account on an entity, or on the root folder and all below it.

        Without privileges the account does not see the entity.
        """
        body = {
            "user": user,
            "of": entity,
            "privileges": list(privileges),
            "propagate": propagate,
        }
        await self.request("POST", "/permissions", body)

    async def remove_permission(self, user: str, entity: str = "") -> None:
        """An account without a permission on the root folder has all privileges."""
        await self.request("POST", "/permissions", {"user": user, "of": entity, "remove": True})

    async def clear_permissions(self) -> None:
        """All accounts have all privileges again."""
        await self.request("DELETE", "/permissions")

    async def hide_vm(self, vm: str, user: str = "") -> None:
        """Takes the permission to see a VM away from an account; `show_vm` gives it back."""
        await self.set_permission(user or self.user, (), vm)

    async def show_vm(self, vm: str, user: str = "") -> None:
        await self.remove_permission(user or self.user, vm)

    async def set_power(self, vm: str, on: bool) -> None:
        await self.request("POST", "/power", {"vm": vm, "on": on})

    async def suspend(self, vm: str) -> None:
        await self.request("POST", "/suspend", {"vm": vm})

    async def move_vm(self, vm: str, host: str, *, seconds: float = 0.0) -> None:
        """Returns when the VM is on the host; `seconds` is how long the task runs."""
        await self.request("POST", "/move", {"vm": vm, "host": host, "length": seconds})

    async def create_vm(self, name: str, **fields: Any) -> str:
        """Returns the reference; see testenv/vcsim/vms.go for the fields."""
        return str((await self.request("POST", "/create", {"name": name, **fields}))["ref"])

    async def delete(self, entity: str) -> None:
        """Deletes any entity; a VM is powered off first."""
        await self.request("POST", "/delete", {"of": entity})

    async def vms(self) -> list[dict[str, Any]]:
        """All VMs: `name`, `host`, `power`, and what the API does not show, such as `profiles`."""
        return list(await self.request("GET", "/vms"))

    async def set_vapp(self, vm: str, **properties: str) -> None:
        """Gives a VM or template a vApp configuration, as one from an OVA has it."""
        await self.request("POST", "/vapp", {"vm": vm, "properties": properties})

    async def remove_vapp(self, vm: str) -> None:
        await self.request("POST", "/vapp", {"vm": vm, "remove": True})

    async def set_cpu_topology(self, vm: str, cpus: int, cores_per_socket: int) -> None:
        """Sets the CPUs of a VM or template; 0 cores lets vCenter choose."""
        body = {"vm": vm, "cpus": cpus, "coresPerSocket": cores_per_socket}
        await self.request("POST", "/topology", body)

    async def storage_profiles(self) -> list[dict[str, str]]:
        """The id and name of all storage policies."""
        return list(await self.request("GET", "/profiles"))

    async def create_storage_profile(self, name: str, id: str = "") -> str:
        """Returns the id, a random one by default."""
        return str((await self.request("POST", "/profiles", {"name": name, "id": id}))["id"])

    async def set_tools_running(self, vm: str, running: bool) -> None:
        await self.request("POST", "/guest", {"vm": vm, "tools": running})

    async def add_gpu(
        self, vm: str, kind: Literal["vgpu", "passthrough", "dynamic"] = "vgpu"
    ) -> None:
        await self.request("POST", "/gpu", {"vm": vm, "kind": kind})

    async def disks(self) -> list[dict[str, Any]]:
        """First Class Disks: name, id, sizeMB, datastore, path, consumers."""
        return list(await self.request("GET", "/fcds"))

    async def create_disk(self, name: str, **fields: Any) -> str:
        """Returns the id of the First Class Disk; see testenv/vcsim/disks.go for the fields."""
        return str((await self.request("POST", "/fcds", {"name": name, **fields}))["id"])

    async def delete_disk(self, disk: str) -> int:
        """Deletes all disks with this name or id; returns their number."""
        return int((await self.request("POST", "/fcds/delete", {"disk": disk}))["deleted"])

    async def attach_disk(self, disk: str, vm: str) -> None:
        """Attaches a disk to a VM; an empty `vm` detaches it."""
        await self.request("POST", "/fcds/attach", {"disk": disk, "vm": vm})

    async def set_attribute(self, entity: str, name: str, value: str) -> None:
        await self.request("POST", "/attribute", {"of": entity, "name": name, "value": value})

    async def set_tag(self, entity: str, category: str, tag: str, *, detach: bool = False) -> None:
        """Attaches or detaches a tag; a missing category or tag is created."""
        await self.request(
            "POST", "/tag", {"of": entity, "category": category, "tag": tag, "detach": detach}
        )

    async def set_stats(self, entity: str, **stats: int) -> None:
        """Sets quickStats; the keywords are their wire names."""
        await self.request("POST", "/stats", {"of": entity, "stats": stats})

    async def set_property(self, entity: str, path: str, value: Any) -> None:
        """Sets a property such as runtime.connectionState to a JSON value with wire names."""
        await self.request("POST", "/property", {"of": entity, "property": path, "value": value})

    async def churn_stats(self, drift: float = 0.0) -> int:
        """Changes the quickStats of all hosts and running VMs once; returns their number.

        `drift` limits the change to this share of the old value; 0 means new values.
        """
        return int((await self.request("POST", "/churn", {"drift": drift}))["changed"])
