"""Values of properties as XML: the element `val`, with the type that vCenter declares."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from xml.sax.saxutils import escape


@lru_cache(maxsize=10_000)
def simple(type_name: str, value: str) -> bytes:
    """A value that many objects have. It is cached, so that they share its memory."""
    return f'<val xsi:type="{type_name}">{escape(value)}</val>'.encode()


def text(value: str) -> bytes:
    return simple("xsd:string", value)


def unique_text(value: str) -> bytes:
    return f'<val xsi:type="xsd:string">{escape(value)}</val>'.encode()


def integer(value: int) -> bytes:
    return b'<val xsi:type="xsd:int">%d</val>' % value


def short(value: int) -> bytes:
    return simple("xsd:short", str(value))


def long(value: int) -> bytes:
    return b'<val xsi:type="xsd:long">%d</val>' % value


def boolean(value: bool) -> bytes:
    return simple("xsd:boolean", "true" if value else "false")


def time(value: str) -> bytes:
    return simple("xsd:dateTime", value)


@lru_cache(maxsize=10_000)
def reference(type_name: str, ref: str) -> bytes:
    return f'<val type="{type_name}" xsi:type="ManagedObjectReference">{ref}</val>'.encode()


def references(type_name: str, refs: Iterable[str]) -> bytes:
    items = "".join(
        f'<ManagedObjectReference type="{type_name}" xsi:type="ManagedObjectReference">'
        f"{ref}</ManagedObjectReference>"
        for ref in refs
    )
    return array("ArrayOfManagedObjectReference", items)


def array(type_name: str, items: str = "") -> bytes:
    return f'<val xsi:type="{type_name}">{items}</val>'.encode()
