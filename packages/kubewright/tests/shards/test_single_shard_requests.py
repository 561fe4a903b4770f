"""With one shard, a manager sends byte for byte what it sent before there were shards.

single_shard_requests.json was recorded with the last release without shards.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubewright.builtin import Pod
from kubewright.client import Client
from kubewright.controller import Controller
from kubewright.kind import Key, ObjectMeta
from kubewright.kubeconfig import Connection, Identity
from kubewright.manager import Manager, Options
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from kubewright.transport import Request

from ..support.widget_kind import Friend, Widget, WidgetSpec, WidgetStatus

RECORDING = Path(__file__).with_name("single_shard_requests.json")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")
_EVENT_NAME = re.compile(r'("name":"[ab]\.)[0-9a-f]+')
pytestmark = pytest.mark.looptime


class WidgetController(Controller[Widget]):
    finalizer = "kubewright.test/cleanup"

    def __init__(self) -> None:
        self.reads(Pod)
        self.watches(Friend, index_by=lambda widget: widget.spec.friend)

    async def reconcile(self, widget: Widget) -> None:
        self.event(widget, "Normal", "Seen", f"size {widget.spec.size}")
        widget.status = WidgetStatus(doubled=2 * widget.spec.size)


async def record_requests() -> list[dict[str, str]]:
    """What a manager with leader election sends during a short life."""
    random.seed(1)
    # The fake sets uid and creationTimestamp; only the requests of the manager are compared.
    api = FakeApi(clock=lambda: NOW)
    user = Client(api)
    for name in ("a", "b"):
        metadata = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}")
        api.add(Widget(metadata=metadata, spec=WidgetSpec(size=3, friend="f")))
    options = Options(
        name="operator",
        identity="one",
        leader_election=True,
        leader_election_namespace="system",
        metrics_bind_address="0",
        watch_namespaces=("ns",),
        graceful_shutdown_seconds=5,
    )
    connection = Connection(server="https://fake.invalid", identity=Identity(), source="a test")
    manager = Manager(connection, options, transport=api)
    # Not in the recording: it is the address of a socket of this process.
    manager.leader._presence = _NoPresence()  # type: ignore[assignment]
    controller = WidgetController()
    controller.clock = lambda: NOW
    manager.add(controller)
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    key = Key("ns", "a")

    async def is_doubled(size: int) -> bool:
        return (await user.get(Widget, key)).status.doubled == 2 * size

    await eventually(lambda: is_doubled(3))
    await user.patch(Widget, key, {"spec": {"size": 4}})
    await eventually(lambda: is_doubled(4))
    await asyncio.sleep(5)
    await user.delete(Widget, key)
    await eventually(lambda: not any("widgets/a" in path for path in api.objects))
    stop.set()
    await running
    is_own = re.compile(r"operator|resourceVersion=|limit=|watch=1")
    own = [r for r in api.requests if is_own.search(r.query) or r.path == "/version"]
    return sorted((_to_json(request) for request in own), key=lambda entry: json.dumps(entry))


class _NoPresence:
    address = ""

    def has_ended(self, identity: str, address: str) -> bool:
        return False


def _to_json(request: Request) -> dict[str, str]:
    body = (request.body or b"").decode()
    return {
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "body": _EVENT_NAME.sub(r"\1#", _TIME.sub("TIME", body)),
        "contentType": request.content_type,
        "accept": request.accept,
    }


def _without_counts(entries: list[dict[str, str]]) -> Iterator[str]:
    """Each different request once: how often a poll repeats depends on the machine."""
    yield from dict.fromkeys(json.dumps(entry, sort_keys=True) for entry in entries)


async def test_requests_are_those_of_a_manager_without_shards() -> None:
    recorded = json.loads(RECORDING.read_text())
    assert list(_without_counts(await record_requests())) == list(_without_counts(recorded))
