"""RetrievePropertiesEx: builds property specs, and reads all pages of a result.

vCenter returns a result in pages, and may choose their size itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from pyVmomi import vim, vmodl

from .session import Session
from .transport import SoapClient
from .updates import ObjectUpdate, decode_object_page

PropertyCollector = vmodl.query.PropertyCollector
CollectorCall = Callable[..., Awaitable[bytes]]
"""Calls a method of a property collector with arguments, and returns the response's bytes."""


async def retrieve_all_pages(
    call: CollectorCall, specs: Sequence[Any], options: Any
) -> list[ObjectUpdate]:
    """What the specs select. A token is valid only with the collector that returned it."""
    page = decode_object_page(await call("RetrievePropertiesEx", specs, options))
    updates = list(page.updates)
    while page.token:
        page = decode_object_page(await call("ContinueRetrievePropertiesEx", page.token))
        updates += page.updates
    return updates


async def retrieve_selected(soap: SoapClient, spec: Any) -> list[ObjectUpdate]:
    """What the spec selects, by the session's default collector: for reads without a filter."""
    collector = (await soap.get_service_content()).propertyCollector

    async def call(method: str, *arguments: Any) -> bytes:
        return await soap.post(soap.build_envelope(collector, method, *arguments), method=method)

    return await retrieve_all_pages(call, [spec], PropertyCollector.RetrieveOptions())


async def retrieve_properties(
    soap: SoapClient, session: Session, type_name: str, refs: Sequence[str], paths: Sequence[str]
) -> list[ObjectUpdate]:
    """Properties of objects of one type as vCenter has them now; deleted objects are left out."""
    spec = PropertyCollector.FilterSpec(
        objectSet=[build_object_spec(managed_object(type_name, ref)) for ref in refs],
        propSet=[build_property_spec(type_name, paths)],
        # Without it, one deleted object fails the whole call.
        reportMissingObjectsInResults=True,
    )
    return await session.call(lambda: retrieve_selected(soap, spec))


def build_object_spec(obj: Any) -> Any:
    return PropertyCollector.ObjectSpec(obj=obj, skip=False)


def build_traversal_spec(obj: Any, managed_type: Any, path: str) -> Any:
    """The objects that a property refers to, without the object that has the property."""
    traversal = PropertyCollector.TraversalSpec(name=path, type=managed_type, path=path, skip=False)
    return PropertyCollector.ObjectSpec(obj=obj, skip=True, selectSet=[traversal])


def build_property_spec(type_name: str, paths: Iterable[str]) -> Any:
    return PropertyCollector.PropertySpec(
        type=getattr(vim, type_name), all=False, pathSet=sorted(paths)
    )


def managed_object(type_name: str, ref: str) -> Any:
    return getattr(vim, type_name)(ref)
