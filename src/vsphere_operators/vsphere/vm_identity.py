"""Reads what identifies a VM, from vCenter itself, before its identity is changed."""

from __future__ import annotations

from msgspec import Struct

from .converters import to_name, to_ref, to_text
from .vm_calls import CurrentVm, VmCalls


class VmIdentity(Struct, frozen=True, kw_only=True):
    name: str
    # MoRef of its folder.
    parent: str
    is_template: bool
    # config.changeVersion from before `vm` was read.
    change_version: str
    vm: CurrentVm


async def read_vm_identity(vm_calls: VmCalls, ref: str) -> VmIdentity:
    """The VM as it is now. Raises NotFound if it was deleted."""
    properties = await vm_calls.read_properties(
        "VirtualMachine", ref, ["name", "parent", "config.template", "config.changeVersion"]
    )
    return VmIdentity(
        name=to_name(properties.get("name")),
        parent=to_ref(properties.get("parent")),
        is_template=properties.get("config.template") is True,
        change_version=to_text(properties.get("config.changeVersion")),
        # After the version: a change in between is a change since that version.
        vm=await vm_calls.read_vm(ref),
    )
