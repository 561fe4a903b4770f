"""All that RetrievePropertiesEx has to say: a vCenter gives it in pages, of a size that it may choose itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pyVmomi import vmodl

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
