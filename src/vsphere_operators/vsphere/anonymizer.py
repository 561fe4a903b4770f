"""Replaces names, addresses and identifiers in requests and responses, always by the same text.

    anonymizer = Anonymizer()
    anonymizer.replace_text("[fast] web-1/web-1.vmdk")    # "[name1] name2-1001/name2-1001.vmdk"

What is kept?  Only what is known to be harmless: numbers, booleans, times, types, the fields in
    `_KEPT_FIELDS`, and the folders that every vCenter has. Everything else is replaced, so that a
    field of a newer vCenter, or the text of an error, cannot disclose a name.
Why word by word?  A name is also a part of paths, of file names and of messages. The same word has
    the same replacement everywhere, so that a path still consists of the names of its objects.
Can it be undone?  No. A replacement has a number in the order of appearance, and the mapping is
    never stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import msgspec
from lxml import etree

from .faults import XSI_TYPE
from .updates import parse_xml

_REMOVED = "removed"
# Fields with values that the vSphere API or this product defines.
_KEPT_FIELDS = frozenset(
    [
        "_typeName",
        "apiType",
        "apiVersion",
        "build",
        "cardinality",
        "changeVersion",
        "connectionState",
        "consumptionType",
        "descriptionId",
        "deviceGroupName",
        "error_type",
        "faultcode",
        "graphicsType",
        "guestId",
        "hwVersion",
        "kind",
        "locale",
        "messageLocale",
        "model",
        "op",
        "pathSet",
        "pciId",
        "powerState",
        "privId",
        "privilegeId",
        "provisioningType",
        "queryField",
        "queryOperator",
        "sharedPassthruGpuTypes",
        "state",
        "toolsRunningStatus",
        "toolsVersionStatus2",
        "type",
        "vendor",
        "vendorName",
        "version",
        "vgpu",
    ]
)
# Of these fields, only values of this form are kept: users and extensions define others.
_KEPT_VALUES = {
    # The type of an OVF property has names: `ip:VM Network`, `string["a", "b"]`.
    "type": re.compile(r"\w+"),
    # The kind of a task. An extension of a company has its own: `com.example.backup.run`.
    "descriptionId": re.compile(
        r"([A-Z]\w*|com\.vmware|cluster|cns|dvs|host|profile|scheduler|vm|vsan|vslm)\.[\w.]+"
    ),
}
# Properties of which only their presence is used. They have URLs and values that users entered.
_EMPTIED_PROPERTIES = frozenset(("config.vAppConfig",))
# Elements in which a field is the path of a property, or the name of a method.
_PARENTS_OF_PATHS = {
    "name": frozenset(("changeSet", "propSet", "selectSet", "action")),
    "path": frozenset(("missingSet", "selectSet")),
}
# Such a path may contain the key of an option: config.extraConfig["guestinfo.x"].
_QUOTED = re.compile(r'"[^"]*"')
_KEPT_ATTRIBUTES = frozenset((XSI_TYPE, "type", "versionId"))
_SECRET_FIELDS = frozenset(("password", "vcSessionCookie", "base64Token", "cookie"))
# Marks and attributes of this product, by field. Elsewhere such a text may be the name of a VM.
_OWN_NAMES = {
    "key": re.compile(r"vsphere-operators\.[a-zA-Z]+"),
    "name": re.compile(r"topology\.corinternal\.com/next-maintenance"),
}
# Every vCenter has these parts of text: folders, the parts of a URL, and the extensions of files.
_KEPT_PARTS = frozenset(
    [
        "Datacenters",
        "vm",
        "host",
        "datastore",
        "network",
        "Resources",
        "ds",
        "vmfs",
        "volumes",
        "https",
        "http",
        "sdk",
        "vmx",
        "vmdk",
        "vmtx",
        "flat",
        "urn",
        "vmomi",
        "InventoryServiceTag",
        "InventoryServiceCategory",
        "GLOBAL",
    ]
)
# It has two parts, so it is compared as a whole.
_DEFAULT_PARENT_FOLDER = "vm-operator"
# Fields in which a user may have entered a number, or in which a number identifies something.
_USER_FIELDS = re.compile(
    "name|value|serial|label|summary|description|annotation|note|^id$", re.IGNORECASE
)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_BOOLEAN_OR_TIME = re.compile(r"true|false|\d{4}-\d\d-\d\dT[\d:.]+(Z|[-+]\d\d:\d\d)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PARTS = re.compile(
    rf"""
    (?P<uuid>{_UUID.pattern})
    | (?P<pci>\b[0-9a-fA-F]{{4}}:[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}}\.[0-9a-fA-F]\b)
    | (?P<mac>\b(?:[0-9a-fA-F]{{2}}:){{5}}[0-9a-fA-F]{{2}}\b)
    | (?P<ipv4>\b\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b)
    | (?P<ipv6>(?:[0-9a-fA-F]{{0,4}}:){{2,7}}[0-9a-fA-F]{{0,4}})
    | (?P<escape>%[0-9a-fA-F]{{2}})
    # With marks such as accents, which are not alphanumeric.
    | (?P<word>(?:[^\W_]|[^\x00-\x7f])+)
    """,
    re.VERBOSE,
)


class Anonymizer:
    """Replacements that are the same for all texts of one recording."""

    def __init__(self) -> None:
        self._replacements: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def replace_text(self, text: str) -> str:
        """The text with each word and number replaced."""
        return _PARTS.sub(self._replace_part, text)

    def replace_value(self, text: str, field: str = "") -> str:
        """The value of a field: unchanged if it cannot be a name."""
        if field in _SECRET_FIELDS:
            return _REMOVED
        is_kept = field in _KEPT_FIELDS and (
            field not in _KEPT_VALUES or _KEPT_VALUES[field].fullmatch(text)
        )
        is_own = field in _OWN_NAMES and _OWN_NAMES[field].fullmatch(text)
        is_number = _NUMBER.fullmatch(text) and not _USER_FIELDS.search(field)
        if (
            is_kept
            or is_own
            or is_number
            or text == _DEFAULT_PARENT_FOLDER
            or _BOOLEAN_OR_TIME.fullmatch(text)
        ):
            return text
        return self.replace_text(text)

    def replace_path(self, path: str) -> str:
        """The path of a REST call, which has identifiers only."""
        return _UUID.sub(lambda match: self._replace_uuid(match[0]), path)

    def replace_body(self, body: bytes) -> bytes:
        """A SOAP envelope or JSON; anything else, such as the page of a proxy, is removed."""
        text = body.strip()
        if not text:
            return b""
        try:
            if text.startswith(b"<"):
                return self._replace_xml(text)
            return msgspec.json.encode(self._replace_json(msgspec.json.decode(text), ""))
        except (etree.XMLSyntaxError, ValueError, msgspec.DecodeError):
            return _REMOVED.encode()

    def _replace_xml(self, body: bytes) -> bytes:
        root = parse_xml(body)
        if _local_name(root) != "Envelope":
            raise ValueError("it is not a SOAP envelope")
        # It has the session key, or a SAML token with names in attributes too.
        for header in root.findall("{*}Header"):
            root.remove(header)
        for value in root.iterfind(".//{*}val"):
            siblings = value.itersiblings(preceding=True)
            if any(sibling.text in _EMPTIED_PROPERTIES for sibling in siblings):
                value[:] = []
        for element in root.iter(etree.Element):
            if element.text and element.text.strip():
                element.text = self._replace_element_text(element)
            if element.tail and element.tail.strip():
                element.tail = self.replace_text(element.tail)
            for attribute, text in element.attrib.items():
                # Such as serverGuid, which is the identity of the vCenter.
                if attribute not in _KEPT_ATTRIBUTES:
                    element.set(attribute, self.replace_value(text, attribute))
        return bytes(etree.tostring(root))

    def _replace_element_text(self, element: Any) -> str:
        name, parent, text = _local_name(element), element.getparent(), str(element.text)
        parent_name = _local_name(parent) if parent is not None else ""
        if parent_name in _PARENTS_OF_PATHS.get(name, ()):
            return _QUOTED.sub(lambda match: f'"{self.replace_value(match[0][1:-1])}"', text)
        if parent_name == "about" and name != "instanceUuid":
            return text
        if name == "deviceName" and _is_pci_device(parent):
            return text
        if element.get("type") and not any(letter.isdigit() for letter in text):
            # The reference of a manager, such as SessionManager.
            return text
        return self.replace_value(text, _field_name(element))

    def _replace_json(self, value: Any, field: str) -> Any:
        if isinstance(value, str):
            # Text, even if it consists of digits: a number has no quotation marks in JSON.
            is_number = _NUMBER.fullmatch(value) and field not in _SECRET_FIELDS
            return self.replace_text(value) if is_number else self.replace_value(value, field)
        if isinstance(value, list):
            return [self._replace_json(item, field) for item in value]
        if isinstance(value, dict):
            return {key: self._replace_json(item, key) for key, item in value.items()}
        return value

    def _replace_part(self, match: re.Match[str]) -> str:
        kind, text = match.lastgroup or "", match[0]
        if kind == "pci" or (kind == "word" and text in _KEPT_PARTS):
            return text
        if kind == "escape":
            character = chr(int(text[1:], 16))
            if character.isascii() and not character.isalnum():
                return text
        if kind in ("word", "escape"):
            return self._replace_word(text)
        if kind == "uuid":
            return self._replace_uuid(text)
        return _REPLACE_ADDRESS[kind](self, text)

    def _replace_word(self, word: str) -> str:
        if not word.isdecimal():
            return self._lookup("word", word, lambda count: f"name{count}")
        # Still a number: vCenter appends _1, _2... to the names of folders.
        return self._lookup("number", word, lambda count: str(1000 + count))

    def _replace_uuid(self, uuid: str) -> str:
        replacement = self._lookup(
            "uuid", uuid.lower(), lambda count: f"{count:08x}-0000-4000-8000-{count:012x}"
        )
        return replacement if uuid == uuid.lower() else replacement.upper()

    def _replace_mac(self, mac: str) -> str:
        return self._lookup("mac", mac.lower(), _format_mac)

    def _replace_ipv4(self, address: str) -> str:
        # 198.18.0.0/15 is reserved for tests (RFC 2544), and large enough.
        start = int(IPv4Address("198.18.0.0"))
        return self._lookup("ipv4", address, lambda count: str(IPv4Address(start + count)))

    def _replace_ipv6(self, address: str) -> str:
        start = int(IPv6Address("2001:db8::"))
        return self._lookup("ipv6", address.lower(), lambda count: str(IPv6Address(start + count)))

    def _lookup(self, kind: str, text: str, create: Callable[[int], str]) -> str:
        if (kind, text) not in self._replacements:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._replacements[kind, text] = create(self._counts[kind])
        return self._replacements[kind, text]


_REPLACE_ADDRESS: dict[str, Callable[[Anonymizer, str], str]] = {
    "mac": Anonymizer._replace_mac,
    "ipv4": Anonymizer._replace_ipv4,
    "ipv6": Anonymizer._replace_ipv6,
}


def _format_mac(count: int) -> str:
    # 02: locally administered.
    digits = f"02{count:010x}"
    return ":".join(digits[start : start + 2] for start in range(0, 12, 2))


def _local_name(element: Any) -> str:
    return str(etree.QName(element).localname)


def _field_name(element: Any) -> str:
    """The name of an element; that of the property for a value of the property collector."""
    name = _local_name(element)
    while name in ("string", "val") and element is not None:
        if name == "val":
            path = element.getparent().findtext("{*}name") or ""
            return str(path).rpartition(".")[2]
        element = element.getparent()
        name = _local_name(element) if element is not None else ""
    return name


def _is_pci_device(parent: Any) -> bool:
    """Whether a deviceName is that of a GPU or PCI device. That of a network card is a network."""
    kind = str(parent.get(XSI_TYPE, "")) or _local_name(parent)
    return "Passthrough" in kind or kind.endswith("GraphicsInfo") or kind == "returnval"
