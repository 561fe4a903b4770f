"""String formats of CRDs. A format that Kubernetes does not know accepts every string."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from typing import Any
from urllib.parse import urlsplit

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)")
_DURATION = re.compile(
    r"[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*|0"
)
_SPACED_DURATION = re.compile(
    r"(\d+\s*(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?"
    r"|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)\s*)+"
)
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HEX = "[0-9a-f]"
_UUID = f"{_HEX}{{8}}-?{_HEX}{{4}}-?%s{_HEX}{{%d}}-?%s{_HEX}{{%d}}-?{_HEX}{{12}}"


def _full_match(pattern: str, flags: int = 0) -> Callable[[str], Any]:
    return re.compile(pattern, flags).fullmatch


def accepted_by(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    """A function that returns whether `parse` raises no ValueError for a text."""

    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _is_date_time(value: str) -> bool:
    return bool(_DATE_TIME.fullmatch(value)) and accepted_by(date.fromisoformat)(value[:10])


def _is_duration(value: str) -> bool:
    return bool(_DURATION.fullmatch(value) or _SPACED_DURATION.fullmatch(value))


def _is_uri(value: str) -> bool:
    with suppress(ValueError):
        return bool(urlsplit(value).scheme) or value.startswith("/")
    return False


_CHECKS: dict[str, Callable[[str], Any]] = {
    "byte": accepted_by(lambda value: base64.b64decode(value, validate=True)),
    "cidr": accepted_by(ipaddress.ip_interface),
    "date": accepted_by(date.fromisoformat),
    "datetime": _is_date_time,
    "duration": _is_duration,
    "email": _full_match(r"[^@\s]+@[^@\s]+"),
    "hexcolor": _full_match(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _full_match(rf"(?=.{{1,255}}$){_LABEL}(\.{_LABEL})*\.?", re.IGNORECASE),
    "ipv4": accepted_by(ipaddress.IPv4Address),
    "ipv6": accepted_by(ipaddress.IPv6Address),
    "k8slongname": _full_match(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*"),
    "k8sshortname": _full_match(rf"(?=.{{1,63}}$){_LABEL}"),
    "mac": _full_match(r"([0-9a-f]{2}[:-]){5}[0-9a-f]{2}", re.IGNORECASE),
    "uri": _is_uri,
    "uuid": _full_match(_UUID % ("", 4, "", 4), re.IGNORECASE),
    "uuid3": _full_match(_UUID % ("3", 3, "", 4), re.IGNORECASE),
    "uuid4": _full_match(_UUID % ("4", 3, "[89ab]", 3), re.IGNORECASE),
    "uuid5": _full_match(_UUID % ("5", 3, "[89ab]", 3), re.IGNORECASE),
}


def matches_format(name: str, value: str) -> bool:
    check = _CHECKS.get(name.replace("-", ""))
    return check is None or bool(check(value))
