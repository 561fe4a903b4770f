"""Which vCenter serves a namespace, and what kinds may ask of it: answers from memory, refusals as conditions, wake-ups as streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kubewright import Cache, Controller, Key, NotYet, Object, Retry, Stream, Terminal
from kubewright.builtin import Namespace
from kubewright.errors import ConfigError

from ..vsphere.faults import Ambiguous, CertificateRefused, Denied, NotFound, VCenterError, WrongLogin
from ..vsphere.inventory import Change, Place
from ..vsphere.model import Disk, Host, Machine
from ..vsphere.stats_throttle import Pace
from ..vsphere.vcenter import VCenter
from .config import VCenterConfig, choose_vcenter

# Push wakes objects when vCenter is back; this is for the case that something was missed.
LOOK_AGAIN_SECONDS = 60.0
# Nothing is known yet: loading 1,000 hosts takes a second or two, and its end wakes everybody.
NOT_LOADED_SECONDS = 5.0
NO_LABELS_SECONDS = 1.0

HOW_TO_CONFIGURE = (
    "Set GOVMOMI_URL, GOVMOMI_USERNAME and GOVMOMI_PASSWORD (or VC_HOST, VC_USER and VC_PASS) for the manager, "
    "name a mounted Secret with these keys by -vcenter-credentials, or a file of several vCenters by -vcenters"
)


class VCenters:
    """All vCenters of this manager."""

    def __init__(self, opened: Mapping[str, VCenter], configs: Sequence[VCenterConfig], cache: Cache, paces: Callable[[], Pace]) -> None:
        self.opened, self.configs, self.cache = opened, configs, cache
        self.hosts, self.machines, self.disks = Stream(), Stream(), Stream()
        self.pacers: dict[str, Pacer] = {}
        for vcenter in opened.values():
            self.connect(vcenter, paces())

    def connect(self, vcenter: VCenter, pace: Pace) -> None:
        """From now on, what changes there wakes the objects that depend on it."""
        pacer = Pacer(vcenter, pace, self.publish)
        vcenter.inventory.listeners.append(lambda change: self.hear_user(vcenter, change))
        self.pacers[vcenter.name] = pacer
        vcenter.inventory.listeners.append(pacer.hear)
        vcenter.tags.listeners.append(pacer.tell)
        vcenter.disks.listeners.append(self.hear_disk)
        vcenter.listeners.append(self.publish_all)

    def publish(self, entity: Host | Machine) -> None:
        """Wake who names this host or VM."""
        (self.hosts if isinstance(entity, Host) else self.machines).publish(entity.name)

    def hear_disk(self, old: Disk | None, new: Disk | None) -> None:
        """Wake who names this disk, by its old and new name and by its id."""
        known = [disk for disk in (old, new) if disk is not None]
        for name in {name for disk in known for name in (disk.name, disk.id)}:
            self.disks.publish(name)

    def hear_user(self, vcenter: VCenter, change: Change) -> None:
        """A VM came, went, or is known by another uuid: wake who names a disk that it uses."""
        before, after = uuids_of(change.old), uuids_of(change.new)
        for uuid in before ^ after:
            for disk in vcenter.disks.by_user.get(uuid, ()):
                self.hear_disk(None, disk)

    def publish_all(self) -> None:
        """Wake everybody: a vCenter was loaded, was lost, or is back."""
        for stream in (self.hosts, self.machines, self.disks):
            stream.publish_all()

    def serve(self, controller: Controller[Any]) -> None:
        """Let a controller's objects follow their namespace's labels, where these decide which vCenter serves it."""
        if any(config.namespaces is not None and config.namespaces.labels for config in self.configs):
            controller.wake_on(Namespace, by=lambda obj: obj.metadata.namespace, when=labels_moved)
        else:
            # The role is generated without a file of vCenters; whoever writes one with labels later needs the right all the same.
            controller.needs(Namespace, "list", "watch")

    def of(self, obj: Object) -> Served:
        """The vCenter that serves the object's namespace; raises where none does, or where its answers cannot be given now."""
        namespace = obj.metadata.namespace
        try:
            config = choose_vcenter(self.configs, namespace, self.labels_of(namespace))
        except ConfigError as error:
            raise Terminal("VCenterAmbiguous", str(error)) from error
        if config is None:
            raise Terminal("NoVCenter", f'no vCenter serves the namespace "{namespace}". {self.how_to_serve(namespace)}.')
        vcenter = self.opened[config.name]
        if vcenter.problem is not None:
            raise unavailable(vcenter, vcenter.problem, obj)
        if not vcenter.loaded:
            raise NotYet(f'the inventory of vCenter "{vcenter.name}" is being loaded', after=NOT_LOADED_SECONDS)
        return Served(vcenter, self.pacers[vcenter.name].pace)

    def serving(self, namespace: str) -> VCenterConfig | None:
        """The configuration of the vCenter of a namespace; None where none serves it, or nobody can tell."""
        try:
            return choose_vcenter(self.configs, namespace, self.labels_of(namespace))
        except (ConfigError, NotYet):
            return None

    def config(self, name: str) -> VCenterConfig:
        """The configuration of the vCenter of that name."""
        return next(each for each in self.configs if each.name == name)

    def how_to_serve(self, namespace: str) -> str:
        """What to do for a namespace that nobody serves."""
        if not self.configs:
            return HOW_TO_CONFIGURE
        names = ", ".join(config.name for config in self.configs)
        return (
            f'Add "{namespace}" to the `namespaces` of one of {names} in the file of -vcenters, '
            "or an entry without `namespaces`, which serves all the rest"
        )

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace, if they matter to anybody."""
        if not any(config.namespaces is not None and config.namespaces.labels for config in self.configs):
            return {}
        found = self.cache.get(Namespace, Key("", namespace))
        if found is None:
            # Its watch is behind ours: without its labels it would look like one that the vCenter for all the rest serves.
            raise NotYet(f'the labels of the namespace "{namespace}" are not known yet', after=NO_LABELS_SECONDS)
        return found.metadata.labels


class Pacer:
    """Lets changes of one vCenter's hosts and VMs through to the objects: what is structural at once, mere load at its pace."""

    def __init__(self, vcenter: VCenter, pace: Pace, publish: Callable[[Host | Machine], None]) -> None:
        self.vcenter, self.pace, self.publish = vcenter, pace, publish

    async def run(self) -> None:
        """Tell, until cancelled, of load that has moved and has waited long enough."""
        await self.pace.run(self.tell)

    def hear(self, change: Change) -> None:
        """One change of the inventory; under both names, if it was renamed."""
        old, new = change.old, change.new
        known = [entity for entity in (old, new) if isinstance(entity, Host | Machine)]
        if not known:
            return
        before, after = known[0] if old is not None else None, known[-1] if new is not None else None
        if self.pace.changed(before, after, surroundings=change.around):
            for entity in {entity.name: entity for entity in known}.values():
                self.publish(entity)

    def tell(self, ref: str) -> None:
        """Wake who names the host or VM of this reference."""
        inventory = self.vcenter.inventory
        entity = inventory.hosts.get(ref) or inventory.machines.get(ref)
        if entity is not None:
            self.publish(entity)


