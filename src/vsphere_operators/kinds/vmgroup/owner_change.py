"""Adopts a VM, or undoes its adoption: the checks before the request, and the request.

One ReconfigVM_Task sets instanceUuid and mark together, so no VM has only one of them. It names the
config.changeVersion that was read: vCenter rejects it if the VM has changed since, for example by a
manager of another cluster.
"""

from __future__ import annotations

import asyncio
import math

from msgspec.structs import replace

from ...vsphere.faults import Unreachable, VCenterError
from ...vsphere.model import VirtualMachine
from ...vsphere.vm_calls import VmCalls
from ...vsphere.vm_identity import VmIdentity, read_vm_identity
from .adoption_candidates import find_sharing_group, judge_vm
from .api_reader import ApiReader
from .clone_state import REQUEST_SETTLE_SECONDS
from .group_memory import GroupMemory
from .model import Adopt, UndoAdoption
from .ownership import (
    OwnershipMark,
    VmOrigin,
    is_owned_by,
    mark_before_adoption,
    mark_from_extra_config,
    mark_to_extra_config,
)
from .step import GroupInput


class ChangeNotConfirmed(Exception):
    """A fresh read shows that the VM or the folder must not be changed or destroyed now."""


class OwnerChange:
    def __init__(
        self,
        vm_calls: VmCalls,
        api_reader: ApiReader,
        memory: GroupMemory,
        group: GroupInput,
        action: Adopt | UndoAdoption,
    ) -> None:
        self._vm_calls, self._api_reader, self._memory = vm_calls, api_reader, memory
        self._group, self._action = group, action
        self.ref, self.replica_name, self.verb = (
            (action.vm.ref, action.record.name, "Adopting")
            if isinstance(action, Adopt)
            else (action.vm.ref, action.vm.replica_name, "Undoing the adoption of")
        )

    async def check(self) -> VmIdentity:
        """Ask the API server, then read the VM; raises ChangeNotConfirmed."""
        action, group_id = self._action, self._group.group_id
        if not await self._api_reader.confirm_adoption(
            group_id, self.replica_name, undo=isinstance(action, UndoAdoption)
        ):
            raise ChangeNotConfirmed
        identity = await read_vm_identity(self._vm_calls, self.ref)
        if isinstance(action, UndoAdoption):
            mark = mark_from_extra_config(identity.vm.config.extra_config)
            is_own = is_owned_by(mark, identity.vm.instance_uuid, group_id)
            if not is_own or mark is None or mark.origin is None:
                raise ChangeNotConfirmed
        elif not self._is_adoptable(identity, action):
            raise ChangeNotConfirmed
        return identity

    def _is_adoptable(self, identity: VmIdentity, action: Adopt) -> bool:
        current: VirtualMachine = replace(
            action.vm,
            name=identity.name,
            parent=identity.parent,
            is_template=identity.is_template,
            instance_uuid=identity.vm.instance_uuid,
        )
        candidate = judge_vm(
            current, identity.vm.config, self._group.group_id, find_sharing_group(self._group)
        )
        return (
            candidate.verdict == "Adoptable"
            and candidate.replica_name == action.record.name
            and candidate.instance_uuid == action.record.adopted_from
            and current.parent == action.vm.parent
        )

    async def send(self, identity: VmIdentity) -> str:
        """Start the task; `identity` is the result of `check`."""
        action = self._action
        previous = mark_from_extra_config(identity.vm.config.extra_config)
        if isinstance(action, UndoAdoption):
            # `check` has verified both.
            assert previous is not None
            assert previous.origin is not None
            uuid, extra_config = previous.origin.instance_uuid, mark_before_adoption(previous)
        else:
            record = action.record
            mark = OwnershipMark(
                group_id=self._group.group_id,
                replica_name=record.name,
                sequence_number=record.sequence_number,
                fingerprint=record.fingerprint,
                origin=VmOrigin(
                    instance_uuid=record.adopted_from,
                    owner_uid=previous.group_id.uid if previous else "",
                ),
            )
            uuid, extra_config = record.instance_uuid, mark_to_extra_config(mark)
        # The record is kept while the request may be in progress, with or without a response.
        changes = self._memory.owner_changes
        changes[self.ref] = math.inf
        try:
            task_ref = await self._vm_calls.set_identity(
                self.ref, uuid, extra_config, identity.change_version
            )
        except (Unreachable, asyncio.CancelledError):
            changes[self.ref] = self._memory.clock() + REQUEST_SETTLE_SECONDS
            raise
        except VCenterError:
            del changes[self.ref]
            raise
        del changes[self.ref]
        return task_ref
