"""Which vCenter serves a namespace, and what kinds may ask of it: answers from memory, refusals as conditions, wake-ups as streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kubewright import Cache, Controller, Key, NotSynced, Object, Retry, Stream, Terminal
from kubewright.builtin import Namespace
from kubewright.errors import ConfigError

from ..vsphere.faults import (
    Ambiguous,
    CertificateRefused,
    Denied,
    NotFound,
    VCenterError,
    WrongLogin,
)
from ..vsphere.inventory import Change, Location
from ..vsphere.model import Disk, Host, VirtualMachine
from ..vsphere.stats_throttle import StatsThrottle
from ..vsphere.vcenter import VCenter
from .config import VCenterConfig, choose_vcenter

# Push wakes objects when vCenter is back; this is for the case that something was missed.
UNAVAILABLE_RETRY_SECONDS = 60.0
# Nothing is known yet: loading 1,000 hosts takes a second or two, and its end wakes everybody.
NOT_LOADED_RETRY_SECONDS = 5.0
_NO_LABELS_RETRY_SECONDS = 1.0

CONFIGURATION_HINT = (
    "Set GOVMOMI_URL, GOVMOMI_USERNAME and GOVMOMI_PASSWORD (or VC_HOST, VC_USER and VC_PASS) for the manager, "
    "name a mounted Secret with these keys by -vcenter-credentials, or a file of several vCenters by -vcenters"
)


class VCenterRegistry:
    """All vCenters of this manager."""

    def __init__(
        self,
        opened: Mapping[str, VCenter],
        configs: Sequence[VCenterConfig],
        cache: Cache,
        paces: Callable[[], StatsThrottle],
    ) -> None:
        self.vcenters_by_name, self.configs, self.cache = opened, configs, cache
        self.host_changes, self.vm_changes, self.disk_changes = Stream(), Stream(), Stream()
        self.publishers: dict[str, ChangePublisher] = {}
        for vcenter in opened.values():
            self.connect(vcenter, paces())

    def connect(self, vcenter: VCenter, pace: StatsThrottle) -> None:
        """From now on, what changes there wakes the objects that depend on it."""
        pacer = ChangePublisher(vcenter, pace, self.publish)
        vcenter.inventory.listeners.append(lambda change: self.on_vm_change(vcenter, change))
        self.publishers[vcenter.name] = pacer
        vcenter.inventory.listeners.append(pacer.on_inventory_change)
        vcenter.tags.listeners.append(pacer._publish_ref)
        vcenter.disks.listeners.append(self._on_disk_change)
        vcenter.listeners.append(self.publish_all)

    def publish(self, entity: Host | VirtualMachine) -> None:
        """Wake who names this host or VM."""
        (self.host_changes if isinstance(entity, Host) else self.vm_changes).publish(entity.name)

    def _on_disk_change(self, old: Disk | None, new: Disk | None) -> None:
        """Wake who names this disk, by its old and new name and by its id."""
        known = [disk for disk in (old, new) if disk is not None]
        for name in {name for disk in known for name in (disk.name, disk.id)}:
            self.disk_changes.publish(name)

    def on_vm_change(self, vcenter: VCenter, change: Change) -> None:
        """A VM came, went, or is known by another uuid: wake who names a disk that it uses."""
        before, after = _read_uuids(change.old), _read_uuids(change.new)
        for uuid in before ^ after:
            for disk in vcenter.disks.disks_by_consumer.get(uuid, ()):
                self._on_disk_change(None, disk)

    def publish_all(self) -> None:
        """Wake everybody: a vCenter was loaded, was lost, or is back."""
        for stream in (self.host_changes, self.vm_changes, self.disk_changes):
            stream.publish_all()

    def watch_namespaces(self, controller: Controller[Any]) -> None:
        """Let a controller's objects follow their namespace's labels, where these decide which vCenter serves it."""
        if any(
            config.namespaces is not None and config.namespaces.labels for config in self.configs
        ):
            controller.wake_on(
                Namespace, by=lambda obj: obj.metadata.namespace, when=_have_labels_changed
            )
        else:
            # The role is generated without a file of vCenters; whoever writes one with labels later needs the right all the same.
            controller.needs(Namespace, "list", "watch")

    def get_view(self, obj: Object) -> VCenterView:
        """The vCenter that serves the object's namespace; raises where none does, or where its answers cannot be given now."""
        namespace = obj.metadata.namespace
        try:
            config = choose_vcenter(self.configs, namespace, self._read_labels(namespace))
        except ConfigError as error:
            raise Terminal("VCenterAmbiguous", str(error)) from error
        if config is None:
            raise Terminal(
                "NoVCenter",
                f'no vCenter serves the namespace "{namespace}". {self._explain_unserved(namespace)}.',
            )
        vcenter = self.vcenters_by_name[config.name]
        if vcenter.problem is not None:
            raise unavailable_error(vcenter, vcenter.problem, obj)
        if not vcenter.loaded:
            raise NotSynced(
                f'the inventory of vCenter "{vcenter.name}" is being loaded',
                after=NOT_LOADED_RETRY_SECONDS,
            )
        return VCenterView(vcenter, self.publishers[vcenter.name]._throttle)

    def find_config(self, namespace: str) -> VCenterConfig | None:
        """The configuration of the vCenter of a namespace; None where none serves it, or nobody can tell."""
        try:
            return choose_vcenter(self.configs, namespace, self._read_labels(namespace))
        except (ConfigError, NotSynced):
            return None

    def get_config(self, name: str) -> VCenterConfig:
        """The configuration of the vCenter of that name."""
        return next(each for each in self.configs if each.name == name)

    def _explain_unserved(self, namespace: str) -> str:
        """What to do for a namespace that nobody serves."""
        if not self.configs:
            return CONFIGURATION_HINT
        names = ", ".join(config.name for config in self.configs)
        return (
            f'Add "{namespace}" to the `namespaces` of one of {names} in the file of -vcenters, '
            "or an entry without `namespaces`, which serves all the rest"
        )

    def _read_labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace, if they matter to anybody."""
        if not any(
            config.namespaces is not None and config.namespaces.labels for config in self.configs
        ):
            return {}
        found = self.cache.get(Namespace, Key("", namespace))
        if found is None:
            # Its watch is behind ours: without its labels it would look like one that the vCenter for all the rest serves.
            raise NotSynced(
                f'the labels of the namespace "{namespace}" are not known yet',
                after=_NO_LABELS_RETRY_SECONDS,
            )
        return found.metadata.labels


class ChangePublisher:
    """Lets changes of one vCenter's hosts and VMs through to the objects: what is structural at once, mere load at its pace."""

    def __init__(
        self,
        vcenter: VCenter,
        pace: StatsThrottle,
        publish: Callable[[Host | VirtualMachine], None],
    ) -> None:
        self.vcenter, self._throttle, self.publish = vcenter, pace, publish

    async def run(self) -> None:
        """Tell, until cancelled, of load that has moved and has waited long enough."""
        await self._throttle.run(self._publish_ref)

    def on_inventory_change(self, change: Change) -> None:
        """One change of the inventory; under both names, if it was renamed."""
        old, new = change.old, change.new
        known = [entity for entity in (old, new) if isinstance(entity, Host | VirtualMachine)]
        if not known:
            return
        before, after = (
            known[0] if old is not None else None,
            known[-1] if new is not None else None,
        )
        if self._throttle.should_publish(
            before, after, dependency_changed=change.dependency_changed
        ):
            for entity in {entity.name: entity for entity in known}.values():
                self.publish(entity)

    def _publish_ref(self, ref: str) -> None:
        """Wake who names the host or VM of this reference."""
        inventory = self.vcenter.inventory
        entity = inventory.hosts.get(ref) or inventory.vms.get(ref)
        if entity is not None:
            self.publish(entity)


