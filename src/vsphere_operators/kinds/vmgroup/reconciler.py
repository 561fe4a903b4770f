"""One step of one group: look, plan, and either hand back what is to be stored first, or do what the plan says.

Case (what the object says) -> Ground (where) -> Seen (what is there) -> plan -> Workshop (do) -> Report (what the object is told)
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.faults import Busy, VCenterError
from ...vsphere.model import Machine
from .executor import FOLDER, Job, Workshop
from .expectations import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, NO_FOLDER
from .folder import Claim, refusal, rival
from .limits import Amount, Limits, Quota, quota_problem
from .model import Action, Clone, CreateFolder, DestroyFolder, Finish, Flight, GroupFolder, Obstacle, Plan, Record, Seen, Wish
from .names import folder_name, new_replica_name
from .observation import Sight, folder_of, seen_by, with_task
from .ownership import Group
from .placement import Ground, Site
from .plan import plan

MOST_REPLICAS = 1000
"""More records do not fit into one object: etcd takes 1.5 MB, and a record is half a KB."""
SOON_SECONDS = 1.0
UNHEARD = ("SecretNotFound", "SecretForbidden", "SecretIncomplete")
"""Obstacles whose end nobody tells us: nobody watches Secrets, since that would need a right to all of them."""


class Case(Struct, frozen=True, kw_only=True):
    """What the object says, and what has to be known of others."""

    group: Group
    wish: Wish
    """Without template and obstacle, which depend on what is there."""
    generation: int
    records: tuple[Record, ...]
    folder: str = ""
    """Reference of the group's folder, as it was stored."""
    asked: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}
    limits: Limits = Limits()
    claim: Claim
    claims: Collection[Claim] = ()
    """Of all groups with the same folder name."""
    others: Callable[[], Collection[Amount]]
    """Of the other groups of the namespace."""
    accounted: Callable[[], set[str]]
    """Clone tasks that stored records of any group name."""
    refs: Mapping[str, str] = {}
    """References of the VMs as they were last told, by name of the replica."""
    linked: bool = False
    storage_policy: str = ""


class Means(Struct, frozen=True, kw_only=True):
    """What a step may use of Kubernetes."""

    say: Callable[[str], None]
    """Writes a line into the log."""
    may_act: Callable[[], None]
    confirm: Callable[[str], Awaitable[bool]]
    warn: Callable[[str, str], None]
    """An Event on the object: reason and words."""
    options: Callable[[], Awaitable[dict[str, str]]]
    """extraConfig for new replicas; raises Obstacle."""


class Report(Struct, frozen=True, kw_only=True):
    """What came of a step."""

    plan: Plan
    reason: str
    """Of Ready, where it does not hold."""
    folder: GroupFolder | None
    machines: dict[str, Machine]
    """By name of the replica."""
    again_seconds: float | None
    """When to look again; None is: when something changes."""
    finished: bool = False
    """Of a group that is to go: nothing is left."""


