"""VmGroup: N virtual machines cloned from a template. What is done is decided by `plan()`; docs/designs/vmgroup.md has the argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, to_builtins

from kubewright import (
    Cache,
    Client,
    Column,
    Condition,
    Controller,
    Done,
    Key,
    NotYet,
    Resource,
    Retry,
    Rule,
    Scale,
    Terminal,
    kind,
    spec_changed,
)
from kubewright.builtin import Namespace, Secret
from kubewright.errors import Forbidden, NotFound, NotLeader, cut
from kubewright.recorder import Recorder

from ...vcenters.config import VCenterConfig
from ...vcenters.registry import LOOK_AGAIN_SECONDS
from ...vsphere.model import Machine, Task
from ...vsphere.vm_calls import guestinfo
from .folder import Claim
from .limits import Amount, Limits
from .messages import line_of_request
from .model import GroupFolder, Obstacle, Plan, Record, Rollout, Wish
from .names import folder_name
from .ownership import Group, fingerprint
from .placement import Ground
from .reconciler import Case, Means, Report, Steward
from .triggers import Groups
from .types import FolderStatus, ReplicaStatus, RolloutSpec, VmGroupSpec, VmGroupStatus

MB_OF_GB = 1024
GROUP = "vm.codeconnect.vmworld.com"
BY_FOLDER = "vmgroup-by-folder"
NOT_READ_SECONDS = 0.5
CLUSTER_NAMESPACE = "kube-system"


@kind(
    f"{GROUP}/v1alpha1",
    short=("vg",),
    columns=[
        Column("Phase", ".status.phase"),
        Column("Current", ".status.currentReplicas"),
        Column("Desired", ".spec.replicas"),
        Column("CPU", ".spec.cpu"),
        Column("Memory", ".spec.memory"),
        Column("Template", ".spec.template"),
        Column("Last_Message", ".status.lastMessage"),
        Column("Ready_Replicas", ".status.readyReplicas", priority=1),
        Column("Folder", ".status.folder.path", priority=1),
        Column("VCenter", ".status.vcenter", priority=1),
    ],
    scale=Scale(".spec.replicas", ".status.currentReplicas", ".status.selector"),
)
class VmGroup(Resource[VmGroupSpec, VmGroupStatus]):
    """A number of equal virtual machines, cloned from a template."""

    # Without its spec nobody could tell what to clean up.
    rules = (Rule("!has(oldSelf.spec) || has(self.spec)", "spec cannot be taken away; delete the object instead"),)

    @property
    def deleting(self) -> bool:
        """Whether it is to go."""
        return self.metadata.deletionTimestamp is not None

    @property
    def records(self) -> tuple[Record, ...]:
        """Its replicas as they are stored."""
        return tuple(each.record() for each in self.status.replicas)


def wish_of(group: VmGroup) -> Wish:
    """What the object asks for."""
    spec, rollout = group.spec, group.spec.rollout or RolloutSpec()
    return Wish(
        cpus=spec.cpu,
        memory_mb=spec.memory * MB_OF_GB,
        replicas=spec.replicas,
        uid=group.metadata.uid,
        template_name=spec.template,
        fingerprint=fingerprint(spec.template, str(spec.linkedClone), spec.storagePolicy),
        power=spec.powerState,
        rollout=Rollout(max_surge=rollout.maxSurge, max_unavailable=rollout.maxUnavailable, strategy=rollout.strategy),
        paused=spec.paused,
        deleting=group.deleting,
        deletion_policy=spec.deletionPolicy,
    )


class Around(Struct, frozen=True, kw_only=True):
    """What a status shows beside the plan."""

    vcenter: str
    machines: dict[str, Machine]
    """By name of the replica."""
    refs: Mapping[str, str]
    """What was last told of the VMs that are not seen: one that tells no configuration now is still known by it after a restart."""
    tasks: dict[str, Task]
    host_name: Callable[[str], str]
    folder: GroupFolder | None


def status_of(group: VmGroup, plan: Plan, around: Around) -> VmGroupStatus:
    """All of the answer."""
    counts = plan.counts
    return VmGroupStatus(
        phase=plan.phase,
        currentReplicas=counts.current,
        desiredReplicas=group.spec.replicas,
        readyReplicas=counts.ready,
        updatedReplicas=counts.updated,
        lastMessage=cut(plan.message),
        selector=f"{GROUP}/vmgroup-uid={group.metadata.uid}",
        replicas=[replica_of(each, around) for each in plan.records],
        folder=FolderStatus(ref=around.folder.ref, path=around.folder.path) if around.folder else None,
        vcenter=around.vcenter,
        conditions=conditions_of(group, plan),
    )


def replica_of(record: Record, around: Around) -> ReplicaStatus:
    """One replica."""
    vm, task = around.machines.get(record.name), around.tasks.get(record.task)
    running = task is not None and task.state in ("queued", "running")
    return ReplicaStatus(
        name=record.name,
        slot=record.slot,
        instanceUUID=record.instance_uuid,
        template=record.template,
        fingerprint=record.fingerprint,
        state=record.state,
        task=record.task,
        progress=task.progress_percent if task is not None and running else None,
        attempt=record.attempt,
        leaving=record.leaving,
        moRef=vm.ref if vm else around.refs.get(record.name, "") if record.state == "Present" else "",
        power=vm.power if vm else "",
        ipAddress=vm.ip_address if vm else "",
        host=around.host_name(vm.host) if vm else "",
    )


def conditions_of(group: VmGroup, plan: Plan) -> list[Condition]:
    """Progressing and Degraded; Ready is the engine's."""
    working = plan.phase == "PENDING" and not group.spec.paused
    short = plan.counts.ready < group.spec.replicas
    return [
        condition(group, "Progressing", working, "Working" if working else "Paused" if group.spec.paused else "Idle"),
        condition(group, "Degraded", short and plan.phase == "ERROR", "TooFewReady" if short and plan.phase == "ERROR" else "NotInError"),
    ]


