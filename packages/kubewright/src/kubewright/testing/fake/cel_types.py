"""The types that Kubernetes adds to CEL: quantities, IP addresses, CIDRs and versions.

The evaluator has no types of ours, so a value is a map with its type as the only key and a
canonical text as the value. Two values are then equal if they mean the same.
"""

from __future__ import annotations

import ipaddress
import re
from fractions import Fraction
from typing import Any

from ...quantity import parse_quantity

Opaque = dict[str, str]
_QUANTITY_TYPE, IP, _CIDR_TYPE, _SEMVER_TYPE = (
    f"kubernetes.{name}" for name in ("Quantity", "IP", "CIDR", "Semver")
)
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)


def content(value: Opaque, type: str) -> str:
    if type not in value:
        raise ValueError("no such overload")
    return value[type]


# Quantities


def parse_cel_quantity(text: str) -> Opaque:
    number = parse_quantity(text)
    if number is None:
        raise ValueError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    return make_quantity(number)


def make_quantity(value: Fraction) -> Opaque:
    return {_QUANTITY_TYPE: str(value)}


def quantity_value(value: Opaque) -> Fraction:
    return Fraction(content(value, _QUANTITY_TYPE))


# Versions


def parse_semver(text: str, normalize: bool = False) -> Opaque:
    if normalize:
        parts = text.removeprefix("v").split(".")
        numbers = [part.lstrip("0") or "0" for part in parts[:2]] + parts[2:]
        text = ".".join(numbers + ["0"] * (3 - len(numbers)))
    if _SEMVER.fullmatch(text) is None:
        raise ValueError(f"Invalid version {text}")
    return {_SEMVER_TYPE: text}


def semver_part(value: Opaque, index: int) -> int:
    match = _SEMVER.fullmatch(content(value, _SEMVER_TYPE))
    return int(match[index]) if match else 0


def _semver_order(value: Opaque) -> tuple[Any, ...]:
    """A key for comparisons: a version with a prerelease precedes the one without."""
    match = _SEMVER.fullmatch(content(value, _SEMVER_TYPE))
    assert match is not None
    identifiers = match[4].split(".") if match[4] else []
    # Numeric identifiers precede others.
    order = [(0, int(i), "") if i.isdigit() else (1, 0, i) for i in identifiers]
    return (int(match[1]), int(match[2]), int(match[3]), not identifiers, order)


def order_of(value: Opaque) -> Any:
    """What `compareTo`, `isLessThan` and `isGreaterThan` compare."""
    return quantity_value(value) if _QUANTITY_TYPE in value else _semver_order(value)


# Addresses

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def parse_ip(text: str) -> Opaque:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return {IP: str(address)}


def ip_value(value: Opaque) -> Address:
    return ipaddress.ip_address(content(value, IP))


def parse_cidr(text: str) -> Opaque:
    if "/" not in text:
        raise ValueError(f'network address parse error during conversion from string: "{text}"')
    return {_CIDR_TYPE: str(ipaddress.ip_interface(text))}


def cidr_value(value: Opaque) -> Network:
    return ipaddress.ip_interface(content(value, _CIDR_TYPE))
