"""Requests of the vSphere API as bytes, for the calls that every manager sends.

Why not pyVmomi's serializer?  Importing its types takes 0.1 s and 8 MiB, which is more than all
    requests of a start together. It is imported for the first call that changes a VM, or the first
    fault: see pyvmomi_stub.py. The bytes are the same, which a test compares.
What does this encoder know of the schema?  Nothing. The caller names fields in the order of the
    schema, and the type of a data object where the schema declares a base type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from .updates import Ref

_ENVELOPE_START = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<soapenv:Envelope xmlns:soapenc="http://schemas.xmlsoap.org/soap/encoding/" '
    'xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xmlns:xsd="http://www.w3.org/2001/XMLSchema">\n'
)
_ENVELOPE_END = "</soapenv:Body>\n</soapenv:Envelope>"
_SECURITY_NAMESPACE = (
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
)


class ApiVersion(NamedTuple):
    namespace: str
    version: str

    @property
    def action(self) -> str:
        """The value of the header SOAPAction."""
        return f'"{self.namespace}/{self.version}"'


# vSphere 7.0: older servers are out of support, and newer ones accept this version.
VIM = ApiVersion("urn:vim25", "7.0.0.0")


class DataObject(Struct, frozen=True):
    """The fields in the order of the schema; those that are None are left out."""

    fields: Mapping[str, Argument]
    # Where the schema declares a base type; else "".
    type: str = ""
    # Of the fields, where it differs from that of the call; else "".
    namespace: str = ""


Argument: TypeAlias = str | bool | int | Ref | DataObject | Sequence["Argument"] | None


def encode_call(
    target: Ref,
    method: str,
    arguments: Mapping[str, Argument],
    *,
    api: ApiVersion = VIM,
    header: str = "",
) -> bytes:
    """The request to call a method, by its name on the wire, with arguments in its order."""
    version = f' versionId="{api.version}"'
    parts = [_ENVELOPE_START, header, f'<soapenv:Body><{method} xmlns="{api.namespace}">']
    _append(parts, "_this", target, version)
    for name, value in arguments.items():
        # As in pyVmomi: a list has no version.
        _append(parts, name, value, "" if isinstance(value, list | tuple) else version)
    parts += [f"</{method}>", _ENVELOPE_END]
    return "".join(parts).encode()


def encode_session_header(session_key: str, api: ApiVersion) -> str:
    """The header with the key of a session, for endpoints that do not read the cookie."""
    parts = ["<soapenv:Header>"]
    _append(parts, "vcSessionCookie", session_key, f' versionId="{api.version}"')
    return "".join([*parts, "</soapenv:Header>\n"])


def encode_token_header(saml_token: str) -> str:
    """The header with a SAML token, which is XML."""
    return (
        f'<soapenv:Header><wsse:Security xmlns:wsse="{_SECURITY_NAMESPACE}"> {saml_token} '
        "</wsse:Security></soapenv:Header>\n"
    )


def _append(parts: list[str], name: str, value: Argument, attributes: str = "") -> None:
    match value:
        case None:
            return
        case str():
            parts.append(f"<{name}{attributes}>{_escape(value)}</{name}>")
        case bool():
            parts.append(f"<{name}{attributes}>{'true' if value else 'false'}</{name}>")
        case int():
            parts.append(f"<{name}{attributes}>{value}</{name}>")
        case Ref():
            parts.append(
                f'<{name}{attributes} type="{_escape(value.type)}">{_escape(value.value)}</{name}>'
            )
        case DataObject():
            type_attribute = f' xsi:type="{value.type}"' if value.type else ""
            parts.append(f"<{name}{attributes}{type_attribute}>")
            namespace = f' xmlns="{value.namespace}"' if value.namespace else ""
            for field, item in value.fields.items():
                _append(parts, field, item, namespace)
            parts.append(f"</{name}>")
        case _:
            for item in value:
                _append(parts, name, item, attributes)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