def condition(group: VmGroup, type: str, holds: bool, reason: str) -> Condition:
    """One condition."""
    return Condition(type=type, status="True" if holds else "False", reason=reason, observedGeneration=group.metadata.generation)


def depends_on(group: VmGroup) -> Iterable[str]:
    """What wakes a group; see groups.py."""
    status, spec = group.status, group.spec
    template, parent = (each.rpartition("/")[2] for each in (spec.template, spec.asked["folder"] or "vm-operator"))
    yield from (f"uid:{group.metadata.uid}", f"owner:{group.key}", f"template:{template}", f"folder:{parent}")
    # Its own folder, and where it was refused that one, what happens in it.
    yield f"folder:{status.folder.ref}" if status.folder is not None else f"folder:{folder_name_of(group)}"
    # Whose clone may be any of those that run, waits for each of them.
    yield from {f"source:{each.template}" for each in status.replicas if each.template and each.state == "Planned"}


def folder_name_of(group: VmGroup) -> str:
    """The name of its folder, which another group may have too."""
    return folder_name(group.metadata.namespace, group.metadata.name)


def interests(group: VmGroup) -> Iterable[str]:
    """Whose change may mend a group that is in error: who shares its folder's name, or its namespace's quota."""
    return neighbourhood(group) if group.status.phase == "ERROR" else ()


def neighbourhood(group: VmGroup) -> Iterable[str]:
    """What a group shares with others."""
    return f"folder:{folder_name_of(group)}", f"namespace:{group.metadata.namespace}"


