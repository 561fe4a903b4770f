"""The response of RetrieveServiceContent: the managers of a vCenter, and what it is.

Why not pyVmomi's decoder?  It rejects the whole response for one manager or one field of `about`
    that it does not know, and without this response nothing else can be called.
"""

from __future__ import annotations

from typing import Any

from pyVmomi import VmomiSupport, vim

from .decode_errors import ReportUndecodable
from .updates import Ref, Value, decode_result_fields

_METHOD = "RetrieveServiceContent"
_NAMESPACE = "urn:vim25"
# Every vCenter has them, and every call needs them.
_REQUIRED = ("rootFolder", "propertyCollector", "sessionManager")


def decode_service_content(body: bytes, stub: Any, report: ReportUndecodable) -> Any:
    """A vim.ServiceInstanceContent; None if the response is not of the vSphere API."""
    result = decode_result_fields(body, _METHOD, report)
    content = vim.ServiceInstanceContent(about=_decode_about(result.get("about"), report))
    for name, value in result.items():
        declared_type = _find_type(content, name)
        if declared_type is None or name == "about":
            continue
        if isinstance(value, Ref):
            setattr(content, name, _resolve_type(value.type, declared_type)(value.value, stub))
        else:
            report(_METHOD, name, "", TypeError("it is not a reference"))
    return content if all(getattr(content, name) for name in _REQUIRED) else None


def _decode_about(value: Value, report: ReportUndecodable) -> Any:
    about = vim.AboutInfo()
    for name, text in value.items() if isinstance(value, dict) else ():
        if _find_type(about, name) is None:
            continue
        if isinstance(text, str):
            setattr(about, name, text)
        else:
            report(_METHOD, f"about.{name}", "", TypeError("it is not text"))
    return about


def _find_type(data_object: Any, name: str) -> Any:
    """The type that the schema declares for a field; None for one that is newer than pyVmomi."""
    try:
        return data_object._GetPropertyInfo(name).type
    except (AttributeError, LookupError):
        return None


def _resolve_type(wire_name: str, declared_type: Any) -> Any:
    """The type on the wire, which may be derived from the declared one and have more methods."""
    try:
        wire_type = VmomiSupport.GetWsdlType(_NAMESPACE, wire_name)
    except KeyError:
        return declared_type
    return wire_type if issubclass(wire_type, declared_type) else declared_type
