"""Decoded values of the wire, converted to values of the model.

require_...   of a whole property: another type or form raises one of DECODE_ERRORS
to_...        of a part of a value: another type or form is an empty value
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, get_args

from .model import AssignedDevice, GraphicsDevice
from .updates import TYPE_KEY, Ref, Value

_PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_ESCAPED_CHARACTER = re.compile("%(2f|5c|25)", re.IGNORECASE)
# The API server accepts no larger numbers.
_MAX_INT = 2**63 - 1


def to_text(value: Value) -> str:
    return value if isinstance(value, str) else ""


def to_name(value: Value) -> str:
    """A name as vCenter displays it."""
    # On the wire slash, backslash and percent sign are %2f, %5c and %25.
    text = to_text(value)
    if "%" not in text:
        return text
    return _ESCAPED_CHARACTER.sub(lambda match: chr(int(match[1], 16)), text)


def to_bool(value: Value) -> bool:
    return value is True


def to_ref(value: Value) -> str:
    return sys.intern(value.value) if isinstance(value, Ref) else ""


def to_tuple(value: Value) -> tuple[Value, ...]:
    """The items of a field that may occur several times."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _unknown_form(value: Value, expected: str) -> TypeError:
    return TypeError(f"{type(value).__name__} instead of {expected}")


def require_text(value: Value) -> str:
    if isinstance(value, str):
        return value
    raise _unknown_form(value, "text")


def require_name(value: Value) -> str:
    return to_name(require_text(value))


def require_interned_text(value: Value) -> str:
    # Few distinct values, shared by thousands of objects.
    return sys.intern(require_text(value))


def require_int(value: Value) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_INT:
        return value
    raise _unknown_form(value, "a number of 64 bits")


def require_bool(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    raise _unknown_form(value, "true or false")


def require_time(value: Value) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    raise _unknown_form(value, "a time")


def require_ref(value: Value) -> str:
    if isinstance(value, Ref):
        return sys.intern(value.value)
    raise _unknown_form(value, "a reference")


def require_one_of(literal: Any) -> Callable[[Value], str]:
    """A converter for an enumeration of the model."""
    choices: dict[Value, str] = {choice: sys.intern(choice) for choice in get_args(literal)}

    def convert(value: Value) -> str:
        text = require_text(value)
        if text not in choices:
            raise ValueError(f'the value "{text}" is unknown')
        return choices[text]

    return convert


def _require_list(value: Value) -> tuple[Value, ...]:
    """The items of a property that is a list, also of one that is not set."""
    if isinstance(value, tuple):
        return value
    if value is None:
        return ()
    raise _unknown_form(value, "a list")


def require_items(value: Value) -> list[dict[str, Value]]:
    """The data objects of a property that is a list."""
    items = list[dict[str, Value]]()
    for item in _require_list(value):
        if isinstance(item, dict):
            items.append(item)
        elif item != "":  # one without any field that is set
            raise _unknown_form(item, "a data object")
    return items


def require_refs(value: Value) -> tuple[str, ...]:
    return _share_refs(tuple([require_ref(item) for item in _require_list(value)]))


@lru_cache(maxsize=4096)
def _share_refs(refs: tuple[str, ...]) -> tuple[str, ...]:
    """The same tuple for equal ones: most VMs of a cluster have one of a few datastores."""
    return refs


def require_host_mounts(value: Value) -> tuple[str, ...]:
    """Datastore.host: the hosts that mount the datastore, sorted by reference."""
    return tuple(sorted(require_ref(item.get("key")) for item in require_items(value)))


def require_ip_addresses(value: Value) -> tuple[str, ...]:
    """All addresses in guest.net without duplicates, in the order that VMware Tools reports."""
    addresses = (
        require_text(item)
        for nic in require_items(value)
        for item in to_tuple(nic.get("ipAddress"))
    )
    return tuple(dict.fromkeys(addresses))


def require_attributes(value: Value) -> dict[str, str]:
    """Custom attributes by key; CustomFieldsManager has their names."""
    return {
        require_text(item["key"]): require_text(item.get("value", ""))
        for item in require_items(value)
    }


def to_attribute_names(value: Value) -> dict[str, str]:
    """CustomFieldsManager.field: the names of custom attributes by key."""
    return {
        to_text(item.get("key")): to_name(item.get("name"))
        for item in to_tuple(value)
        if isinstance(item, dict)
    }


def to_fault_type(value: Value) -> str:
    """The type of the fault in a LocalizedMethodFault."""
    fault = value.get("fault") if isinstance(value, dict) else None
    return to_text(fault.get(TYPE_KEY)) if isinstance(fault, dict) else ""


def to_fault_message(value: Value) -> str:
    """The message of a LocalizedMethodFault, with the privilege or property that it names."""
    if not isinstance(value, dict):
        return ""
    fault, message = value.get("fault"), to_text(value.get("localizedMessage"))
    fields = fault if isinstance(fault, dict) else {}
    if privilege := to_text(fields.get("privilegeId")):
        return f'{message} (the privilege "{privilege}" is missing)'
    invalid = to_text(fields.get("invalidProperty"))
    # Some of vCenter's messages end with it already.
    return f"{message.rstrip('.')}: {invalid}" if invalid and invalid not in message else message


def require_texts(value: Value) -> tuple[str, ...]:
    return tuple([require_text(item) for item in _require_list(value)])


def parse_int(value: Value) -> int:
    """An integer inside a data object, where it is text."""
    return int(to_text(value) or 0)


def require_graphics_devices(value: Value) -> tuple[GraphicsDevice, ...]:
    """config.graphicsInfo of a host."""
    return tuple(
        [
            GraphicsDevice(
                require_text(item.get("deviceName", "")),
                require_text(item.get("pciId", "")),
                require_text(item.get("graphicsType", "")),
                require_int(parse_int(item.get("memorySizeInKB"))),
                require_refs(to_tuple(item.get("vm"))),
            )
            for item in require_items(value)
        ]
    )


def require_assigned_devices(value: Value) -> tuple[AssignedDevice, ...]:
    """config.assignableHardwareBinding of a host; `instanceId` contains the PCI id."""
    return tuple(
        sorted(
            AssignedDevice(
                require_ref(item.get("vm")), find_pci_id(require_text(item.get("instanceId", "")))
            )
            for item in require_items(value)
        )
    )


def find_pci_id(text: str) -> str:
    """The PCI id inside a text, or ""."""
    match = _PCI_ID.search(text)
    return match[0].lower() if match else ""