class Guard:
    """What a group needs of Kubernetes before it acts: who we are, whether we may, what the object says now, and its Secret."""

    def __init__(self, client: Client, recorder: Recorder, may_write: Callable[[], bool], cluster: str = "") -> None:
        self.client, self.recorder, self.may_write, self.cluster = client, recorder, may_write, cluster

    async def owner(self, group: VmGroup) -> Group:
        """Whose VMs they are. The cluster is known by the uid of one of its namespaces, which no other has."""
        if not self.cluster:
            self.cluster = (await self.client.get(Namespace, Key("", CLUSTER_NAMESPACE))).metadata.uid
        meta = group.metadata
        return Group(cluster=self.cluster, namespace=meta.namespace, name=meta.name, uid=meta.uid)

    def means(self, group: VmGroup, say: Callable[[str], None]) -> Means:
        """For one step of one group."""
        return Means(
            say=say,
            may_act=self.may_act,
            confirm=lambda name: self.confirm(group, name),
            warn=lambda reason, words: self.recorder.event(group, VmGroup.definition, "Warning", reason, words),
            options=lambda: self.options(group),
        )

    def may_act(self) -> None:
        """Raise unless the lease is certainly ours at this moment."""
        if not self.may_write():
            raise NotLeader("nothing is sent to vCenter: this manager does not certainly hold the lease")

    async def confirm(self, group: VmGroup, name: str) -> bool:
        """Whether the object, fresh from the API server, still wants this replica gone, or with "" itself."""
        try:
            fresh = await self.client.get(VmGroup, group.key)
        except NotFound:
            return False
        if fresh.metadata.uid != group.metadata.uid:
            return False
        if fresh.spec.paused or (fresh.deleting and fresh.spec.deletionPolicy == "Orphan"):
            return False
        return any(each.name == name and each.leaving for each in fresh.status.replicas) if name else fresh.deleting

    async def options(self, group: VmGroup) -> dict[str, str]:
        """cloud-init's data from the Secret, as extraConfig."""
        asked = group.spec.bootstrap.cloudInit if group.spec.bootstrap else None
        if asked is None:
            return {}
        key = Key(group.metadata.namespace, asked.secretName)
        try:
            found = await self.client.get(Secret, key)
        except NotFound as error:
            raise Obstacle("SecretNotFound", f'the Secret "{key}" of spec.bootstrap.cloudInit does not exist; create it') from error
        except Forbidden as error:
            cure = f"kubectl apply -n {key.namespace} -f config/optional/cloud-init-secrets.yaml lets it"
            raise Obstacle("SecretForbidden", f'the manager may not read the Secret "{key}" of spec.bootstrap.cloudInit; {cure}') from error
        if asked.userDataKey not in found.data:
            raise Obstacle("SecretIncomplete", f'the Secret "{key}" has no key "{asked.userDataKey}"; add it, or set userDataKey')
        return guestinfo(found.data[asked.userDataKey], found.data.get(asked.metaDataKey, b""))


