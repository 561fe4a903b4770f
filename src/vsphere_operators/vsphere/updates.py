"""Answers of the property collector: bytes in, plain values out, without one object of pyVmomi in between.

Why not pyVmomi's own decoder? It makes an object with all fields for each element: 10 times the CPU for what is thrown away a moment later.
What does the decoder know of the schema? Nothing: a value says its own type (`xsi:type`), and what stands inside a data object is text
until `properties.py`, which knows what it asked for, makes something of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal, TypeAlias, TypeVar

from lxml import etree
from msgspec import Struct

from .faults import Unreachable

XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
_SOAP_NAMESPACE = "{http://schemas.xmlsoap.org/soap/envelope/}"
_VIM_NAMESPACE = "{urn:vim25}"
CHANGE_TAG, PROPERTY_TAG, MISSING_TAG = (
    f"{_VIM_NAMESPACE}changeSet",
    f"{_VIM_NAMESPACE}propSet",
    f"{_VIM_NAMESPACE}missingSet",
)
TYPE_KEY = "@type"
"""The key under which a data object keeps the name of its type."""
PCI_PASSTHROUGH_TYPE, DISK_TYPE = "VirtualPCIPassthrough", "VirtualDisk"
"""Of a VM's devices, the only ones that anybody here asks for; a VM has a dozen others, which would be most of the work of decoding it."""


ResultT = TypeVar("ResultT")


class Ref(Struct, frozen=True, gc=False):
    """A reference to a managed object."""

    type: str
    value: str


# Union, not |: the name stands in quotes, since the type holds itself.
Value: TypeAlias = (
    str | int | float | bool | datetime | Ref | tuple["Value", ...] | dict[str, "Value"] | None
)
UpdateKind = Literal["enter", "modify", "leave"]
_UPDATE_KINDS: dict[str, UpdateKind] = {"enter": "enter", "modify": "modify", "leave": "leave"}


class ObjectUpdate(Struct, frozen=True, gc=False):
    """What became of one object."""

    kind: UpdateKind
    type: str
    ref: str
    changes: dict[str, Value] = {}
    """By property; None is a property that is no longer set."""
    missing: tuple[str, ...] = ()
    """Properties that vCenter cannot or may not tell."""
    partial: tuple[str, ...] = ()
    """Properties of which only a part was told, such as `customValue[101]`: they must be read again."""


class UpdateSet(Struct, frozen=True):
    """One answer of WaitForUpdatesEx."""

    version: str
    truncated: bool
    """There is more, to be had at once."""
    updates: list[ObjectUpdate]


class ObjectPage(Struct, frozen=True):
    """One answer of RetrievePropertiesEx."""

    token: str
    """There is more, to be had with this; "" at the end."""
    updates: list[ObjectUpdate]


def decode_updates(body: bytes) -> UpdateSet | None:
    """The answer of WaitForUpdatesEx; None when nothing changed in the time that it waits."""
    return _decode_response(body, _decode_update_set)


def decode_object_page(body: bytes) -> ObjectPage:
    """The answer of RetrievePropertiesEx: what was read, as modifications."""
    return _decode_response(body, _decode_page_element) or ObjectPage("", [])


def _decode_response(
    body: bytes, decode_result: Callable[[etree._Element], ResultT]
) -> ResultT | None:
    """The `returnval` of an answer; what is not an answer of the vSphere API is said in plain words."""
    try:
        result = _find_return_value(parse_xml(body))
        return None if result is None else decode_result(result)
    except (etree.XMLSyntaxError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise Unreachable(
            f"vCenter answered with something that cannot be read ({error}). Either the answer was cut or changed on its way, or this is "
            "not a vCenter; look at what is between here and there, such as a proxy. It is tried again."
        ) from error


def parse_xml(body: bytes) -> etree._Element:
    """The document, read as one from a stranger: no entities, nothing fetched, no limits lifted, and no DTD, which SOAP forbids."""
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        huge_tree=False,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
    )
    root = etree.fromstring(body, parser)
    if root.getroottree().docinfo.doctype:
        raise ValueError("it has a document type")
    return root


def _find_return_value(envelope: etree._Element) -> etree._Element | None:
    """The result inside Envelope, Body and Response; None for an answer without one."""
    content = envelope.find(f"{_SOAP_NAMESPACE}Body")
    if content is None or len(content) != 1:
        raise ValueError("it is no SOAP envelope")
    return content[0].find(f"{_VIM_NAMESPACE}returnval")


