"""One property collector: versions, pages, and what changed since the last response.

Why are changes kept by path and not as values?  An object that changes twice between two responses
    is sent once, with its newest values, as vCenter does it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from functools import cache

from .inventory import ManagedObject, ReplayedInventory

_HEAD = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<soapenv:Envelope '
    b'xmlns:soapenc="http://schemas.xmlsoap.org/soap/encoding/" '
    b'xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" '
    b'xmlns:xsd="http://www.w3.org/2001/XMLSchema" '
    b'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>'
)
_TAIL = b"</soapenv:Body></soapenv:Envelope>"


def envelope(method: str, result: bytes = b"") -> bytes:
    name = method.encode()
    return b'%s<%sResponse xmlns="urn:vim25">%s</%sResponse>%s' % (_HEAD, name, result, name, _TAIL)


class InvalidVersion(Exception):
    """The client names a version that this collector did not return."""


class Collector:
    def __init__(self, inventory: ReplayedInventory) -> None:
        self._inventory = inventory
        # The paths that the filters ask for, by type.
        self._paths: dict[str, frozenset[str]] = {}
        # The objects that a load has not sent yet, in reverse order.
        self._unsent: list[ManagedObject] = []
        self._sent: set[str] = set()
        self._changed: dict[str, set[str]] = {}
        self._has_news = asyncio.Event()
        self._version, self._last_version, self._last_response = 0, "", b""
        inventory.listeners.append(self._on_change)

    def close(self) -> None:
        self._inventory.listeners.remove(self._on_change)

    def add_filter(self, paths: Mapping[str, Iterable[str]]) -> None:
        self._paths |= {type_name: frozenset(names) for type_name, names in paths.items()}

    def _on_change(self, ref: str, paths: tuple[str, ...]) -> None:
        if ref in self._sent:
            self._changed.setdefault(ref, set()).update(paths)
            self._has_news.set()

    async def wait_for_updates(
        self, version: str, max_wait_seconds: float, max_objects: int
    ) -> bytes:
        """The element `returnval`; empty if nothing changed for `max_wait_seconds`."""
        if version and version == self._last_version and self._last_response:
            # The client did not receive the last response.
            return self._last_response
        if version and version != str(self._version):
            raise InvalidVersion(version)
        if not version:
            self._unsent = list(reversed(self._inventory.objects.values()))
            self._sent.clear()
            self._changed.clear()
        elements = self._take_new(max_objects) or self._take_changed(max_objects)
        deadline = time.monotonic() + max_wait_seconds
        while not elements:
            self._has_news.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._has_news.wait()
            except TimeoutError:
                return b""
            elements = self._take_changed(max_objects)
        is_truncated = bool(self._unsent or self._changed)
        self._last_version, self._version = str(self._version) if version else "", self._version + 1
        self._last_response = (
            b'<returnval><version>%d</version><filterSet><filter type="PropertyFilter">'
            b"session[1]filter</filter>%s</filterSet><truncated>%s</truncated></returnval>"
        ) % (self._version, b"".join(elements), b"true" if is_truncated else b"false")
        return self._last_response

    def _take_new(self, count: int) -> list[bytes]:
        elements: list[bytes] = []
        while len(elements) < count and self._unsent:
            obj = self._unsent.pop()
            paths = self._paths.get(obj.type)
            if paths is not None:
                self._sent.add(obj.ref)
                elements.append(_update(b"enter", obj, sorted(paths & obj.properties.keys())))
        return elements

    def _take_changed(self, count: int) -> list[bytes]:
        elements = []
        for ref in list(self._changed)[:count]:
            obj = self._inventory.objects[ref]
            paths = self._changed.pop(ref) & self._paths[obj.type]
            if paths:
                elements.append(_update(b"modify", obj, sorted(paths)))
        return elements


def _update(kind: bytes, obj: ManagedObject, paths: Iterable[str]) -> bytes:
    parts = [
        b'<objectSet><kind>%s</kind><obj type="%s">%s</obj>'
        % (kind, obj.type.encode(), obj.ref.encode())
    ]
    for path in paths:
        parts += (_start_change(path), obj.properties[path], b"</changeSet>")
    parts.append(b"</objectSet>")
    return b"".join(parts)


@cache
def _start_change(path: str) -> bytes:
    return f"<changeSet><name>{path}</name><op>assign</op>".encode()


def render_content(obj: ManagedObject, paths: Iterable[str]) -> bytes:
    """An ObjectContent of RetrievePropertiesEx; properties that are not set are left out."""
    properties = b"".join(
        b"<propSet><name>%s</name>%s</propSet>" % (path.encode(), obj.properties[path])
        for path in sorted(paths)
        if path in obj.properties
    )
    return b'<objects><obj type="%s">%s</obj>%s</objects>' % (
        obj.type.encode(),
        obj.ref.encode(),
        properties,
    )
