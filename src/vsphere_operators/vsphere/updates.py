"""Responses of the property collector: bytes in, plain values out, without pyVmomi objects.

Why not pyVmomi's decoder?  It creates an object with all fields for each element, which takes ten
    times the CPU for objects that are discarded a moment later.
What does this decoder know of the schema?  Nothing. A value states its own type (`xsi:type`), and
    what is inside a data object stays text until properties.py converts it.
What if a value does not decode?  It is reported, and its property is `missing`. All other values
    of the response are used. See decode_errors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal, TypeAlias, TypeVar

from lxml import etree
from msgspec import Struct

from .decode_errors import DECODE_ERRORS, ReportUndecodable, ignore_undecodable
from .faults import XSI_TYPE, Unreachable

_SOAP_NAMESPACE = "{http://schemas.xmlsoap.org/soap/envelope/}"
_VIM_NAMESPACE = "{urn:vim25}"
_RESULT_TAG = f"{_VIM_NAMESPACE}returnval"
_CHANGE_TAG = f"{_VIM_NAMESPACE}changeSet"
_PROPERTY_TAG = f"{_VIM_NAMESPACE}propSet"
_MISSING_TAG = f"{_VIM_NAMESPACE}missingSet"
# The key under which a data object keeps the name of its type.
TYPE_KEY = "@type"
# Only these of a VM's devices are used. A VM has a dozen others, which would be most of the work of
# decoding it.
_PCI_PASSTHROUGH_TYPE, DISK_TYPE = "VirtualPCIPassthrough", "VirtualDisk"

_ResultT = TypeVar("_ResultT")


class Ref(Struct, frozen=True, gc=False):
    type: str
    value: str


Value: TypeAlias = (
    str | int | float | bool | datetime | Ref | tuple["Value", ...] | dict[str, "Value"] | None
)
UpdateKind = Literal["enter", "modify", "leave"]
_UPDATE_KINDS: dict[str, UpdateKind] = {"enter": "enter", "modify": "modify", "leave": "leave"}


class ObjectUpdate(Struct, frozen=True, gc=False):
    kind: UpdateKind
    type: str
    ref: str
    # By property; None for a property that is no longer set.
    changes: dict[str, Value] = {}
    # Properties that vCenter cannot return, or not to this account, or that do not decode.
    missing: tuple[str, ...] = ()
    # Properties of which only a part arrived, such as `customValue[101]`; to be read again.
    partial: tuple[str, ...] = ()


class UpdateSet(Struct, frozen=True):
    """One response of WaitForUpdatesEx."""

    version: str
    # There are more updates, available at once.
    truncated: bool
    updates: list[ObjectUpdate]


class ObjectPage(Struct, frozen=True):
    """One response of RetrievePropertiesEx."""

    # Reads the next page; "" on the last one.
    token: str
    updates: list[ObjectUpdate]


def decode_updates(body: bytes, report: ReportUndecodable = ignore_undecodable) -> UpdateSet | None:
    """The response of WaitForUpdatesEx; None if nothing changed while it waited."""
    results = _decode_response(body, lambda result: _decode_update_set(result, report))
    return results[0] if results else None


def decode_object_page(body: bytes, report: ReportUndecodable = ignore_undecodable) -> ObjectPage:
    """The response of RetrievePropertiesEx, as modifications."""
    results = _decode_response(body, lambda result: _decode_page_element(result, report))
    return results[0] if results else ObjectPage("", [])


def decode_results(
    body: bytes, method: str, report: ReportUndecodable = ignore_undecodable
) -> list[Value]:
    """The results of any other method that returns a list, without those that do not decode."""

    def decode(result: etree._Element) -> Value:
        try:
            return _decode_value(result)
        except DECODE_ERRORS as error:
            report(method, "returnval", "", error)
            return None

    return [value for value in _decode_response(body, decode) if value is not None]


def decode_result_fields(
    body: bytes, method: str, report: ReportUndecodable = ignore_undecodable
) -> dict[str, Value]:
    """The fields of the only result of a method, and of the data objects in it.

    Each is decoded alone; those that do not decode are left out.
    """

    def decode(element: etree._Element, prefix: str = "") -> dict[str, Value]:
        fields = dict[str, Value]()
        for child in element:
            name = str(child.tag).rpartition("}")[2]
            try:
                is_nested = not prefix and len(child)
                fields[name] = decode(child, f"{name}.") if is_nested else _decode_value(child)
            except DECODE_ERRORS as error:
                report(method, prefix + name, "", error)
        return fields

    results = _decode_response(body, decode)
    return results[0] if results else {}


def _decode_response(
    body: bytes, decode_result: Callable[[etree._Element], _ResultT]
) -> list[_ResultT]:
    try:
        content = parse_xml(body).find(f"{_SOAP_NAMESPACE}Body")
        if content is None or len(content) != 1:
            raise ValueError("it is not a SOAP envelope")
        return [decode_result(result) for result in content[0].iterfind(_RESULT_TAG)]
    except (etree.XMLSyntaxError, *DECODE_ERRORS) as error:
        raise Unreachable(
            f"vCenter's response cannot be parsed ({error}). It was truncated or changed on the "
            "way, or this is not a vCenter; check for a proxy in between. The call is retried."
        ) from error


def parse_xml(body: bytes) -> etree._Element:
    """Parse an untrusted document: no entities, no network, no DTD (which SOAP forbids)."""
    # Without collect_ids=False: it sets a flag of libxml2 that loads external DTDs.
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        huge_tree=False,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
    )
    root = etree.fromstring(body, parser)
    if root.getroottree().docinfo.doctype:
        raise ValueError("it has a document type")
    return root


def _decode_update_set(result: etree._Element, report: ReportUndecodable) -> UpdateSet:
    version = result.findtext(f"{_VIM_NAMESPACE}version")
    if not version:
        raise ValueError("it has no version")
    updates = [
        update
        for item in result.iterfind(f"{_VIM_NAMESPACE}filterSet/{_VIM_NAMESPACE}objectSet")
        if (update := _decode_object_update(item, report)) is not None
    ]
    is_truncated = result.findtext(f"{_VIM_NAMESPACE}truncated") in _TRUE_TEXTS
    return UpdateSet(version, is_truncated, updates)


def _decode_object_update(
    element: etree._Element, report: ReportUndecodable
) -> ObjectUpdate | None:
    """None if it cannot be known which object changed, or how."""
    try:
        kind, obj = _UPDATE_KINDS[element[0].text or ""], element[1]
        type_name, ref = _read_object(obj)
    except DECODE_ERRORS as error:
        report("ObjectUpdate", "obj", "", error)
        return None
    changes, missing, partial = dict[str, Value](), list[str](), list[str]()
    # Most of the decoder's time is spent here. So children are read by position where the schema
    # fixes an order: reading the name of an element takes longer.
    for detail in element[2:]:
        name = ""
        try:
            name, size = detail[0].text or "", len(detail)
            if "[" in name:
                partial.append(name.partition("[")[0])
            elif size >= 3:  # name, op, val
                changes[name] = _decode_value(detail[2])
            elif detail.tag == _CHANGE_TAG:  # name and op: no longer set
                changes[name] = None
            elif detail.tag == _MISSING_TAG:
                missing.append(name)
        except DECODE_ERRORS as error:
            missing.append(name)
            report(type_name, name, ref, error)
    return ObjectUpdate(kind, type_name, ref, changes, tuple(missing), tuple(partial))


def _read_object(obj: etree._Element) -> tuple[str, str]:
    """The type and the reference of a managed object."""
    type_name, ref = obj.get("type"), obj.text
    if not type_name or not ref:
        raise ValueError("an object without a type or a reference")
    return type_name, ref


def _decode_page_element(result: etree._Element, report: ReportUndecodable) -> ObjectPage:
    return ObjectPage(
        result.findtext(f"{_VIM_NAMESPACE}token") or "",
        [
            update
            for item in result.iterfind(f"{_VIM_NAMESPACE}objects")
            if (update := _decode_object_content(item, report)) is not None
        ],
    )


def _decode_object_content(
    element: etree._Element, report: ReportUndecodable
) -> ObjectUpdate | None:
    try:
        type_name, ref = _read_object(element[0])
    except DECODE_ERRORS as error:
        report("ObjectContent", "obj", "", error)
        return None
    changes, missing = dict[str, Value](), list[str]()
    for item in element[1:]:
        name = ""
        try:
            name = item[0].text or ""
            if item.tag == _PROPERTY_TAG:
                changes[name] = _decode_value(item[1])
            elif item.tag == _MISSING_TAG:
                missing.append(name)
        except DECODE_ERRORS as error:
            missing.append(name)
            report(type_name, name, ref, error)
    return ObjectUpdate("modify", type_name, ref, changes, tuple(missing))


def _decode_value(element: etree._Element) -> Value:
    # Mostly `xsi:type` is the only attribute: taking the first one is faster than a lookup by
    # its qualified name.
    attributes = element.values()
    if not attributes:
        return _decode_untyped_value(element)
    convert = _SIMPLE_TYPES.get(attributes[0])
    return convert(element.text or "") if convert else _decode_complex_value(element)


def _decode_complex_value(element: etree._Element) -> Value:
    """A reference, a list, a data object, or a value of an enumeration."""
    type_name = element.get(XSI_TYPE, "")
    if not type_name:
        return _decode_untyped_value(element)
    if type_name == "ManagedObjectReference":
        return Ref(element.get("type", ""), element.text or "")
    if type_name == "ArrayOfVirtualDevice":
        # Every VM has controllers. An empty list must not be taken for a VM without disks, which
        # may be destroyed.
        if not len(element):
            raise ValueError("a VM without any device")
        return tuple(
            [
                _decode_value(child)
                for child in _require_items_only(element)
                if child.get(XSI_TYPE) in (_PCI_PASSTHROUGH_TYPE, DISK_TYPE)
            ]
        )
    if type_name.startswith("ArrayOf"):
        return tuple([_decode_value(child) for child in _require_items_only(element)])
    if (text := element.text) and not len(element):
        return text
    return {TYPE_KEY: type_name, **_decode_fields(element)}


def _require_items_only(array: etree._Element) -> etree._Element:
    # Text would be taken for an empty list, which may mean that a VM has no disks.
    if array.text and not array.text.isspace():
        raise ValueError("text instead of a list")
    return array


def _decode_untyped_value(element: etree._Element) -> Value:
    """A field of a data object, of the type that the schema declares."""
    if len(element):
        return _decode_fields(element)
    text, type_name = element.text or "", element.get("type")
    return text if type_name is None else Ref(type_name, text)


def _decode_fields(element: etree._Element) -> dict[str, Value]:
    fields = dict[str, Value]()
    for child in element:
        name, value = str(child.tag).rpartition("}")[2], _decode_value(child)
        if name in fields:
            # The wire repeats a field for each item of a list.
            previous = fields[name]
            fields[name] = (*previous, value) if isinstance(previous, tuple) else (previous, value)
        else:
            fields[name] = value
    return fields


_TRUE_TEXTS = ("true", "1")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
# By `xsi:type`. vCenter's prefix for XML Schema has been `xsd` in every version.
_SIMPLE_TYPES: Mapping[str, Callable[[str], Value]] = {
    "xsd:string": str,
    "xsd:anyURI": str,
    "xsd:base64Binary": str,
    "xsd:boolean": _BOOLEANS.__getitem__,
    "xsd:byte": int,
    "xsd:short": int,
    "xsd:int": int,
    "xsd:long": int,
    "xsd:float": float,
    "xsd:double": float,
    "xsd:dateTime": datetime.fromisoformat,
}
