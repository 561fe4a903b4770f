"""Events by users of Kubernetes."""

from __future__ import annotations

from typing import Any

from .base import HistoryBase

MAX_GROUPS = 3


class KubernetesUsers(HistoryBase):
    def choose_spec(self) -> dict[str, Any]:
        chance = self.random
        surge = chance.randint(0, 2)
        return {
            # Small enough that most requests fit, and large enough that some do not.
            "replicas": chance.randint(1, 4),
            "cpu": chance.choice([1, 1, 2, 3]),
            "memory": chance.choice([1, 1, 2, 3]),
            "template": chance.choice(["t", "t", "t", "t2"]),
            "paused": chance.random() < 0.2,
            "powerState": chance.choice(["poweredOn", "poweredOn", "poweredOff"]),
            "rollout": {
                "maxSurge": surge,
                "maxUnavailable": chance.randint(0 if surge else 1, 2),
                "strategy": chance.choice(["RollingUpdate", "RollingUpdate", "OnDelete"]),
            },
        }

    async def create_group(self) -> bool:
        if len(self.list_names()) >= MAX_GROUPS:
            return False
        self.last_group += 1
        # Also under the name of a group that existed.
        name = f"g{self.random.randint(1, self.last_group)}"
        if name in self.list_names():
            name = f"g{self.last_group}"
        if name in self.list_names():
            return False
        self.world.api.create_group(name, self.choose_spec() | {"paused": False})
        return True

    async def edit_group(self) -> bool:
        name = self.choose_name()
        if name:
            spec = self.choose_spec()
            fields = self.random.sample(sorted(spec), self.random.randint(1, 3))
            self.world.api.edit(name, **{field: spec[field] for field in fields})
        return bool(name)

    async def scale_group(self) -> bool:
        """Also of a paused group, which keeps its VMs."""
        name = self.choose_name()
        if name:
            self.world.api.edit(
                name, replicas=self.random.randint(1, 4), paused=self.random.random() < 0.3
            )
        return bool(name)

    async def delete_group(self) -> bool:
        name = self.choose_name()
        if name:
            self.world.api.edit(name, deletionPolicy=self.random.choice(["Destroy", "Orphan"]))
            self.world.api.delete(self.world.api.path_of(name), {})
        return bool(name)

    async def remove_finalizer(self) -> bool:
        """By hand: the VMs stay. A clone that is sent before the manager knows is not counted."""
        await self.world.finish_work()
        name = self.choose_name()
        if not name:
            return False
        uid = self.world.api.objects[self.world.api.path_of(name)]["metadata"]["uid"]
        if not self.is_idle(uid) or not self.is_recorded():
            return False
        self.world.api.remove_finalizers(name)
        self.world.manager.receive_objects(1000)
        return True

    async def restore_object(self) -> bool:
        """From a backup without status, or with an old one, while no manager runs."""
        name, world = self.choose_name(), self.world
        if not name:
            return False
        obj = world.api.objects[world.api.path_of(name)]
        uid = obj["metadata"]["uid"]
        if not self.is_idle(uid) or "deletionTimestamp" in obj["metadata"]:
            return False
        world.api.set_status(name, self.statuses.get(uid, {}) if self.random.random() < 0.5 else {})
        await world.start_manager()
        stored = world.list_groups()[uid].get("status", {}).get("replicas", ())
        world.allowed_counts[uid] = max(world.allowed_counts.get(uid, 0), len(stored))
        # Until the status is rebuilt, nothing but the VMs shows what exists.
        await world.run_manager(3)
        return True
