"""The functions that Kubernetes adds to CEL, for the evaluator cel-expr-python.

The evaluator knows lists and maps only without the types of their items, so each function has one
overload for all of them, and checks the types itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from cel_expr_python import cel

from .cel_types import (
    IP,
    Opaque,
    cidr_value,
    content,
    ip_value,
    make_quantity,
    order_of,
    parse_cel_quantity,
    parse_cidr,
    parse_ip,
    parse_semver,
    quantity_value,
    semver_part,
)
from .formats import accepted_by, matches_format

_STRING, _BOOL, _INT, _DOUBLE, _ANY = (
    cel.Type.STRING,
    cel.Type.BOOL,
    cel.Type.INT,
    cel.Type.DOUBLE,
    cel.Type.DYN,
)
_LIST, _MAP = cel.Type.List(_ANY), cel.Type.Map(_STRING, _ANY)
_URL, _FORMAT, _SOME, _NONE = "net.URL", "kubernetes.NamedFormat", "optional", "optional.none"
_MAX_LABEL_LENGTH, _MAX_SUBDOMAIN_LENGTH = 63, 253
# By the name of the function in CEL: a pattern, a maximum length, and the message.
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_FORMAT_PATTERNS: dict[str, tuple[str, int]] = {
    "dns1123Label": (_LABEL, _MAX_LABEL_LENGTH),
    "dns1123Subdomain": (rf"{_LABEL}(\.{_LABEL})*", _MAX_SUBDOMAIN_LENGTH),
    "dns1035Label": ("[a-z]([-a-z0-9]*[a-z0-9])?", _MAX_LABEL_LENGTH),
    "dns1123LabelPrefix": (r"[a-z0-9]([-a-z0-9]*[a-z0-9])?-?", _MAX_LABEL_LENGTH),
    "dns1123SubdomainPrefix": (rf"{_LABEL}(\.{_LABEL})*[-.]?", _MAX_SUBDOMAIN_LENGTH),
    "dns1035LabelPrefix": ("[a-z]([-a-z0-9]*[a-z0-9])?-?", _MAX_LABEL_LENGTH),
    "qualifiedName": (
        rf"({_LABEL}(\.{_LABEL})*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
        _MAX_SUBDOMAIN_LENGTH + 1 + _MAX_LABEL_LENGTH,
    ),
    "labelValue": ("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", _MAX_LABEL_LENGTH),
}
_OPENAPI_FORMATS = ("uri", "uuid", "byte", "date", "datetime")


# Lists


def _is_sorted(items: list[Any]) -> bool:
    return all(before <= after for before, after in pairwise(items))


def _index_of(items: list[Any], item: Any) -> int:
    return items.index(item) if item in items else -1


def _last_index_of(items: list[Any], item: Any) -> int:
    return len(items) - 1 - items[::-1].index(item) if item in items else -1


def _minimum(items: list[Any]) -> Any:
    return _extreme(items, min)


def _maximum(items: list[Any]) -> Any:
    return _extreme(items, max)


def _extreme(items: list[Any], select: Callable[[list[Any]], Any]) -> Any:
    if not items:
        raise ValueError(f"{select.__name__} called on empty list")
    return select(items)


# Strings


def _find(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match[0] if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    matches = [match[0] for match in re.finditer(pattern, text)]
    return matches if limit < 0 else matches[:limit]


# URLs


def _parse_url(text: str) -> Opaque:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")):
        raise ValueError(f'URL parse error during conversion from string: parse "{text}"')
    return {_URL: text}


def _url(value: Opaque) -> SplitResult:
    return urlsplit(content(value, _URL))


def _url_port(value: Opaque) -> str:
    port = _url(value).port
    return "" if port is None else str(port)


def _url_query(value: Opaque) -> dict[str, list[str]]:
    return parse_qs(_url(value).query, keep_blank_values=True)


# Formats. Functions cannot return an optional, so this is a map with the same methods.


def _named_format(name: str) -> dict[str, Any]:
    is_format = name in _FORMAT_PATTERNS or name in _OPENAPI_FORMATS
    return {_SOME: {_FORMAT: name}} if is_format else {_NONE: True}


def _validate_format(value: Opaque, text: str) -> dict[str, Any]:
    name = content(value, _FORMAT)
    if name in _FORMAT_PATTERNS:
        pattern, limit = _FORMAT_PATTERNS[name]
        problems = [] if len(text) <= limit else [f"must be no more than {limit} characters"]
        if not re.fullmatch(pattern, text):
            problems.append(f"must match the regular expression '{pattern}'")
    else:
        problems = [] if matches_format(name, text) else [f"invalid {name}"]
    return {_SOME: problems} if problems else {_NONE: True}


def _optional_value(value: dict[str, Any]) -> Any:
    if _SOME not in value:
        raise ValueError("optional.none() dereference")
    return value[_SOME]


# Addresses


def _contains_address(network: Opaque, address: Any) -> bool:
    text = address if isinstance(address, str) else content(address, IP)
    return ip_value(parse_ip(text)) in cidr_value(network).network


def _contains_network(network: Opaque, other: Any) -> bool:
    inner = cidr_value(parse_cidr(other) if isinstance(other, str) else other).network
    outer = cidr_value(network).network
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def _is_canonical(text: str) -> bool:
    return ip_value(parse_ip(text)).compressed == text


def _masked(value: Opaque) -> Opaque:
    return parse_cidr(str(cidr_value(value).network))


def _is_global_unicast(value: Opaque) -> bool:
    address = ip_value(value)
    is_other = address.is_multicast or address.is_loopback or address.is_link_local
    return not (is_other or address.is_unspecified or str(address) == "255.255.255.255")


def _compare(first: Opaque, second: Opaque) -> int:
    a, b = order_of(first), order_of(second)
    return int(a > b) - int(a < b)


def _as_integer(value: Opaque) -> int:
    number = quantity_value(value)
    if number.denominator != 1:
        raise ValueError("cannot convert value to integer")
    return int(number)


def _operand(value: Any) -> Any:
    return value if isinstance(value, int) else quantity_value(value)


class _Declarations:
    """Collects overloads by the name of their function."""

    def __init__(self) -> None:
        self._overloads: dict[str, list[cel.Overload]] = {}

    def function(self, name: str, result: cel.Type, *parameters: cel.Type, impl: Any) -> None:
        self._add(name, result, parameters, impl, is_member=False)

    def method(self, name: str, result: cel.Type, *parameters: cel.Type, impl: Any) -> None:
        self._add(name, result, parameters, impl, is_member=True)

    def _add(
        self, name: str, result: cel.Type, parameters: Any, impl: Any, *, is_member: bool
    ) -> None:
        overloads = self._overloads.setdefault(name, [])
        id = f"kubernetes_{name.replace('.', '_')}_{len(overloads)}"
        overloads.append(
            cel.Overload(
                id, return_type=result, parameters=parameters, is_member=is_member, impl=impl
            )
        )

    def build(self) -> cel.CelExtension:
        functions = [cel.FunctionDecl(name, o) for name, o in self._overloads.items()]
        return cel.CelExtension("kubernetes", functions)


def build_extension() -> cel.CelExtension:
    """All functions of Kubernetes, as an extension of the evaluator."""
    add = _Declarations()
    add.method("isSorted", _BOOL, _LIST, impl=_is_sorted)
    add.method("sum", _ANY, _LIST, impl=sum)
    add.method("min", _ANY, _LIST, impl=_minimum)
    add.method("max", _ANY, _LIST, impl=_maximum)
    add.method("indexOf", _INT, _LIST, _ANY, impl=_index_of)
    add.method("lastIndexOf", _INT, _LIST, _ANY, impl=_last_index_of)
    add.method("find", _STRING, _STRING, _STRING, impl=_find)
    add.method("findAll", _LIST, _STRING, _STRING, impl=_find_all)
    add.method("findAll", _LIST, _STRING, _STRING, _INT, impl=_find_all)
    _add_urls(add)
    _add_formats(add)
    _add_quantities(add)
    _add_addresses(add)
    return add.build()


def _add_urls(add: _Declarations) -> None:
    add.function("url", _MAP, _STRING, impl=_parse_url)
    add.function("isURL", _BOOL, _STRING, impl=accepted_by(_parse_url))
    add.method("getScheme", _STRING, _MAP, impl=lambda value: _url(value).scheme)
    add.method("getHost", _STRING, _MAP, impl=lambda value: _url(value).netloc.rpartition("@")[2])
    add.method("getHostname", _STRING, _MAP, impl=lambda value: _url(value).hostname or "")
    add.method("getPort", _STRING, _MAP, impl=_url_port)
    add.method("getEscapedPath", _STRING, _MAP, impl=lambda value: _url(value).path)
    add.method("getQuery", _MAP, _MAP, impl=_url_query)


def _add_formats(add: _Declarations) -> None:
    for name in (*_FORMAT_PATTERNS, *_OPENAPI_FORMATS):
        add.function(f"format.{name}", _MAP, impl=lambda name=name: {_FORMAT: name})
    add.function("format.named", _ANY, _STRING, impl=_named_format)
    add.method("validate", _ANY, _MAP, _STRING, impl=_validate_format)
    add.method("hasValue", _BOOL, _MAP, impl=lambda value: _SOME in value)
    add.method("value", _ANY, _MAP, impl=_optional_value)
    add.method("orValue", _ANY, _MAP, _ANY, impl=lambda value, other: value.get(_SOME, other))


def _add_quantities(add: _Declarations) -> None:
    add.function("quantity", _MAP, _STRING, impl=parse_cel_quantity)
    add.function("isQuantity", _BOOL, _STRING, impl=accepted_by(parse_cel_quantity))
    add.method("sign", _INT, _MAP, impl=lambda value: _compare(value, parse_cel_quantity("0")))
    add.method("isInteger", _BOOL, _MAP, impl=lambda value: quantity_value(value).denominator == 1)
    add.method("asInteger", _INT, _MAP, impl=_as_integer)
    add.method("asApproximateFloat", _DOUBLE, _MAP, impl=lambda value: float(quantity_value(value)))
    add.method(
        "add", _MAP, _MAP, _ANY, impl=lambda a, b: make_quantity(quantity_value(a) + _operand(b))
    )
    add.method(
        "sub", _MAP, _MAP, _ANY, impl=lambda a, b: make_quantity(quantity_value(a) - _operand(b))
    )
    add.method("compareTo", _INT, _MAP, _MAP, impl=_compare)
    add.method("isGreaterThan", _BOOL, _MAP, _MAP, impl=lambda a, b: _compare(a, b) > 0)
    add.method("isLessThan", _BOOL, _MAP, _MAP, impl=lambda a, b: _compare(a, b) < 0)
    add.function("semver", _MAP, _STRING, impl=parse_semver)
    add.function("semver", _MAP, _STRING, _BOOL, impl=parse_semver)
    add.function("isSemver", _BOOL, _STRING, impl=accepted_by(parse_semver))
    for index, name in enumerate(("major", "minor", "patch"), 1):
        add.method(name, _INT, _MAP, impl=lambda value, index=index: semver_part(value, index))


def _add_addresses(add: _Declarations) -> None:
    add.function("ip", _MAP, _STRING, impl=parse_ip)
    add.function("isIP", _BOOL, _STRING, impl=accepted_by(parse_ip))
    add.function("ip.isCanonical", _BOOL, _STRING, impl=_is_canonical)
    add.method("family", _INT, _MAP, impl=lambda value: ip_value(value).version)
    add.method("isUnspecified", _BOOL, _MAP, impl=lambda value: ip_value(value).is_unspecified)
    add.method("isLoopback", _BOOL, _MAP, impl=lambda value: ip_value(value).is_loopback)
    add.method("isGlobalUnicast", _BOOL, _MAP, impl=_is_global_unicast)
    add.method("isLinkLocalUnicast", _BOOL, _MAP, impl=lambda value: ip_value(value).is_link_local)
    add.function("cidr", _MAP, _STRING, impl=parse_cidr)
    add.function("isCIDR", _BOOL, _STRING, impl=accepted_by(parse_cidr))
    add.method("containsIP", _BOOL, _MAP, _ANY, impl=_contains_address)
    add.method("containsCIDR", _BOOL, _MAP, _ANY, impl=_contains_network)
    add.method("ip", _MAP, _MAP, impl=lambda value: parse_ip(str(cidr_value(value).ip)))
    add.method("masked", _MAP, _MAP, impl=_masked)
    add.method("prefixLength", _INT, _MAP, impl=lambda value: cidr_value(value).network.prefixlen)
