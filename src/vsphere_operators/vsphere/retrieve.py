"""All that RetrievePropertiesEx has to say: a vCenter gives it in pages, of a size that it may choose itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from pyVmomi import vim, vmodl

from .session import Session
from .transport import SoapClient
from .updates import ObjectUpdate, decode_object_page

PropertyCollector = vmodl.query.PropertyCollector
CollectorCall = Callable[..., Awaitable[bytes]]
"""One call of a property collector, answered in bytes: its method, and the arguments of that."""


async def retrieve_all_pages(
    call: CollectorCall, specs: Sequence[Any], options: Any
) -> list[ObjectUpdate]:
    """What the specs select, to the last page; all pages of one answer are asked of the same collector."""
    answer = decode_object_page(await call("RetrievePropertiesEx", specs, options))
    found = list(answer.updates)
    while answer.token:
        answer = decode_object_page(await call("ContinueRetrievePropertiesEx", answer.token))
        found += answer.updates
    return found


async def retrieve_selected(soap: SoapClient, spec: Any) -> list[ObjectUpdate]:
    """The same, of the session's own collector: for what is read now and then, and followed by nobody's filter."""
    collector = (await soap.get_service_content()).propertyCollector

    async def call(method: str, *arguments: Any) -> bytes:
        return await soap.post(soap.build_envelope(collector, method, *arguments), method=method)

    return await retrieve_all_pages(call, [spec], PropertyCollector.RetrieveOptions())


def build_object_spec(obj: Any) -> Any:
    """An object itself."""
    return PropertyCollector.ObjectSpec(obj=obj, skip=False)


def build_traversal_spec(obj: Any, kind: Any, path: str) -> Any:
    """What a property of an object refers to, without the object itself."""
    return PropertyCollector.ObjectSpec(
        obj=obj,
        skip=True,
        selectSet=[PropertyCollector.TraversalSpec(name=path, type=kind, path=path, skip=False)],
    )


def build_property_spec(kind: str, paths: Iterable[str]) -> Any:
    """Which properties of a type."""
    return PropertyCollector.PropertySpec(type=getattr(vim, kind), all=False, pathSet=sorted(paths))


def managed_object(kind: str, ref: str) -> Any:
    """A managed object by its reference."""
    return getattr(vim, kind)(ref)


async def retrieve_properties(
    soap: SoapClient, session: Session, kind: str, refs: Sequence[str], paths: Sequence[str]
) -> list[ObjectUpdate]:
    """Properties of objects of one type as vCenter has them now; what is gone is left out."""
    objects = [build_object_spec(managed_object(kind, ref)) for ref in refs]
    spec = PropertyCollector.FilterSpec(
        objectSet=objects,
        propSet=[build_property_spec(kind, paths)],
        reportMissingObjectsInResults=True,
    )
    return await session.call(lambda: retrieve_selected(soap, spec))
