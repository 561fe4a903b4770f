"""`manager doctor -record`: reads everything that kinds read, and writes it without names.

Only reads: the parts of a VCenter read as they do in a manager, once, up to `_MAX_OBJECTS` VMs,
hosts and templates. The inventory itself is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from ..vsphere.address import Address
from ..vsphere.anonymizer import Anonymizer
from ..vsphere.disk_catalog import RefreshScope
from ..vsphere.faults import Rejected, VCenterError
from ..vsphere.recording import Exchange, RecordingSoapClient, write_recording
from ..vsphere.transport import CallMetrics, SoapClient
from ..vsphere.vcenter import VCenter
from ..vsphere.vm_calls import CloneSpec
from .finding import Finding, ok, problem, warning

_MAX_OBJECTS = 100
_SUBJECT = "record"


class Recording:
    """The recordings of all vCenters of one run, in a folder for each of them."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        # One for all vCenters: the same name has the same replacement in all recordings.
        self._anonymizer = Anonymizer()
        self._exchanges: list[Exchange] = []
        self._count = 0

    def check_folder(self) -> Finding | None:
        """A problem if files of another recording would be mixed with those of this one."""
        if not self._folder.exists() or (self._folder.is_dir() and not any(self._folder.iterdir())):
            return None
        return problem(
            _SUBJECT,
            f"{self._folder} exists and is not an empty directory, so nothing is recorded. "
            "Choose a new directory.",
        )

    def build_soap(self, address: Address, metrics: CallMetrics) -> SoapClient:
        self._exchanges = []
        return RecordingSoapClient(address, metrics, self._exchanges)

    async def write(self, *, logged_in: bool, loaded: bool) -> Finding:
        """Write what the last client recorded; nothing without a login."""
        if not logged_in:
            return problem(
                _SUBJECT,
                "Nothing is recorded of this vCenter: a recording needs a login. Fix the problem "
                "above, then record again.",
            )
        self._count += 1
        # The name of a vCenter is in no file either.
        folder = self._folder / f"vcenter-{self._count}"
        try:
            await asyncio.to_thread(write_recording, folder, self._exchanges, self._anonymizer)
        except OSError as error:
            return problem(_SUBJECT, f"The recording cannot be written: {error}")
        contents = (
            f"{len(self._exchanges)} requests and responses are in {folder}, with names, "
            "addresses and identifiers replaced. Read them before you send them."
        )
        if loaded:
            return ok(_SUBJECT, contents)
        # Most useful of all: it shows why the manager cannot read the inventory.
        return warning(
            _SUBJECT,
            f"{contents} They end where the inventory could not be read: send them if you report "
            "that problem.",
        )


async def read_everything(vcenter: VCenter) -> AsyncIterator[Finding]:
    """Read what no check has read. The inventory must be loaded."""
    for read in (_read_disks, _read_scheduled_tasks, _read_vms, _read_hosts):
        try:
            yield ok(_SUBJECT, await read(vcenter))
        except VCenterError as error:
            # The response that explains the failure is recorded too.
            yield warning(_SUBJECT, f"Not everything can be recorded: {error}")


async def _read_disks(vcenter: VCenter) -> str:
    await vcenter.disks.poll()
    if vcenter.disks.problem is not None:
        raise vcenter.disks.problem
    # A vCenter without the global catalog, or one that rejects it, is read by datastore.
    listing = await vcenter.disks.datastore_catalog.list_disks({}, RefreshScope.ALL)
    return f"First Class Disks: {len(listing.disks)}"


async def _read_scheduled_tasks(vcenter: VCenter) -> str:
    await vcenter.scheduled_tasks.poll()
    if vcenter.scheduled_tasks.problem:
        raise Rejected(vcenter.scheduled_tasks.problem)
    return f"hosts with planned maintenance: {len(vcenter.scheduled_tasks.by_host)}"


async def _read_vms(vcenter: VCenter) -> str:
    vms = vcenter.inventory.vms
    refs = sorted(vms)[:_MAX_OBJECTS]
    if refs:
        await vcenter.vm_configs.refresh(refs)
        await vcenter.passthrough_devices.refresh(refs)
        await vcenter.vm_calls.read_vm(refs[0])
    templates = sorted(ref for ref, vm in vms.items() if vm.is_template)[:_MAX_OBJECTS]
    for ref in templates:
        for linked in (False, True):
            # All that a clone may read of its template; it does not need a snapshot here.
            with suppress(Rejected):
                await vcenter.vm_calls.read_template(_build_clone_spec(ref, linked=linked), "")
    for folder in sorted(vcenter.inventory.folders)[:1]:
        await vcenter.vm_calls.is_folder_empty(folder)
    return f"configurations of VMs: {len(refs)}, of templates: {len(templates)}"


def _build_clone_spec(template: str, *, linked: bool) -> CloneSpec:
    return CloneSpec(
        template=template,
        folder="",
        name="",
        resource_pool="",
        cpus=1,
        memory_mb=1,
        instance_uuid="",
        linked=linked,
        storage_policy="any",
        remove_vapp=True,
    )


async def _read_hosts(vcenter: VCenter) -> str:
    refs = sorted(vcenter.inventory.hosts)[:_MAX_OBJECTS]
    for ref in refs:
        vcenter.assignable_hardware.get(ref)
    await vcenter.assignable_hardware.poll()
    return f"assignable hardware of hosts: {len(refs)}"
