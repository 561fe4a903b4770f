"""Reads and writes the inventory of another vCenter, recorded as the XML that it sent."""

from __future__ import annotations

from pathlib import Path

import msgspec
from lxml import etree
from msgspec import Struct

from vsphere_operators.vsphere.updates import parse_xml

from .inventory import ReplayedInventory

_VIM = "{urn:vim25}"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"


class _RecordedObject(Struct, array_like=True):
    type: str
    ref: str
    properties: dict[str, bytes]


class _Recording(Struct):
    instance_uuid: str
    objects: list[_RecordedObject]


def add_response(inventory: ReplayedInventory, response: bytes) -> None:
    """Add the objects that enter with one response of WaitForUpdatesEx."""
    for element in parse_xml(response).iter(f"{_VIM}objectSet"):
        if element.findtext(f"{_VIM}kind") != "enter":
            continue
        obj = element.find(f"{_VIM}obj")
        properties = {
            change.findtext(f"{_VIM}name") or "": _serialize(value)
            for change in element.iterfind(f"{_VIM}changeSet")
            if (value := change.find(f"{_VIM}val")) is not None
        }
        if obj is not None:
            inventory.add(str(obj.get("type")), str(obj.text), properties)


def _serialize(value: etree._Element) -> bytes:
    """The element as XML, with the prefixes that the envelope of the replay declares."""
    copy = etree.fromstring(etree.tostring(value, with_tail=False))
    parts: list[str] = []
    _write(copy, parts)
    return "".join(parts).encode()


def _write(element: etree._Element, parts: list[str]) -> None:
    name = etree.QName(element).localname
    attributes = "".join(
        f' {"xsi:type" if key == f"{{{_XSI}}}type" else etree.QName(key).localname}="{value}"'
        for key, value in element.items()
    )
    parts.append(f"<{name}{attributes}>")
    parts.append(_escape(element.text or ""))
    for child in element:
        _write(child, parts)
    parts.append(f"</{name}>")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def write_inventory(inventory: ReplayedInventory, path: Path) -> None:
    recording = _Recording(
        inventory.instance_uuid,
        [_RecordedObject(obj.type, obj.ref, obj.properties) for obj in inventory.objects.values()],
    )
    path.write_bytes(msgspec.msgpack.encode(recording))


def read_inventory(path: Path) -> ReplayedInventory:
    recording = msgspec.msgpack.decode(path.read_bytes(), type=_Recording)
    inventory = ReplayedInventory(instance_uuid=recording.instance_uuid)
    for obj in recording.objects:
        inventory.add(obj.type, obj.ref, obj.properties)
    return inventory