class VCenterView:
    """What a kind may ask of the vCenter of its namespace. Every answer comes from memory; what is not there raises Terminal."""

    def __init__(self, vcenter: VCenter, pace: StatsThrottle) -> None:
        self.vcenter, self.inventory, self._throttle = vcenter, vcenter.inventory, pace

    @property
    def name(self) -> str:
        """The vCenter's name."""
        return self.vcenter.name

    def find_host(self, name: str) -> Host:
        """The ESXi host of this name."""
        with _lookup_errors_as_terminal("Host"):
            return self._throttle.with_published_stats(self.inventory.find_host(name))

    def find_vm(self, name: str) -> VirtualMachine:
        """The VM of this name."""
        with _lookup_errors_as_terminal("VM"):
            return self._throttle.with_published_stats(self.inventory.find_vm(name))

    def find_disk(self, name: str) -> Disk:
        """The First Class Disk of this name."""
        return self._require_disk(lambda: self.vcenter.disks.find_by_name(name))

    def find_disk_by_id(self, id: str) -> Disk:
        """The First Class Disk of this id."""
        return self._require_disk(lambda: self.vcenter.disks.find_by_id(id))

    def _require_disk(self, find: Callable[[], Disk]) -> Disk:
        """The disk, or words why not."""
        disks = self.vcenter.disks
        if disks.problem is not None and (disks.is_stale or not disks.loaded):
            words = (
                f'the First Class Disks of vCenter "{self.name}" cannot be read: {disks.problem}'
            )
            raise Retry(words, after=UNAVAILABLE_RETRY_SECONDS, reason="DisksUnreadable")
        if not disks.loaded:
            raise NotSynced(
                f'the disks of vCenter "{self.name}" are being listed',
                after=NOT_LOADED_RETRY_SECONDS,
            )
        with _lookup_errors_as_terminal("Disk"):
            return find()

    def request_disk_refresh(self) -> None:
        """Have the disks listed anew soon: one that is missing may be so new that no look has seen it."""
        self.vcenter.disks.request_refresh()

    def location(self, ref: str) -> Location:
        """Where it is: path, datacenter, cluster."""
        return self.inventory.location(ref)

    def count_vms_on(self, host: Host) -> int:
        """How many VMs are on a host, templates included."""
        return len(self.inventory.vms_on(host.ref))

    def find_vm_using(self, disk: Disk) -> VirtualMachine | None:
        """The VM that a disk is attached to, if vCenter says so and knows it."""
        for consumer in disk.consumers:
            for find in (
                self.inventory.find_vm_by_instance_uuid,
                self.inventory.find_vm_by_bios_uuid,
            ):
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
        return self.vcenter.tags.get(ref)


