"""The verbs that read, with the kind as first argument: get, list and watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from .api_requests import request_for
from .definition import KindDefinition
from .errors import ConfigError, KindMissing, NotFound, ResponseTooLarge, TimedOut, Undecodable
from .kind import Key, Object
from .patch import Json
from .responses import Page, UndecodableObject, WatchEvent, decode_page, decode_watch_event
from .transport import ApiTransport, Request, do_nothing

T = TypeVar("T", bound=Object)

PAGE_SIZE = 500
# What the next page of a list should measure. A page is decoded without a break; this much takes
# about 10 ms.
_PAGE_BYTES = 4 * 1024 * 1024
# The kube-apiserver sends a bookmark about once a minute, up to 2.5 s late. A watch that is silent
# for longer is dead.
WATCH_IDLE_TIMEOUT_SECONDS = 70.0


class Reader:
    """Asks the API server, and changes nothing."""

    def __init__(self, transport: ApiTransport) -> None:
        self.transport = transport
        self._decode_lock = asyncio.Lock()
        # By resource: how many objects fit into a page, from the last list.
        self._page_limits: dict[str, int] = {}

    async def get(self, kind: type[T], key: Key) -> T:
        return kind.decode(await self.transport.send(request_for("GET", kind.definition, key)))

    async def list(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[T]:
        """All objects of the kind (in the namespace). Raises if one of them cannot be decoded.

        For a class of `select`, these are the selected objects.
        """
        objects: list[T] = []
        selection = kind.definition.selection
        namespaces = selection.namespaces if selection is not None and not namespace else ()
        for each_namespace in namespaces or (namespace,):
            async for page in self.list_pages(
                kind, each_namespace, label_selector=label_selector, field_selector=field_selector
            ):
                for item in page.items:
                    if isinstance(item, UndecodableObject):
                        raise Undecodable(
                            f"{kind.definition.name} {item.metadata.key}: {item.message}"
                        )
                    objects.append(item)
        return objects

    async def list_pages(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        shard_selector: str = "",
        limit: int = PAGE_SIZE,
    ) -> AsyncIterator[Page[T]]:
        """The list in pages. All pages have the same resourceVersion (a consistent read).

        A page has fewer objects than `limit` after a page with large ones. A server that does not
        know `shard_selector` ignores it, see shard_ranges.py.
        """
        name, continue_token, max_limit = kind.definition.group_resource, "", limit
        limit = min(limit, self._page_limits.get(name, limit))
        while True:
            query = {
                "limit": str(limit),
                "continue": continue_token,
                **selector_query(kind.definition, label_selector, field_selector),
                "shardSelector": shard_selector,
            }
            try:
                body = await self.transport.send(
                    request_for("GET", kind.definition, Key(namespace, ""), query=query)
                )
            except (ResponseTooLarge, TimedOut) as error:
                # Objects may be up to 1.5 MB. After a timeout the next list begins with less.
                smaller = self._page_limits[name] = max(1, limit // 8)
                if limit == 1 or isinstance(error, TimedOut):
                    raise
                limit = smaller
                continue
            async with self._decode_lock:
                page = decode_page(kind, body)
                # The next page, perhaps of another kind, is decoded in another turn of the loop.
                await asyncio.sleep(0)
            if page.items:
                fitting = self._page_limits[name] = max(
                    1, _PAGE_BYTES * len(page.items) // len(body)
                )
                limit = min(max_limit, fitting)
            yield page
            if not page.continue_token:
                return
            continue_token = page.continue_token

    async def watch(
        self,
        kind: type[T],
        resource_version: str,
        namespace: str = "",
        *,
        timeout_seconds: int = 300,
        idle_timeout_seconds: float = WATCH_IDLE_TIMEOUT_SECONDS,
        label_selector: str = "",
        field_selector: str = "",
        shard_selector: str = "",
        send_initial_events: bool = False,
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[WatchEvent[T]]:
        """The changes since a resourceVersion, until the server ends the watch.

        With `send_initial_events` it begins with all objects (WatchList), consistent and at least
        as new as the resourceVersion, which may be "". Servers before 1.32 may reject that.

        Raises TimedOut if nothing arrives for `idle_timeout_seconds`, and an ApiError for 410 and
        every ERROR event. `on_open` is called when the server has accepted the watch, which may be
        a minute before the first event.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
            "sendInitialEvents": "true" if send_initial_events else "",
            "resourceVersionMatch": "NotOlderThan" if send_initial_events else "",
            **selector_query(kind.definition, label_selector, field_selector),
            "shardSelector": shard_selector,
        }
        # The server ends a watch after timeoutSeconds. One that goes on for longer than that and
        # a bookmark interval is not served by a working API server.
        request = replace(
            request_for("GET", kind.definition, Key(namespace, ""), query=query),
            timeout_seconds=timeout_seconds + idle_timeout_seconds,
        )
        async for line in self.transport.stream_lines(
            request, idle_timeout_seconds=idle_timeout_seconds, on_open=on_open
        ):
            yield decode_watch_event(kind, line, request.operation)

    async def is_served(self, kind: type[T]) -> bool:
        """Whether the server serves the kind in this version, by discovery."""
        definition = kind.definition
        prefix = "/apis" if definition.group else "/api"
        request = Request(
            "GET",
            f"{prefix}/{definition.api_version}",
            operation=f"discover {definition.group_resource}",
        )
        try:
            body = msgspec.json.decode(await self.transport.send(request))
        except (KindMissing, NotFound):
            return False
        return any(resource["name"] == definition.plural for resource in body.get("resources", ()))

    async def server_version(self) -> str:
        """The gitVersion of the API server, such as v1.36.3."""
        request = Request("GET", "/version", operation="reach the API server", timeout_seconds=10)
        body = await self.transport.send(request)
        try:
            return str(msgspec.json.decode(body, type=Json)["gitVersion"])
        except (msgspec.DecodeError, KeyError):
            raise ConfigError(
                "the server at this address is not a Kubernetes API server: check the server in "
                "the kubeconfig"
            ) from None


def selector_query(
    definition: KindDefinition, label_selector: str, field_selector: str
) -> dict[str, str]:
    """The selectors of a request, together with those of a class of `select`."""
    if (selection := definition.selection) is not None:
        label_selector = ",".join(filter(None, (str(selection.labels), label_selector)))
        field_selector = ",".join(filter(None, (str(selection.fields), field_selector)))
    return {"labelSelector": label_selector, "fieldSelector": field_selector}