class Served:
    """What a kind may ask of the vCenter of its namespace. Every answer comes from memory; what is not there raises Terminal."""

    def __init__(self, vcenter: VCenter, pace: Pace) -> None:
        self.vcenter, self.inventory, self.pace = vcenter, vcenter.inventory, pace

    @property
    def name(self) -> str:
        """The vCenter's name."""
        return self.vcenter.name

    def host(self, name: str) -> Host:
        """The ESXi host of this name."""
        with refusals("Host"):
            return self.pace.as_told(self.inventory.host(name))

    def machine(self, name: str) -> Machine:
        """The VM of this name."""
        with refusals("VM"):
            return self.pace.as_told(self.inventory.machine(name))

    def disk(self, name: str) -> Disk:
        """The First Class Disk of this name."""
        return self.disk_where(lambda: self.vcenter.disks.by_name(name))

    def disk_by_id(self, id: str) -> Disk:
        """The First Class Disk of this id."""
        return self.disk_where(lambda: self.vcenter.disks.by_id(id))

    def disk_where(self, find: Callable[[], Disk]) -> Disk:
        """The disk, or words why not."""
        disks = self.vcenter.disks
        if disks.problem is not None and (disks.outdated or not disks.loaded):
            words = f'the First Class Disks of vCenter "{self.name}" cannot be read: {disks.problem}'
            raise Retry(words, after=LOOK_AGAIN_SECONDS, reason="DisksUnreadable")
        if not disks.loaded:
            raise NotYet(f'the disks of vCenter "{self.name}" are being listed', after=NOT_LOADED_SECONDS)
        with refusals("Disk"):
            return find()

    def look_for_disks(self) -> None:
        """Have the disks listed anew soon: one that is missing may be so new that no look has seen it."""
        self.vcenter.disks.refresh_soon()

    def place(self, ref: str) -> Place:
        """Where it is: path, datacenter, cluster."""
        return self.inventory.place(ref)

    def machines_on(self, host: Host) -> int:
        """How many VMs are on a host, templates included."""
        return len(self.inventory.machines_on(host.ref))

    def machine_using(self, disk: Disk) -> Machine | None:
        """The VM that a disk is attached to, if vCenter says so and knows it."""
        for consumer in disk.consumers:
            for find in (self.inventory.machine_by_instance_uuid, self.inventory.machine_by_bios_uuid):
                try:
                    return find(consumer)
                except (NotFound, Ambiguous):
                    continue
        return None

    def name_of(self, ref: str) -> str:
        """The name of anything in the inventory, "" for what is not there."""
        return self.inventory.name_of(ref)

    def tags(self, ref: str) -> tuple[str, ...]:
        """The tags as `category:tag`."""
        return self.vcenter.tags.of(ref)


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """What vCenter does not have, or has twice, as a condition; the push that changes it wakes the object again."""
    try:
        yield
    except NotFound as error:
        raise Terminal(f"{what}NotFound", str(error)) from error
    except Ambiguous as error:
        raise Terminal(f"{what}Ambiguous", str(error)) from error