@contextmanager
def _lookup_errors_as_terminal(what: str) -> Iterator[None]:
    """What vCenter does not have, or has twice, as a condition; the push that changes it wakes the object again."""
    try:
        yield
    except NotFound as error:
        raise Terminal(f"{what}NotFound", str(error)) from error
    except Ambiguous as error:
        raise Terminal(f"{what}Ambiguous", str(error)) from error


UNAVAILABLE_REASONS = {
    WrongLogin: "VCenterLoginFailed",
    CertificateRefused: "VCenterCertificateRefused",
    Denied: "VCenterDenied",
}


def unavailable_error(vcenter: VCenter, problem: VCenterError, obj: Object) -> Retry | Terminal:
    """Ready=False in plain words. If the last answer is to what is asked now, it stays, with the time until which it was true."""
    reason = next(
        (word for kind, word in UNAVAILABLE_REASONS.items() if isinstance(problem, kind)),
        "VCenterUnreachable",
    )
    if not is_status_current(obj, vcenter.name):
        return Terminal(reason, str(problem))
    until = (
        f"{vcenter.accurate_until:%Y-%m-%dT%H:%M:%SZ}"
        if vcenter.loaded
        else "the manager was started"
    )
    words = str(problem).rstrip(".")
    return Retry(
        f"{words}. What is shown was true until {until}.",
        after=UNAVAILABLE_RETRY_SECONDS,
        reason=reason,
    )


def is_status_current(obj: Any, vcenter: str = "") -> bool:
    """Whether the status answers the present spec, and, of a kind that shows its vCenter, from this one."""
    status = obj.status
    return (
        status.observedGeneration == obj.metadata.generation
        and getattr(status, "vcenter", vcenter) == vcenter
    )


def _read_uuids(item: object) -> set[str]:
    """By what a disk may know the VM that uses it."""
    return (
        {item.bios_uuid.lower(), item.instance_uuid.lower()} - {""}
        if isinstance(item, VirtualMachine)
        else set()
    )


def _have_labels_changed(old: Namespace | None, new: Namespace | None) -> bool:
    """Whether a namespace may have moved to another vCenter."""
    return old is None or new is None or old.metadata.labels != new.metadata.labels
