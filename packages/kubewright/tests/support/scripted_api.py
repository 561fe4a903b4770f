"""A transport that plays a script: what each list and each watch of Widgets delivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec

from kubewright.transport import Request, do_nothing

from .widget_kind import Widget

Step = dict[str, Any] | bytes | Exception | None
"""An event, a line as it is, an error of the connection, or None: nothing more arrives."""


def make_widget(name: str, revision: int, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(revision)}
    return {"metadata": metadata, **fields}


def event(type: str, name: str, revision: int, **fields: Any) -> dict[str, Any]:
    return {"type": type, "object": make_widget(name, revision, **fields)}


def bookmark(revision: int, *, initial_events_end: str = "") -> dict[str, Any]:
    annotations = {"k8s.io/initial-events-end": initial_events_end} if initial_events_end else {}
    metadata = {"resourceVersion": str(revision), "annotations": annotations}
    return {"type": "BOOKMARK", "object": {"metadata": metadata}}


def error_event(code: int, reason: str, message: str = "a failure") -> dict[str, Any]:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return {"type": "ERROR", "object": status}


def page(revision: int, *items: dict[str, Any], continue_token: str = "") -> dict[str, Any]:
    metadata = {"resourceVersion": str(revision), "continue": continue_token}
    return {"metadata": metadata, "items": list(items)}


class ScriptedApi:
    """Each watch plays the next of `watches`, each page of a list is the next of `pages`.

    After the last one, a watch is accepted and delivers nothing.
    """

    def __init__(
        self,
        *,
        pages: Sequence[dict[str, Any] | Exception] = (),
        watches: Sequence[Sequence[Step]] = (),
    ) -> None:
        self._pages, self._watches = list(pages), list(watches)
        self.requests: list[str] = []
        """`list`, `watch 5` (from a revision) and `stream` (a watch with initial events)."""
        self.open_watches = 0

    async def send(self, request: Request) -> bytes:
        assert request.path == Widget.definition.path()
        query = parse_qs(request.query)
        if query["limit"] == ["1"]:
            # The check of the server's revision: nothing was restored.
            self.requests.append("check")
            return msgspec.json.encode(page(10**9))
        self.requests.append("list")
        await asyncio.sleep(0)
        response = self._pages.pop(0)
        if isinstance(response, Exception):
            raise response
        return msgspec.json.encode(response)

    async def stream_lines(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float,
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[bytes]:
        query = parse_qs(request.query)
        if "sendInitialEvents" in query:
            assert query["resourceVersionMatch"] == ["NotOlderThan"]
            assert "resourceVersion" not in query
            self.requests.append("stream")
        else:
            self.requests.append(f"watch {query['resourceVersion'][0]}")
        script = self._watches.pop(0) if self._watches else [None]
        if script and isinstance(script[0], Exception):
            raise script[0]
        on_open()
        self.open_watches += 1
        try:
            for step in script:
                await asyncio.sleep(0)
                if step is None:
                    await asyncio.Event().wait()
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield step if isinstance(step, bytes) else msgspec.json.encode(step)
        finally:
            self.open_watches -= 1
