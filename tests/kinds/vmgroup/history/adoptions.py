"""Events by users that let groups adopt VMs."""

from __future__ import annotations

from vsphere_operators.kinds.vmgroup.ownership import folder_name, replica_name
from vsphere_operators.kinds.vmgroup.types import UNDO_ADOPTION

from .account_view import PARENT_FOLDER
from .api import NAMESPACE
from .base import HistoryBase


class Adoptions(HistoryBase):
    async def add_original_vms(self) -> bool:
        """VMs as the original operator left them, of a group that exists or may be created."""
        name = self.random.choice([self.choose_name() or "g1", f"g{self.last_group + 1}"])
        self.add_vms(name, self.random.randint(1, 3))
        return True

    def add_vms(self, name: str, count: int) -> None:
        own_name, folders = folder_name(NAMESPACE, name), self.appliance.folders.values()
        folder = next(
            (own for own in folders if (own.name, own.parent) == (own_name, PARENT_FOLDER)),
            None,
        ) or self.appliance.add_folder(own_name, PARENT_FOLDER, managed=True)
        for _ in range(count):
            letters = "".join(self.random.choice("abcdefgh") for _ in range(8))
            self.world.add_user_vm(self.appliance, replica_name(name, letters), folder.ref)

    async def request_adoption(self) -> bool:
        """Of what the group reports, or of any VM, as if the user typed a wrong uuid."""
        name = self.choose_name()
        if not name:
            return False
        obj = self.world.api.objects[self.world.api.path_of(name)]
        uuids = [
            vm["instanceUUID"]
            for vm in (obj.get("status", {}).get("adoption") or {}).get("vms", ())
            if vm["verdict"] == "Adoptable"
        ]
        if not uuids or self.random.random() < 0.1:
            uuids = [vm.instance_uuid for vm in self.appliance.vms]
        if not uuids:
            return False
        chosen = self.random.sample(uuids, self.random.randint(1, min(3, len(uuids))))
        uid = obj["metadata"]["uid"]
        self.world.adoption_requests |= {(uid, uuid) for uuid in chosen}
        if self.random.random() < 0.5:
            # Otherwise a group that has its VMs refuses.
            self.world.api.edit(name, replicas=obj["spec"]["replicas"] + len(chosen))
        self.world.api.annotate(name, ",".join(chosen))
        return True

    async def adopt_originals(self) -> bool:
        """A whole adoption, which other events may interrupt, and sometimes the way back."""
        name, world = self.choose_name(), self.world
        if not name:
            return False
        self.add_vms(name, self.random.randint(1, 2))
        await world.run_manager(self.random.choice([2, 4]))
        if name not in self.list_names():
            return False
        obj = world.api.objects[world.api.path_of(name)]
        status = obj.get("status", {})
        vms = (status.get("adoption") or {}).get("vms", ())
        uuids = [vm["instanceUUID"] for vm in vms if vm["verdict"] == "Adoptable"][:3]
        if not uuids:
            return False
        world.adoption_requests |= {(obj["metadata"]["uid"], uuid) for uuid in uuids}
        # Annotated first: otherwise the group creates VMs.
        world.api.annotate(name, ",".join(uuids))
        world.api.edit(name, replicas=len(status.get("replicas", ())) + len(uuids), paused=False)
        await world.run_manager(self.random.choice([0, 1, 4, 12]))
        if self.random.random() < 0.5:
            await self.undo_adoption()
            await world.run_manager(self.random.choice([0, 1, 4, 12]))
        return True

    async def undo_adoption(self) -> bool:
        adopting = [
            obj["metadata"]["name"]
            for obj in self.world.api.objects.values()
            if any("adoptedFrom" in r for r in obj.get("status", {}).get("replicas", ()))
        ]
        name = self.random.choice(adopting) if adopting else self.choose_name()
        if not name:
            return False
        uid = self.world.api.objects[self.world.api.path_of(name)]["metadata"]["uid"]
        self.world.adoption_requests.add((uid, UNDO_ADOPTION))
        self.world.api.annotate(name, UNDO_ADOPTION)
        return True

    async def remove_request(self) -> bool:
        name = self.choose_name()
        if name:
            self.world.api.annotate(name, "")
        return bool(name)