class VmGroupController(Controller[VmGroup]):
    """Takes one step of a group at a time: look, plan, store or do. Nothing waits for vCenter's tasks: their ends wake the group."""

    finalizer = "vm-operator"
    concurrency = 16  # It alone calls vCenter, whose threads and our few connections to it are everybody's.
    resync_seconds = 300.0

    def __init__(self, groups: Groups, cache: Cache, guard: Guard, limits: Callable[[str], Limits]) -> None:
        self.groups, self.cache, self.guard, self.limits = groups, cache, guard, limits
        self.stewards = {name: Steward(workshop) for name, workshop in groups.workshops.items()}
        cache.store(VmGroup).add_index(BY_FOLDER, folder_name_of)
        groups.vcenters.serve(self)
        self.wake_on(groups.stream, by=depends_on)
        self.wake_on(VmGroup, by=interests, of=neighbourhood, when=spec_changed)
        self.needs(VmGroup, "get")
        self.needs(Namespace, "get", names=(CLUSTER_NAMESPACE,))

    async def reconcile(self, group: VmGroup) -> Done:
        """One step towards the wish."""
        report = await self.step(group)
        if report.plan.phase != "RUNNING":
            raise unready(report)
        return Done(message=report.plan.message)

    async def finalize(self, group: VmGroup) -> None:
        """One step towards the end."""
        if is_untouched(group) and not any(each.owners.by_uid.of(group.metadata.uid) for each in self.groups.workshops.values()):
            return
        report = await self.step(group)
        if not report.finished:
            raise unready(report)
        self.stewards[group.status.vcenter].workshop.forget(await self.guard.owner(group))

    async def step(self, group: VmGroup) -> Report:
        """Look, plan, do; the status has all of it."""
        log = self.log_of(group.key)
        log.info(line_of_request(group.metadata.namespace, group.metadata.name))
        steward, config = self.steward_for(group)
        owner = await self.guard.owner(group)
        try:
            report = await steward.step(self.case(group, owner, config), self.guard.means(group, log.info))
        except Obstacle as error:
            group.status.phase, group.status.lastMessage = "ERROR", str(error)
            raise Retry(str(error), after=LOOK_AGAIN_SECONDS, reason=error.reason) from error
        around = Around(
            vcenter=steward.vcenter.name,
            machines=report.machines,
            refs=refs_of(group),
            tasks=steward.inventory.tasks,
            host_name=steward.inventory.name_of,
            folder=report.folder,
        )
        group.status = status_of(group, report.plan, around)
        return report

    def steward_for(self, group: VmGroup) -> tuple[Steward, VCenterConfig]:
        """Who looks after the group. No records are lost when nobody can: Terminal would set the status back to nothing."""
        status, vcenters = group.status, self.groups.vcenters
        try:
            vcenter = vcenters.of(group).vcenter
        except (Terminal, Retry) as error:
            status.phase, status.lastMessage = "ERROR" if isinstance(error, Terminal) else "PENDING", str(error)
            raise Retry(str(error), after=LOOK_AGAIN_SECONDS, reason=error.reason) from error
        if status.replicas and status.vcenter not in ("", vcenter.name):
            status.phase = "ERROR"
            status.lastMessage = (
                f'the VMs of this group are in vCenter "{status.vcenter}", and "{vcenter.name}" serves this namespace now; nothing is '
                "done in either. Let the first serve it again, or set spec.deletionPolicy to Orphan there and make a new group."
            )
            raise Retry(status.lastMessage, after=LOOK_AGAIN_SECONDS, reason="VCenterChanged")
        steward = self.stewards[vcenter.name]
        if not steward.workshop.owners.ready:
            raise NotYet("the marks of VMs are being read", after=NOT_READ_SECONDS)
        return steward, vcenters.config(vcenter.name)

    def case(self, group: VmGroup, owner: Group, config: VCenterConfig) -> Case:
        """What the object says, and what has to be known of the others."""
        spec, here = group.spec, group.metadata.namespace
        return Case(
            group=owner,
            wish=wish_of(group),
            generation=group.metadata.generation,
            records=group.records,
            folder=group.status.folder.ref if group.status.folder else "",
            asked=spec.asked,
            defaults=to_builtins(config.defaults),
            limits=self.limits(here),
            claim=self.claim_of(group, owner.cluster),
            claims=[self.claim_of(each, owner.cluster) for each in self.cache.by(VmGroup, BY_FOLDER, folder_name_of(group))],
            others=lambda: [
                amount_beside(group, each) for each in self.cache.all(VmGroup, here) if each.metadata.uid != group.metadata.uid
            ],
            refs=refs_of(group),
            accounted=lambda: {each.task for other in self.cache.all(VmGroup) for each in other.status.replicas if each.task},
            linked=spec.linkedClone,
            storage_policy=spec.storagePolicy,
        )

    def claim_of(self, group: VmGroup, cluster: str) -> Claim:
        """Which folder a group has or would make: by vCenter and reference of what it is in, since a folder can be named in many ways."""
        meta = group.metadata
        owner = Group(cluster=cluster, namespace=meta.namespace, name=meta.name, uid=meta.uid)
        where, holds = f"{self.parent_of(group)}/{folder_name_of(group)}", bool(group.status.replicas)
        return Claim(group=owner, folder=where, created=created_at(group), holds=holds)

    def parent_of(self, group: VmGroup) -> str:
        """The vCenter and the folder that a group's folder is in; "" of what cannot be told."""
        config = self.groups.vcenters.serving(group.metadata.namespace)
        if config is None:
            return ""
        ground = Ground(self.groups.vcenters.opened[config.name].inventory, group.spec.asked, to_builtins(config.defaults), Limits())
        try:
            return f"{config.name}/{ground.parent(ground.datacenter()).ref}"
        except Obstacle:
            return f"{config.name}/"


def refs_of(group: VmGroup) -> dict[str, str]:
    """References of its VMs as they were last told, by name of the replica."""
    return {each.name: each.moRef for each in group.status.replicas if each.moRef}


def created_at(group: VmGroup) -> str:
    """When it was made, so that the first comes first."""
    moment = group.metadata.creationTimestamp
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else ""


def amount_beside(group: VmGroup, other: VmGroup) -> Amount:
    """What another group takes of the quota: all that it asks for if it is older, else what it has."""
    spec, older = other.spec, (created_at(other), other.metadata.uid) < (created_at(group), group.metadata.uid)
    vms = spec.replicas if older else len(other.status.replicas)
    return Amount(vms=vms, cpus=vms * spec.cpu, memory_mb=vms * spec.memory * MB_OF_GB)


def is_untouched(group: VmGroup) -> bool:
    """Whether nothing was ever made for it, so that it may go whether or not vCenter answers. A status that was wiped says nothing."""
    status = group.status
    return not status.replicas and status.folder is None and status.observedGeneration is not None


def unready(report: Report) -> Retry:
    """What the object says while it is not as it should be; work under way is no warning."""
    after = LOOK_AGAIN_SECONDS if report.again_seconds is None else report.again_seconds
    return Retry(report.plan.message, after=after, reason=report.reason, warns=report.plan.phase == "ERROR")