REASONS = {WrongLogin: "VCenterLoginFailed", CertificateRefused: "VCenterCertificateRefused", Denied: "VCenterDenied"}


def unavailable(vcenter: VCenter, problem: VCenterError, obj: Object) -> Retry | Terminal:
    """Ready=False in plain words. If the last answer is to what is asked now, it stays, with the time until which it was true."""
    reason = next((word for kind, word in REASONS.items() if isinstance(problem, kind)), "VCenterUnreachable")
    if not answers_now(obj, vcenter.name):
        return Terminal(reason, str(problem))
    until = f"{vcenter.true_until:%Y-%m-%dT%H:%M:%SZ}" if vcenter.loaded else "the manager was started"
    words = str(problem).rstrip(".")
    return Retry(f"{words}. What is shown was true until {until}.", after=LOOK_AGAIN_SECONDS, reason=reason)


def answers_now(obj: Any, vcenter: str = "") -> bool:
    """Whether the status answers the present spec, and, of a kind that shows its vCenter, from this one."""
    status = obj.status
    return status.observedGeneration == obj.metadata.generation and getattr(status, "vcenter", vcenter) == vcenter


def uuids_of(item: object) -> set[str]:
    """By what a disk may know the VM that uses it."""
    return {item.bios_uuid.lower(), item.instance_uuid.lower()} - {""} if isinstance(item, Machine) else set()


def labels_moved(old: Namespace | None, new: Namespace | None) -> bool:
    """Whether a namespace may have moved to another vCenter."""
    return old is None or new is None or old.metadata.labels != new.metadata.labels
