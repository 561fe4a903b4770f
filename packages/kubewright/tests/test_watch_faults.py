"""The table of watch faults in docs/designs/testing.md, as scripts of an API server: what client-go
tests of its reflector, for both ways to list."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from kubewright.cache import Origin, Store
from kubewright.client import Client
from kubewright.errors import (
    Gone,
    Invalid,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from kubewright.kind import Key
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.reflector import Reflector
from kubewright.responses import decode_page
from kubewright.selection import select
from kubewright.testing import eventually

from .support.scripted_api import (
    ScriptedApi,
    Step,
    bookmark,
    error_event,
    event,
    make_widget,
    page,
)
from .support.widget_kind import Widget, WidgetSpec

pytestmark = pytest.mark.looptime

A, B = make_widget("a", 1), make_widget("b", 2)
INITIAL_EVENTS: list[Step] = [event("ADDED", "a", 1), event("ADDED", "b", 2)]
END = bookmark(5, initial_events_end="true")


@dataclass(frozen=True)
class Script:
    """What the server sends, and the requests and objects that follow from it."""

    requests: Sequence[str]
    objects: dict[str, int]
    """Names and revisions in the store at the end."""
    pages: Sequence[dict[str, Any] | Exception] = ()
    watches: Sequence[Sequence[Step]] = ()
    is_synced: bool = True
    within: float = 30.0


@asynccontextmanager
async def run_reflector(api: ScriptedApi, **options: Any) -> AsyncIterator[Reflector[Widget]]:
    kind = options.pop("kind", Widget)
    store: Store[Widget] = Store(kind.definition, Log("test"))
    reflector = Reflector(
        kind,
        store,
        Client(api),
        Metrics(),
        Log("test"),
        clock=asyncio.get_running_loop().time,
        **options,
    )
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert api.open_watches == 0


def revisions(reflector: Reflector[Widget]) -> dict[str, int]:
    return {key.name: obj.metadata.revision for key, obj in reflector.store.objects.items()}


PAGES: dict[str, Script] = {
    "list, then watch from its revision": Script(
        pages=[page(5, A, B)],
        requests=["list", "watch 5"],
        objects={"a": 1, "b": 2},
    ),
    "events are applied, and the revision follows them and bookmarks": Script(
        pages=[page(5, A, B)],
        watches=[
            [event("ADDED", "c", 6), event("MODIFIED", "a", 7), event("DELETED", "b", 8)],
            [bookmark(20)],
        ],
        requests=["list", "watch 5", "watch 8", "watch 20"],
        objects={"a": 7, "c": 6},
    ),
    "failed list is repeated": Script(
        pages=[ServerError("no"), page(5, A)],
        requests=["list", "list", "watch 5"],
        objects={"a": 1},
    ),
    "refused watch is repeated without a list": Script(
        pages=[page(5, A)],
        watches=[[Unreachable("refused")]] * 3,
        requests=["list", *["watch 5"] * 4],
        objects={"a": 1},
    ),
    "429 on a watch is repeated without a list": Script(
        pages=[page(5, A)],
        watches=[[TooManyRequests("slow down", retry_after=1)]] * 2,
        requests=["list", *["watch 5"] * 3],
        objects={"a": 1},
    ),
    "429 inside of a watch is repeated without a list": Script(
        pages=[page(5, A)],
        watches=[[event("MODIFIED", "a", 6), error_event(429, "TooManyRequests")]],
        requests=["list", "watch 5", "watch 6"],
        objects={"a": 6},
    ),
    "500 inside of a watch is repeated without a list": Script(
        pages=[page(5, A)],
        watches=[[error_event(500, "InternalError")]] * 2,
        requests=["list", *["watch 5"] * 3],
        objects={"a": 1},
    ),
    "connection breaks in a watch": Script(
        pages=[page(5, A)],
        watches=[[event("MODIFIED", "a", 6), Unreachable("reset")]],
        requests=["list", "watch 5", "watch 6"],
        objects={"a": 6},
    ),
    "410 when the watch is opened": Script(
        pages=[page(5, A, B), page(9, A)],
        watches=[[Gone("too old")]],
        requests=["list", "watch 5", "list", "watch 9"],
        objects={"a": 1},
    ),
    "410 inside of a watch": Script(
        pages=[page(5, A, B), page(9, A)],
        watches=[[event("ADDED", "c", 6), error_event(410, "Expired")]],
        requests=["list", "watch 5", "list", "watch 9"],
        objects={"a": 1},
    ),
    "object that etcd cannot read was deleted": Script(
        pages=[page(5, A, B), page(9, A)],
        watches=[[error_event(500, "StoreReadError")]],
        requests=["list", "watch 5", "list", "watch 9"],
        objects={"a": 1},
    ),
    "line that is not an event": Script(
        pages=[page(5, A, B), page(9, A)],
        watches=[[b"not JSON"]],
        requests=["list", "watch 5", "list", "watch 9"],
        objects={"a": 1},
    ),
    "error that is not a Status": Script(
        pages=[page(5, A)],
        watches=[[{"type": "ERROR", "object": {"metadata": {}}}]],
        requests=["list", "watch 5", "watch 5"],
        objects={"a": 1},
    ),
    "table instead of an object": Script(
        pages=[page(5, A, B), page(9, A)],
        watches=[
            [{"type": "ADDED", "object": {"kind": "Table", "metadata": {"resourceVersion": "6"}}}]
        ],
        requests=["list", "watch 5", "list", "watch 9"],
        objects={"a": 1},
    ),
    "list in pages": Script(
        pages=[page(5, A, continue_token="more"), page(5, B)],
        requests=["list", "list", "watch 5"],
        objects={"a": 1, "b": 2},
    ),
    "list expires between two pages": Script(
        pages=[page(5, A, continue_token="more"), Gone("expired"), page(9, A, B)],
        requests=["list", "list", "list", "watch 9"],
        objects={"a": 1, "b": 2},
    ),
}

STREAM: dict[str, Script] = {
    "initial events, then the same watch goes on": Script(
        watches=[[*INITIAL_EVENTS, END, event("MODIFIED", "a", 6), None]],
        requests=["stream"],
        objects={"a": 6, "b": 2},
    ),
    "no bookmark: not in sync, pages after 10 s": Script(
        watches=[[*INITIAL_EVENTS, None]],
        pages=[page(7, A)],
        requests=["stream", "list", "watch 7"],
        objects={"a": 1},
    ),
    "bookmark without the annotation does not end the initial events": Script(
        watches=[[*INITIAL_EVENTS, bookmark(5), bookmark(6, initial_events_end="false"), None]],
        requests=["stream"],
        objects={"a": 1, "b": 2},
        is_synced=False,
        within=9.0,
    ),
    "server rejects it: pages": Script(
        watches=[[Invalid("sendInitialEvents is forbidden")]],
        pages=[page(5, A)],
        requests=["stream", "list", "watch 5"],
        objects={"a": 1},
    ),
    "any other error: pages once": Script(
        watches=[[ServerError("no")], [Gone("too old")], [*INITIAL_EVENTS, END, None]],
        pages=[page(3, A)],
        requests=["stream", "list", "watch 3", "stream"],
        objects={"a": 1, "b": 2},
    ),
    "429 is repeated as a stream": Script(
        watches=[*[[TooManyRequests("slow down")]] * 2, [*INITIAL_EVENTS, END, None]],
        requests=["stream"] * 3,
        objects={"a": 1, "b": 2},
    ),
    "changes between the initial events are applied": Script(
        watches=[
            [
                *INITIAL_EVENTS,
                event("MODIFIED", "a", 3),
                event("ADDED", "c", 4),
                event("DELETED", "c", 5),
                END,
                None,
            ]
        ],
        requests=["stream"],
        objects={"a": 3, "b": 2},
    ),
    "connection breaks before the bookmark: from the beginning": Script(
        watches=[
            [event("ADDED", "gone", 1), Unreachable("reset")],
            [*INITIAL_EVENTS, END, None],
        ],
        requests=["stream", "stream"],
        objects={"a": 1, "b": 2},
    ),
    "watch ends after the bookmark: from the last revision": Script(
        watches=[[*INITIAL_EVENTS, END, event("ADDED", "c", 6)], [event("ADDED", "d", 7), None]],
        requests=["stream", "watch 6"],
        objects={"a": 1, "b": 2, "c": 6, "d": 7},
    ),
    "410 after the bookmark: initial events again, and deletions are found": Script(
        watches=[
            [*INITIAL_EVENTS, END],
            [Gone("too old")],
            [event("ADDED", "a", 1), bookmark(9, initial_events_end="true"), None],
        ],
        requests=["stream", "check", "watch 5", "stream"],
        objects={"a": 1},
    ),
    "server restored from a backup: pages replace the objects": Script(
        watches=[
            [event("ADDED", "a", 50), bookmark(60, initial_events_end="true")],
            [Gone("too old")],
            [event("ADDED", "a", 8), bookmark(9, initial_events_end="true"), None],
        ],
        pages=[page(9, make_widget("a", 8))],
        requests=["stream", "check", "watch 60", "stream", "list", "watch 9"],
        objects={"a": 8},
    ),
}


@pytest.mark.parametrize("name", [*PAGES, *STREAM])
async def test_fault(name: str) -> None:
    script = PAGES.get(name) or STREAM[name]
    api = ScriptedApi(pages=script.pages, watches=script.watches)
    async with run_reflector(api, use_watch_list=name in STREAM) as reflector:
        await eventually(
            lambda: (
                api.requests == list(script.requests)
                and revisions(reflector) == script.objects
                and reflector.synced.is_set() == script.is_synced
            ),
            within=script.within,
        )


@pytest.mark.parametrize("failures", [1, 3, 6])
async def test_refused_watches_back_off_exponentially(failures: int) -> None:
    api = ScriptedApi(pages=[page(5, A)], watches=[[Unreachable("refused")]] * failures)
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    async with run_reflector(api):
        await eventually(lambda: len(api.requests) == failures + 2, within=100)
        seconds = loop.time() - started_at
    waited = [min(0.5 * 2**number, 8.0) for number in range(failures)]
    assert 0.8 * sum(waited) <= seconds <= 1.2 * sum(waited) + 1


async def test_watches_that_end_at_once_back_off() -> None:
    api = ScriptedApi(pages=[page(5, A)], watches=[[]] * 1000)
    async with run_reflector(api):
        await asyncio.sleep(30)
        assert 4 < len(api.requests) < 25


async def test_watch_asks_for_5_to_10_minutes() -> None:
    timeouts = set()
    for _ in range(20):
        api = ScriptedApi(pages=[page(5)])
        async with run_reflector(api) as reflector:
            await reflector.synced.wait()
            timeouts.add(reflector._health.choose_timeout(allow_short=True))
    assert len(timeouts) > 1
    assert all(300 <= timeout <= 600 for timeout in timeouts)


async def test_cancelled_reflector_closes_its_watch_and_changes_nothing() -> None:
    api = ScriptedApi(pages=[page(5, A)])
    async with run_reflector(api) as reflector:
        await eventually(lambda: api.open_watches)
    assert api.open_watches == 0
    assert revisions(reflector) == {"a": 1}


@pytest.mark.parametrize("use_watch_list", [True, False])
async def test_transform_is_applied_to_every_object(use_watch_list: bool) -> None:
    def drop_friend(widget: Widget) -> Widget:
        return msgspec.structs.replace(widget, spec=WidgetSpec(size=widget.spec.size))

    spec = {"size": 3, "friend": "joe"}
    later = [event("MODIFIED", "a", 6, spec=spec), event("ADDED", "b", 7, spec=spec), None]
    listed = make_widget("a", 1, spec=spec)
    api = ScriptedApi(
        pages=[page(5, listed)],
        watches=[[{"type": "ADDED", "object": listed}, END, *later] if use_watch_list else later],
    )
    kind = select(Widget, transform=drop_friend)
    async with run_reflector(api, use_watch_list=use_watch_list, kind=kind) as reflector:
        await eventually(lambda: revisions(reflector) == {"a": 6, "b": 7})
        specs = [obj.spec for obj in reflector.store.objects.values() if isinstance(obj, kind)]
    assert specs == [WidgetSpec(size=3)] * 2


@pytest.mark.parametrize("use_watch_list", [True, False])
async def test_first_list_and_later_ones_have_different_origins(use_watch_list: bool) -> None:
    origins: list[Origin] = []
    gone = error_event(410, "Expired")
    initial: list[Step] = [event("ADDED", "a", 1), END] if use_watch_list else []
    again: list[Step] = [event("ADDED", "c", 6), bookmark(9, initial_events_end="true"), None]
    api = ScriptedApi(
        pages=[page(5, A), page(9, make_widget("c", 6))],
        watches=[[*initial, event("ADDED", "b", 6), gone], again if use_watch_list else [None]],
    )
    async with run_reflector(api, use_watch_list=use_watch_list) as reflector:
        reflector.store.changed.connect(lambda key, old, new, origin: origins.append(origin))
        await eventually(lambda: revisions(reflector) == {"c": 6})
    assert origins == [Origin.INITIAL_LIST, *[Origin.WATCH] * 4]


def test_objects_do_not_keep_their_page_in_memory() -> None:
    # An undeclared field of 100 kB in each object: only a copy of the declared ones stays.
    items = [make_widget(f"w{n}", n + 1, status={"unknown": "x" * 100_000}) for n in range(20)]
    body = msgspec.json.encode(page(5, *items))
    tracemalloc.start()
    objects = decode_page(Widget, body).items
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(objects) == 20
    assert kept < len(body) / 10


async def test_restored_server_is_noticed_although_it_accepts_the_watch() -> None:
    # It accepts a watch from a revision that it will only have later, and sends nothing.
    class RestoredApi(ScriptedApi):
        async def send(self, request: Any) -> bytes:
            if "limit=1&" in f"{request.query}&":
                self.requests.append("check")
                return msgspec.json.encode(page(9))
            return await super().send(request)

    api = RestoredApi(
        pages=[page(50, make_widget("a", 40), B), page(9, make_widget("a", 8))], watches=[[]]
    )
    async with run_reflector(api) as reflector:
        await eventually(lambda: revisions(reflector) == {"a": 8})
        await eventually(lambda: api.requests == ["list", "watch 50", "check", "list", "watch 9"])
        assert reflector.store.watched_revision("n") == 9
        assert Key("n", "b") not in reflector.store.objects
