"""Whether a replica's VM that is not in the inventory was deleted, or is only missing.

Why not take every missing VM for deleted?  VMs also leave the inventory when their host is removed,
    when vCenter is restored from a backup, and when the account loses a permission. All of them
    come back, and a clone made meanwhile would be one VM too many.
When was a VM deleted?  If a task destroyed it. If a leave update arrived in this watch, its host is
    still connected, and a read by reference finds nothing. Otherwise after it has been missing for
    a settable time, in one uninterrupted watch, with all hosts of the placement connected.
What if it is not known whether a VM existed?  The response to a clone was lost, and no VM is there.
    That is mostly a clone that was never sent. But while VMs of other replicas are missing, vCenter
    may have been restored, and this one may come back too.
What if the read finds the VM?  Then the account may not see it. That is never a deletion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct

from kubewright.flags import format_duration

from ...vsphere.faults import Denied, NotFound, Rejected, VCenterError
from ...vsphere.inventory import Change
from ...vsphere.model import Host, VirtualMachine
from ...vsphere.vcenter import VCenter
from .ownership import may_be_replica

# A host and its VMs leave in several updates, the VMs first.
_HOST_LEAVE_SECONDS = 2.0
# How long the result of a read by reference counts.
_READ_VALID_SECONDS = 5.0
# How often to check hosts and permissions: their change does not enqueue the group.
_RECHECK_SECONDS = 20.0
# After a VM was missing, others may be missing too for this long. Its group decides again before.
_DOUBT_SECONDS = 3 * _RECHECK_SECONDS
# Groups are reconciled every 5 minutes: an entry that none has used for this long is not needed.
_EXPIRY_SECONDS = 3600.0

_ValueT = TypeVar("_ValueT", bound="_Timed")


class Absence(Struct, frozen=True, kw_only=True):
    """What is known of a VM that is not in the inventory."""

    deleted: bool = False
    # Why the group waits, and for what; "" if it was deleted.
    message: str = ""
    # It is known within seconds whether it was deleted.
    is_brief: bool = False
    # When to decide again.
    recheck_seconds: float = _RECHECK_SECONDS
    # If set: pass it to `AbsenceTracker.read` before the next decision.
    ref_to_read: str = ""


class _Timed(Struct, frozen=True, kw_only=True):
    at: float


class _Departure(_Timed, frozen=True, kw_only=True):
    """A leave update."""

    ref: str
    host: str


class _LastVm(_Timed, frozen=True, kw_only=True):
    """The VM that last had a reference."""

    instance_uuid: str


class _Missing(_Timed, frozen=True, kw_only=True):
    # When the time began to count, and the text of its end in the message. A text that moved with
    # each reconcile would be written each time.
    since: float
    deadline_text: str


class _Read(_Timed, frozen=True, kw_only=True):
    exists: bool


class AbsenceTracker:
    """The VMs of replicas that left the inventory of one vCenter, by instanceUuid."""

    def __init__(
        self,
        vcenter: VCenter,
        timeout_seconds: float,
        now: Callable[[], datetime],
    ) -> None:
        self._vcenter, self._inventory = vcenter, vcenter.inventory
        self._timeout_seconds, self._now = timeout_seconds, now
        self._departures: dict[str, _Departure] = {}
        # By reference, of all VMs that left.
        self._last_vms: dict[str, _LastVm] = {}
        self._missing: dict[str, _Missing] = {}
        # By reference of a VM.
        self._reads: dict[str, _Read] = {}
        # By compute resource, when one of its hosts was last added, removed or (dis)connected.
        self._hosts_changed_at: dict[str, float] = {}
        # When the VM of any replica was last missing.
        self._last_missing_at = -math.inf

    def on_vm_change(self, change: Change[VirtualMachine]) -> None:
        old, new, now = change.old, change.new, self._vcenter.clock()
        if old and old.instance_uuid and (not new or old.instance_uuid != new.instance_uuid):
            last_vm = _LastVm(at=now, instance_uuid=old.instance_uuid.lower())
            _put_and_expire(self._last_vms, old.ref, last_vm, now)
        if new is not None:
            self._departures.pop(new.instance_uuid.lower(), None)
            self._missing.pop(new.instance_uuid.lower(), None)
        elif old is not None and may_be_replica(old.instance_uuid):
            key = old.instance_uuid.lower()
            # The VM was visible until now, so an earlier leave update does not explain this.
            self._departures.pop(key, None)
            if not change.reloaded:
                departure = _Departure(at=now, ref=old.ref, host=old.host)
                _put_and_expire(self._departures, key, departure, now)

    def on_host_change(self, change: Change[Host]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.connection != new.connection:
            for host in (old, new):
                if host is not None:
                    self._hosts_changed_at[host.parent] = self._vcenter.clock()

    def forget_vm(self, instance_uuid: str) -> None:
        """A new clone gets this instanceUuid: what is known is about an earlier VM.

        The new VM may become missing before the inventory has shown it.
        """
        self._departures.pop(instance_uuid.lower(), None)
        self._missing.pop(instance_uuid.lower(), None)

    def report_missing(self) -> None:
        """A replica that had a VM is missing it."""
        self._last_missing_at = self._vcenter.clock()

    @property
    def is_any_missing(self) -> bool:
        """Whether VMs of this vCenter are missing, so that others may be too."""
        return self._vcenter.clock() - self._last_missing_at <= _DOUBT_SECONDS

    def judge(
        self, replica: str, instance_uuid: str, last_known_ref: str, compute_refs: Collection[str]
    ) -> Absence:
        """Whether the VM was deleted; `compute_refs` are the clusters and hosts that can run it."""
        key, now = instance_uuid.lower(), self._vcenter.clock()
        departure = self._departures.get(key)
        ref = departure.ref if departure is not None else last_known_ref
        if ref and self._was_destroyed(ref, key, replica):
            return Absence(deleted=True)
        missing = self._update_missing(key, compute_refs, now)
        prefix = f'The VM of replica "{replica}" is missing in vCenter'
        if departure is not None and self._is_leave_conclusive(departure):
            wait_seconds = departure.at + min(_HOST_LEAVE_SECONDS, self._timeout_seconds) - now
            if wait_seconds <= 0:
                return self._judge_by_read(ref, prefix, now)
            return Absence(message=f"{prefix}.", is_brief=True, recheck_seconds=wait_seconds)
        if disconnected := self._list_disconnected_hosts(compute_refs):
            return Absence(
                message=f"{prefix}. Hosts that may have it are not connected: "
                f"{', '.join(disconnected)}. Reconnect them, or remove them from vCenter. If it is "
                f"still missing {format_duration(self._timeout_seconds)} later, it counts as "
                "deleted."
            )
        wait_seconds = missing.since + self._timeout_seconds - now
        if wait_seconds <= 0:
            return self._judge_by_read(ref, prefix, now)
        return Absence(
            message=f"{prefix}, and no update reported that it was deleted: its host may have been "
            "removed, vCenter restored, or a permission changed. If it is still missing at "
            f"{missing.deadline_text}, it counts as deleted.",
            recheck_seconds=wait_seconds,
        )

    def _update_missing(self, key: str, compute_refs: Collection[str], now: float) -> _Missing:
        """Since when the VM has been missing without an interruption."""
        previous = self._missing.get(key)
        since = max(
            previous.since if previous else now,
            self._vcenter.watching_since,
            *(self._hosts_changed_at.get(ref, 0.0) for ref in compute_refs),
        )
        if previous is not None and previous.since == since:
            text = previous.deadline_text
        else:
            deadline = self._now() + timedelta(seconds=since + self._timeout_seconds - now)
            text = f"{deadline:%Y-%m-%dT%H:%M:%SZ}"
        missing = _Missing(at=now, since=since, deadline_text=text)
        _put_and_expire(self._missing, key, missing, now)
        return missing

    def _judge_by_read(self, ref: str, prefix: str, now: float) -> Absence:
        # With the reference in the inventory, a restored vCenter has assigned it to another VM.
        if not ref or ref in self._inventory.vms:
            return Absence(deleted=True)
        read = self._reads.get(ref)
        if read is None or now - read.at > _READ_VALID_SECONDS:
            return Absence(
                message=f"{prefix}.", is_brief=True, recheck_seconds=1.0, ref_to_read=ref
            )
        if not read.exists:
            return Absence(deleted=True)
        return Absence(
            message=f"{prefix}: vCenter has it ({ref}), but does not show it to the manager's "
            "account. Grant the account the Read-only role on the VM and its folder. It is not "
            "replaced meanwhile."
        )

    async def read(self, refs: Iterable[str]) -> None:
        """Read whether vCenter still has these VMs. Without a response, nothing is decided."""
        for ref in refs:
            try:
                await self._vcenter.vm_calls.read_properties("VirtualMachine", ref, ["name"])
                exists = True
            except NotFound:
                exists = False
            except (Denied, Rejected):
                exists = True
            except VCenterError:
                continue
            if not self._vcenter.is_inventory_of_session:
                # Another vCenter may have answered, at the same address.
                return
            now = self._vcenter.clock()
            _put_and_expire(self._reads, ref, _Read(at=now, exists=exists), now)

    def _was_destroyed(self, ref: str, key: str, replica: str) -> bool:
        # A restored vCenter gives references of VMs that it does not have to other VMs. If the VM
        # did not leave with this reference in the present watch, the task has to name the replica.
        last_vm = self._last_vms.get(ref)
        if last_vm is not None and last_vm.instance_uuid != key:
            return False
        has_left = last_vm is not None and last_vm.at > self._vcenter.watching_since
        return ref not in self._inventory.vms and any(
            task.entity == ref
            and (has_left or task.entity_name == replica)
            and task.state == "success"
            and task.description_id.rpartition(".")[2] == "destroy"
            for task in self._inventory.tasks.values()
        )

    def _is_leave_conclusive(self, departure: _Departure) -> bool:
        """Whether a leave update means a deletion: no host of the cluster explains it otherwise.

        It does not after a reload: the VM may have left because it was hidden, and now be missing
        because vCenter was restored.
        """
        host = self._inventory.hosts.get(departure.host)
        return (
            host is not None
            and departure.at > self._vcenter.watching_since
            and host.connection == "connected"
            # vCenter removes a host of a cluster only in maintenance mode, or disconnected.
            and host.in_maintenance is False
            and self._hosts_changed_at.get(host.parent, departure.at) <= departure.at
        )

    def _list_disconnected_hosts(self, compute_refs: Collection[str]) -> list[str]:
        return sorted(
            host.name
            for ref in compute_refs
            for host in self._inventory.children(ref)
            # A host in standby has no VMs that run, and may stay there for days.
            if isinstance(host, Host)
            and host.connection not in ("connected", "")
            and host.power != "standBy"
        )


def _put_and_expire(table: dict[str, _ValueT], key: str, value: _ValueT, now: float) -> None:
    """Add an entry at the end, and remove old ones from the beginning."""
    table.pop(key, None)
    table[key] = value
    while (oldest := next(iter(table))) != key and now - table[oldest].at > _EXPIRY_SECONDS:
        del table[oldest]