def _decode_update_set(result: etree._Element) -> UpdateSet:
    """Version, all objects of all filters, and whether there is more."""
    version = result.findtext(f"{_VIM_NAMESPACE}version")
    if not version:
        raise ValueError("it has no version")
    found = [
        _decode_object_update(item)
        for item in result.iterfind(f"{_VIM_NAMESPACE}filterSet/{_VIM_NAMESPACE}objectSet")
    ]
    return UpdateSet(version, result.findtext(f"{_VIM_NAMESPACE}truncated") in _TRUE_TEXTS, found)


def _decode_object_update(element: etree._Element) -> ObjectUpdate:
    """One objectSet: kind, obj, then changes and what is missing."""
    kind, obj, changes, missing, partial = (
        element[0],
        element[1],
        dict[str, Value](),
        list[str](),
        list[str](),
    )
    # Most of the decoder's time is spent here. So by position where the schema has an order: to ask an element for its name takes longer.
    for detail in element[2:]:
        name, size = detail[0].text or "", len(detail)
        if "[" in name:
            partial.append(name.partition("[")[0])
        elif size == 3:  # name, op, val
            changes[name] = _decode_value(detail[2])
        elif detail.tag == CHANGE_TAG:  # name and op: no longer set
            changes[name] = None
        elif detail.tag == MISSING_TAG:
            missing.append(name)
    return ObjectUpdate(
        _UPDATE_KINDS[kind.text or ""],
        obj.get("type", ""),
        obj.text or "",
        changes,
        tuple(missing),
        tuple(partial),
    )


def _decode_page_element(result: etree._Element) -> ObjectPage:
    """All objects, and the token for more."""
    return ObjectPage(
        result.findtext(f"{_VIM_NAMESPACE}token") or "",
        [_decode_object_content(item) for item in result.iterfind(f"{_VIM_NAMESPACE}objects")],
    )


def _decode_object_content(element: etree._Element) -> ObjectUpdate:
    """One object: obj, then properties and what is missing."""
    obj, changes = (
        element[0],
        {item[0].text or "": _decode_value(item[1]) for item in element.iterchildren(PROPERTY_TAG)},
    )
    missing = tuple([item[0].text or "" for item in element.iterchildren(MISSING_TAG)])
    return ObjectUpdate("modify", obj.get("type", ""), obj.text or "", changes, missing)


def _decode_value(element: etree._Element) -> Value:
    """A value of any type."""
    # Mostly `xsi:type` is the only attribute, and to ask for it by its long name takes longer than to take what there is.
    attributes = element.values()
    if not attributes:
        return _decode_untyped_value(element)
    simple = _SIMPLE_TYPES.get(attributes[0])
    return simple(element.text or "") if simple else _decode_complex_value(element)


def _decode_complex_value(element: etree._Element) -> Value:
    """A reference, a list, a data object, or a word of an enumeration."""
    kind = element.get(XSI_TYPE, "")
    if not kind:
        return _decode_untyped_value(element)
    if kind == "ManagedObjectReference":
        return Ref(element.get("type", ""), element.text or "")
    if kind == "ArrayOfVirtualDevice":
        return tuple(
            [
                _decode_value(child)
                for child in element
                if child.get(XSI_TYPE) in (PCI_PASSTHROUGH_TYPE, DISK_TYPE)
            ]
        )
    if kind.startswith("ArrayOf"):
        return tuple([_decode_value(child) for child in element])
    if (text := element.text) and not len(element):
        return text
    return {TYPE_KEY: kind, **_decode_fields(element)}


def _decode_untyped_value(element: etree._Element) -> Value:
    """A field of a data object that has the type which the schema gives it."""
    if len(element):
        return _decode_fields(element)
    text, kind = element.text or "", element.get("type")
    return text if kind is None else Ref(kind, text)


def _decode_fields(element: etree._Element) -> dict[str, Value]:
    """The fields of a data object; one that occurs several times is a tuple."""
    found = dict[str, Value]()
    for child in element:
        name, held = str(child.tag).rpartition("}")[2], _decode_value(child)
        if name in found:
            before = found[name]
            found[name] = (*before, held) if isinstance(before, tuple) else (before, held)
        else:
            found[name] = held
    return found


_TRUE_TEXTS = ("true", "1")
_SIMPLE_TYPES: Mapping[str, Callable[[str], Value]] = {
    "xsd:string": str,
    "xsd:anyURI": str,
    "xsd:base64Binary": str,
    "xsd:boolean": _TRUE_TEXTS.__contains__,
    "xsd:byte": int,
    "xsd:short": int,
    "xsd:int": int,
    "xsd:long": int,
    "xsd:float": float,
    "xsd:double": float,
    "xsd:dateTime": datetime.fromisoformat,
}
"""By `xsi:type`; vCenter's prefix for XML Schema has been `xsd` in every version."""
