"""The life of one group, told so that a manager may die in it at any call: what people do, and what must be true at every instant.

    create 3, strangers come, scale 5, one VM deleted and one powered off outside, scale 2, bad template, another one, delete

The truth is the simulator's and the API server's. The simulator counts, at each change of its own, VMs with the group's mark plus
clones under way with it; the most that it ever counted may not be more than the group may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .crashing import Reaper
from .groups import PARENT, Groups, folder_of, has_phase, is_running, vms_of, well_named
from .hands import Hands
from .snapshot import Machine, snapshot

CONVERGES_WITHIN_SECONDS = 60.0
# A manager that never comes back must not hang the run: the death, the start, and then the promise.
PATIENCE_SECONDS = 2 * CONVERGES_WITHIN_SECONDS
OTHER_TEMPLATE = "vm-operator-template-2"
NAME = "life"


@dataclass
class Life:
    """One group in a namespace of its own; `play` raises AssertionError with what was not true."""

    plane: ControlPlane
    vcenter: SimulatedVCenter
    namespace: str
    reaper: Reaper
    uid: str = ""
    strangers: dict[str, Machine] = field(default_factory=dict)
    """By reference, as they were: VMs of other people."""
    step: str = ""

    @property
    def groups(self) -> Groups:
        return Groups(self.plane, self.namespace)

    @property
    def folder(self) -> str:
        return folder_of(self.namespace, NAME)

    async def play(self) -> None:
        """All of it."""
        for step in (
            self.create,
            self.grow,
            self.suffer,
            self.shrink,
            self.err,
            self.mend,
            self.end,
        ):
            self.step = step.__name__
            await step()
        await self.reaper.finished()
        self.check_hands()

    # What people do

    async def create(self) -> None:
        """Three replicas; then strangers move in, one of them a copy of a replica, mark and all."""
        await self.vcenter.create_vm(f"{self.namespace}-beside", folder=PARENT, on=True)
        self.strangers = {each.ref: each for each in (await snapshot(self.vcenter)).vms}
        self.uid = (await self.groups.create(NAME))["metadata"]["uid"]
        await self.settled(lambda: self.is_right(3))
        await self.bounded(3)
        replica = (await self.ours())[0]
        came = [
            await self.vcenter.create_vm(f"{self.namespace}-stranger", folder=self.folder),
            await Hands(self.vcenter).clone(replica.ref, f"{NAME}-replica-copy"),
        ]
        self.strangers |= {
            each.ref: each for each in (await snapshot(self.vcenter)).vms if each.ref in came
        }
        assert [each.folder for each in self.strangers.values() if each.ref in came] == [
            self.folder
        ] * 2
        await self.vcenter.reset_census_peaks()

    async def grow(self) -> None:
        """Two more."""
        await self.bounded(3)
        await self.groups.change(NAME, replicas=5)
        await self.settled(lambda: self.is_right(5))
        await self.bounded(5)

    async def suffer(self) -> None:
        """One is deleted and one powered off by a person."""
        lost, stopped = (await self.ours())[:2]
        await asyncio.gather(
            self.vcenter.delete(lost.ref), self.vcenter.set_power(stopped.ref, False)
        )
        await self.settled(lambda: self.is_right(5))
        assert stopped.ref in {each.ref for each in await self.ours()}
        await self.bounded(5)

    async def shrink(self) -> None:
        """Three too many."""
        await self.groups.change(NAME, replicas=2)
        await self.settled(lambda: self.is_right(2))
        await self.bounded(5)
        await self.vcenter.reset_census_peaks()

    async def err(self) -> None:
        """A template that nobody has: nothing that works is touched."""
        before = {each.ref for each in await self.ours()}
        await self.groups.change(NAME, template="doesNotExist")
        await self.settled(self.says_error)
        assert {each.ref for each in await self.ours()} == before

    async def mend(self) -> None:
        """Another template, to which the replicas roll."""
        before = {each.ref for each in await self.ours()}
        await self.groups.change(NAME, template=OTHER_TEMPLATE)
        await self.settled(lambda: self.is_right(2))
        assert before & {each.ref for each in await self.ours()} == set(), (
            "a replica of the old template is left"
        )
        await self.bounded(2)

    async def end(self) -> None:
        """The strangers leave the folder, as they came; the group goes, and takes all that is its own along."""
        await self.check_strangers()
        for ref in self.inside:
            await self.vcenter.delete(ref)
            del self.strangers[ref]
        await self.vcenter.reset_census_peaks()
        await self.groups.delete(NAME)
        await self.settled(self.is_gone)
        await self.check_strangers()
        await self.bounded(2)

    # What is true

    @property
    def inside(self) -> list[str]:
        """Strangers in the group's folder."""
        return [ref for ref, each in self.strangers.items() if each.folder == self.folder]

    async def ours(self) -> list[Machine]:
        """The group's VMs."""
        return [
            each for each in await vms_of(self.vcenter, self.uid) if each.ref not in self.strangers
        ]

    async def is_right(self, replicas: int) -> bool:
        """Whether there are exactly so many, all as they should be, and the group says so."""
        seen, group = await snapshot(self.vcenter), await self.groups.get(NAME)
        ours = await self.ours()
        good = all(
            each.power == "poweredOn" and each.folder == self.folder and well_named(NAME, each)
            for each in ours
        )
        under_way = [each for each in seen.clones if each.folder == self.folder]
        return (
            len(ours) == replicas
            and good
            and not under_way
            and is_running(group)
            and group["spec"]["replicas"] == replicas
        )

    async def says_error(self) -> bool:
        """Whether the group names the template that is missing."""
        group = await self.groups.get(NAME)
        return has_phase(group, "ERROR") and "doesNotExist" in group["status"]["lastMessage"]

    async def is_gone(self) -> bool:
        """Whether nothing of the group is left, here or there."""
        if await self.groups.find(NAME):
            return False
        folders = {
            each["path"] for each in await self.vcenter.entities() if each["type"] == "Folder"
        }
        left = [*await self.ours(), *(folders & {self.folder})]
        assert not left, f"the object is gone, but not {left}"
        return True

    async def settled(self, check: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it is true; it must be within the promised time of this step's begin, or of the restart that came in it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await eventually(check, within=PATIENCE_SECONDS, every=0.05)
        except AssertionError as never:
            raise AssertionError(f"{self.step}: {never}; {await self.told()}") from never
        await self.reaper.finished()
        seconds = loop.time() - max(began, self.reaper.restarted_at or 0.0)
        assert seconds <= CONVERGES_WITHIN_SECONDS, f"{self.step}: it took {seconds:.1f} s"

    async def told(self) -> dict[str, Any]:
        """What there is, for words about what went wrong."""
        group = await self.groups.find(NAME) or {}
        vms = [(each.ref, each.name, each.power) for each in await self.ours()]
        return {
            "vms": vms,
            "spec": group.get("spec"),
            "status": group.get("status"),
            "calls": list(map(str, self.reaper.calls[-8:])),
        }

    async def bounded(self, most: int) -> None:
        """There were never more VMs and clones under way than this, copies by people apart, since the last reset."""
        copies = sum(
            each.marks.get("vsphere-operators.uid") == self.uid for each in self.strangers.values()
        )
        counted = (await snapshot(self.vcenter)).most_of.get(self.uid, 0) - copies
        assert counted <= most, (
            f"{self.step}: {counted} VMs and clones at once, and {most} are allowed"
        )

    async def check_strangers(self) -> None:
        """They are as they were."""
        now = {each.ref: each for each in (await snapshot(self.vcenter)).vms}
        assert {ref: now.get(ref) for ref in self.strangers} == self.strangers

    def check_hands(self) -> None:
        """No call ever went to somebody else's VM; a template may be cloned."""
        others = [
            each
            for each in self.reaper.calls
            if each.target in self.strangers and each.sort != "CloneVM_Task"
        ]
        assert others == []