class Steward:
    """Looks after groups in one vCenter."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop, self.vcenter, self.inventory = workshop, workshop.vcenter, workshop.vcenter.inventory

    async def step(self, case: Case, means: Means) -> Report:
        """Look, plan, do."""
        memory = self.workshop.memory(case.group.uid)
        memory.began(case.generation)
        sight = Sight(
            vcenter=self.vcenter,
            owners=self.workshop.owners,
            clones=self.workshop.clones,
            memory=memory,
            group=case.group,
            accounted=lambda: case.accounted() | self.workshop.sent_tasks(),
            refs=case.refs,
        )
        memory.check(case.records)
        scene, made = await self.planned(case, sight)
        for line in made.lines:
            means.say(line)
        if made.write_ahead:
            memory.stored(scene.seen.records, made.records)
            self.vcenter.operations.withdraw(owner_of(case.group))
            return self.report(scene, made, again_seconds=0.0)
        job = Job(
            group=case.group,
            memory=memory,
            say=means.say,
            may_act=means.may_act,
            confirm=means.confirm,
            linked=case.linked,
            storage_policy=case.storage_policy,
        )
        if any(isinstance(each, Clone) for each in made.actions):
            try:
                job = replace(job, options=await means.options())
            except Obstacle as error:
                made = replace(made, actions=without_clones(made.actions), phase="ERROR", message=str(error))
                scene = replace(scene, reason=error.reason)
        finished = await self.act(job, scene, made.actions)
        if finished and scene.folder is not None and case.wish.deletion_policy == "Destroy":
            words = f"the folder {scene.folder.path} stays, since there is something in it that is not this group's"
            means.warn("FolderKept", words)
        told = tuple(with_task(each, memory) for each in made.records)
        memory.keep_only({*(each.name for each in told), FOLDER})
        return self.report(scene, replace(made, records=told), again_seconds=self.patience(scene, made, sight), finished=finished)

    async def planned(self, case: Case, sight: Sight) -> tuple[Scene, Plan]:
        """What is there, and what to do.

        Who is chosen to go is not taken back, so everybody who is chosen has been read just now: a volume may have been attached.
        """
        read: set[str] = set()
        while True:
            scene = self.look(case, sight)
            made = plan(scene.wish, scene.seen, self.namer(case))
            chosen = [ref for ref in leaving_now(scene.seen, made) if ref not in read]
            if not chosen:
                return scene, made
            with suppress(VCenterError):
                await self.vcenter.belongings.refresh(chosen)
            read.update(chosen)

    def look(self, case: Case, sight: Sight) -> Scene:
        """Where things go, what is in the way, what is there."""
        ground = Ground(self.inventory, case.asked, case.defaults, case.limits)
        site, template, obstacle, parent = None, "", None, ""
        name = folder_name(case.group.namespace, case.group.name)
        try:
            ground.check()
            parent = ground.parent(ground.datacenter()).ref
            if not case.wish.deleting:
                source, site = ground.settle(case.wish.template_name)
                template = source.ref
        except Obstacle as error:
            obstacle = error
        folder = folder_of(sight, case.folder, parent, name)
        taken = rival(case.claim, self.owners_in(folder), case.claims)
        if taken is not None:
            where = folder.path if folder else f"{self.inventory.path(parent)}/{name}"
            lives = any(each.group.uid == taken.uid for each in case.claims) or taken.cluster != case.group.cluster
            obstacle, folder = obstacle or Obstacle("FolderTaken", refusal(where, taken, lives=lives)), None
        if folder is not None and folder.ref in self.inventory.folders:
            sight.memory.folder = NO_FOLDER
        obstacle = obstacle or self.refused(case, sight)
        wish = replace(self.within_quota(case), template=template, obstacle=str(obstacle) if obstacle and not case.wish.deleting else "")
        return Scene(
            wish=wish,
            seen=seen_by(sight, case.records, folder),
            folder=folder,
            site=site,
            parent=parent,
            name=name,
            reason=obstacle.reason if obstacle else "",
            machines=self.machines_of(case.group.uid),
        )

    def machines_of(self, uid: str) -> dict[str, Machine]:
        """The VMs of a group by name of the replica."""
        owners, machines = self.workshop.owners, self.inventory.machines
        return {owners.marks[ref].replica: machines[ref] for ref in owners.by_uid.of(uid) if ref in machines}

    def within_quota(self, case: Case) -> Wish:
        """The wish with as much surge as the quota leaves."""
        wish, quota = case.wish, case.limits.quota
        if quota == Quota() or not wish.rollout.max_surge:
            return wish
        others, surge = case.others(), wish.rollout.max_surge
        while surge and quota_problem(amount(wish, wish.replicas + surge), others, quota):
            surge -= 1
        return replace(wish, rollout=replace(wish.rollout, max_surge=surge))

    def refused(self, case: Case, sight: Sight) -> Obstacle | None:
        """What is in the way beside the places: too many, the quota, a folder that cannot be made."""
        if case.wish.replicas > MOST_REPLICAS:
            words = f"{case.wish.replicas} replicas are more than one object can keep account of; ask for {MOST_REPLICAS} at the most"
            return Obstacle("TooManyReplicas", words)
        quota = case.limits.quota
        if quota != Quota() and (words := quota_problem(amount(case.wish, case.wish.replicas), case.others(), quota)):
            return Obstacle("QuotaExceeded", words)
        trouble = sight.memory.troubles().get(FOLDER)
        return Obstacle(trouble.reason, trouble.words) if trouble and trouble.lasting else None

    def owners_in(self, folder: GroupFolder | None) -> list[Group]:
        """Whose VMs are in a folder."""
        marks = self.workshop.owners.marks
        return [marks[ref].group for ref in self.inventory.tree.children(folder.ref) if ref in marks] if folder else []

    def namer(self, case: Case) -> Callable[[], str]:
        """Names that no replica has, and no VM of the vCenter."""
        used = {each.name for each in case.records}
        choose = random.SystemRandom().choice

        def name() -> str:
            while (found := new_replica_name(case.group.name, choose, used)) in used or self.inventory.relations.names[Machine].of(found):
                pass
            used.add(found)
            return found

        return name

    async def act(self, job: Job, scene: Scene, actions: Sequence[Action]) -> bool:
        """Start what the plan says, until there is no room; whether the group may go."""
        resting = FOLDER in job.memory.troubles()
        if not actions:
            self.vcenter.operations.withdraw(job.owner)
        for action in actions:
            if isinstance(action, Finish):
                return True
            if isinstance(action, CreateFolder | DestroyFolder) and resting:
                return False
            try:
                await self.do(job, scene, action)
            except VCenterError as error:
                if isinstance(error, Busy) and not error.fault:
                    return False
        return False

    async def do(self, job: Job, scene: Scene, action: Action) -> None:
        """Start one thing."""
        match action:
            case CreateFolder():
                await self.workshop.create_folder(job, scene.parent, scene.name)
            case DestroyFolder():
                await self.workshop.destroy_folder(job, action)
            case Clone():
                assert scene.site is not None
                assert scene.folder is not None
                await self.workshop.clone(job, action, scene.wish, scene.site, scene.folder.ref)
            case Finish():
                pass
            case _:
                await self.workshop.change(job, action)

    def patience(self, scene: Scene, made: Plan, sight: Sight) -> float | None:
        """When to look again by ourselves; what vCenter does wakes us anyway."""
        memory = sight.memory
        if memory.troubles().keys() - scene.seen.troubles.keys():
            return 0.0  # what was refused in this step is told by the next
        if made.phase == "RUNNING":
            return None
        if any(isinstance(each, CreateFolder) for each in made.actions) and memory.folder != NO_FOLDER:
            return 0.0  # it is there: go on
        doubtful = any(each in (Flight.UNKNOWN, Flight.RUNNING) for each in scene.seen.flights.values())
        settling = any(glow.until > memory.clock() for glow in memory.glows.values()) or memory.folder[1] > memory.clock()
        if doubtful or settling or any(isinstance(each, CreateFolder) for each in made.actions):
            return SOON_SECONDS
        pause = FIRST_PAUSE_SECONDS if made.phase == "PENDING" or scene.reason in UNHEARD else LONGEST_PAUSE_SECONDS
        return min(pause, (memory.next_try_seconds() or pause) + 0.05)

    def report(self, scene: Scene, made: Plan, *, again_seconds: float | None, finished: bool = False) -> Report:
        """What the object is told."""
        trouble = scene.seen.troubles.get(FOLDER)
        if trouble is not None and (scene.wish.deleting or not trouble.lasting):
            made = replace(made, phase="ERROR" if trouble.lasting else "PENDING", message=f"{made.message}; {trouble.words}")
        lasting = [each.reason for each in scene.seen.troubles.values() if each.lasting and each.reason]
        reason = "Progressing" if made.phase != "ERROR" else scene.reason or (lasting[0] if lasting else "NeedsAttention")
        return Report(
            plan=made, reason=reason, folder=scene.folder, machines=scene.machines, again_seconds=again_seconds, finished=finished
        )


def leaving_now(seen: Seen, made: Plan) -> list[str]:
    """References of the VMs that a plan newly lets go."""
    before = {each.name for each in seen.records if each.leaving}
    going = {each.name for each in made.records if each.leaving} - before
    return [vm.ref for vm in seen.vms if vm.name in going]


def owner_of(group: Group) -> str:
    """Who asks for room."""
    return f"{group.namespace}/{group.name}"


def amount(wish: Wish, vms: int) -> Amount:
    """So many VMs of the wished size."""
    return Amount(vms=vms, cpus=vms * wish.cpus, memory_mb=vms * wish.memory_mb)


def without_clones(actions: Sequence[Action]) -> tuple[Action, ...]:
    """All others."""
    return tuple(each for each in actions if not isinstance(each, Clone))


class Scene(Struct, frozen=True, kw_only=True):
    """All that a step has found."""

    wish: Wish
    seen: Seen
    folder: GroupFolder | None
    site: Site | None
    parent: str
    name: str
    reason: str
    machines: dict[str, Machine]
