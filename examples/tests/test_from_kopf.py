from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from urllib.request import urlopen

import pytest

from examples.from_kopf import embedded, hooks, pod_killer
from examples.from_kopf.admission import ExampleWebhook
from examples.from_kopf.all_at_once import AllController
from examples.from_kopf.children import ChildrenController
from examples.from_kopf.daemons import DaemonsController
from examples.from_kopf.events import EventsController
from examples.from_kopf.example_kind import Example, ExampleSpec
from examples.from_kopf.exceptions import ExceptionsController
from examples.from_kopf.filters import ChangeController, ConditionController, LabelController
from examples.from_kopf.handlers import HandlersController
from examples.from_kopf.indexing import IndexingController
from examples.from_kopf.minimal import MinimalController
from examples.from_kopf.peering import PeeringController
from examples.from_kopf.raw_events import RawEventsController
from examples.from_kopf.subhandlers import SubhandlersController
from examples.from_kopf.timers import TimersController
from examples.tests.component_runner import RunControllers
from kubewright import (
    Client,
    Condition,
    Invalid,
    Key,
    Manager,
    ObjectMeta,
    Options,
    load_config,
)
from kubewright.api.core_v1 import Container, Event, Pod, PodSpec
from kubewright.command import ManagerFlags
from kubewright.rbac import manager_rules
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane


@pytest.fixture
def key(namespace: str) -> Key:
    return Key(namespace, "example")


async def create(client: Client, key: Key, spec: ExampleSpec | None = None) -> None:
    metadata = ObjectMeta(namespace=key.namespace, name=key.name)
    await client.create(Example(metadata=metadata, spec=spec or ExampleSpec()))


async def ready(client: Client, key: Key, status: str = "True") -> Condition:
    async def find_condition() -> Condition | None:
        condition = (await client.get(Example, key)).status.condition("Ready")
        return condition if condition is not None and condition.status == status else None

    condition = await eventually(find_condition)
    assert condition is not None
    return condition


async def test_minimal(run_controllers: RunControllers, key: Key) -> None:
    async with run_controllers(MinimalController()) as client:
        await create(client, key)
        await ready(client, key)
        assert (await client.get(Example, key)).status.message == "hello world"


async def test_exceptions(run_controllers: RunControllers, key: Key) -> None:
    async with run_controllers(ExceptionsController()) as client:
        await create(client, key, ExampleSpec(field="temporary"))
        assert (await ready(client, key)).message == "Succeeded at attempt 4."
        await client.patch(Example, key, {"spec": {"field": "permanent"}})
        assert (await ready(client, key, "False")).reason == "Unsupported"


async def test_events(run_controllers: RunControllers, key: Key) -> None:
    async with run_controllers(EventsController()) as client:
        await create(client, key)

        async def list_events() -> bool:
            events = await client.list(Event, key.namespace)
            return sorted((event.type, event.message) for event in events) == [
                ("Normal", "Some message."),
                ("Warning", "Some error: the text of the error."),
                ("Warning", "Some other message."),
            ]

        await eventually(list_events)


async def test_handlers(
    run_controllers: RunControllers, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def handled() -> list[str]:
        return [message for message in caplog.messages if message.isupper()]

    async with run_controllers(HandlersController()) as client:
        await create(client, key, ExampleSpec(field="old"))
        await ready(client, key)
        await client.patch(Example, key, {"spec": {"field": "new"}})
        await eventually(lambda: handled()[-2:] == ["UPDATED", "FIELD CHANGED"])
    async with run_controllers(HandlersController()) as client:
        await eventually(lambda: handled()[-1] == "RESUMED")
        await client.delete(Example, key)
        await eventually(lambda: handled()[-1] == "DELETED")
    assert handled()[:2] == ["CREATED", "FIELD CHANGED"]


async def test_subhandlers(
    run_controllers: RunControllers, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with run_controllers(SubhandlersController()) as client:
        await create(client, key, ExampleSpec(items=["item1", "item2"]))
        await ready(client, key)
    assert fields(caplog, "handling", "item") == ["item1", "item2"]


def fields(caplog: pytest.LogCaptureFixture, message: str, name: str) -> list[object]:
    """The value of a field in each log line with this message."""
    return [
        getattr(record, "fields", {}).get(name)
        for record in caplog.records
        if record.message == message
    ]


async def test_timers(
    run_controllers: RunControllers, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with run_controllers(TimersController(interval_seconds=0.1)) as client:
        await create(client, key, ExampleSpec(field="value"))
        await eventually(lambda: fields(caplog, "ping", "field") == ["value"] * 3)


async def test_admission(run_controllers: RunControllers, key: Key) -> None:
    async with run_controllers(ExampleWebhook()) as client:
        metadata = ObjectMeta(
            namespace=key.namespace, name=key.name, labels={"somelabel": "somevalue"}
        )
        with pytest.raises(Invalid, match=r"spec\.field: .*must not be wrong"):
            await client.create(Example(metadata=metadata, spec=ExampleSpec(field="wrong")))
        created = await client.create(Example(metadata=metadata, spec=ExampleSpec(field="fine")))
        assert created.spec.injected == 123
        with pytest.raises(Invalid, match=r"status\.field: .*must be equal to spec\.field"):
            await client.patch_status(Example, key, {"field": "other"})


async def test_embedded(
    run_controllers: RunControllers,
    key: Key,
    kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    async with run_controllers(MinimalController()):
        pass  # the CRD is installed
    await embedded.main(key.namespace, steps=2)
    assert capsys.readouterr().out.splitlines() == [
        "Hello, example-0!",
        "Good bye, example-0!",
        "Hello, example-1!",
        "Good bye, example-1!",
    ]


async def test_children(run_controllers: RunControllers, key: Key) -> None:
    async with run_controllers(ChildrenController()) as client:
        await create(client, key, ExampleSpec(duration=60, field="value"))
        condition = await ready(client, key, "False")
        assert condition.reason == "ChildrenNotReady"
        pod = await client.get(Pod, key)
        assert (await client.get(Example, key)).status.children == [pod.metadata.uid]
        assert pod.spec.containers[0].env[0].value == "value"


async def test_all_at_once(
    control_plane: ControlPlane, run_controllers: RunControllers, key: Key
) -> None:
    async with run_controllers(AllController()) as client:
        await create(client, key, ExampleSpec(field="value"))
        assert await eventually(lambda: client.get(Pod, key))

        async def is_done() -> bool:
            return (await client.get(Example, key)).status.field == "value"

        await eventually(is_done)
        await client.delete(Example, key)
        await eventually(lambda: is_gone(client, key))


async def is_gone(client: Client, key: Key) -> bool:
    return await client.list(Example, key.namespace) == []


async def test_indexing(run_controllers: RunControllers, key: Key) -> None:
    async with run_controllers(IndexingController()) as client:
        for name in ("running", "pending"):
            await create_pod(client, Key(key.namespace, name))
        await client.patch_status(Pod, Key(key.namespace, "running"), {"phase": "Running"})
        await create(client, key)

        async def is_listed() -> bool:
            return (await client.get(Example, key)).status.runningPods == [
                f"{key.namespace}/running"
            ]

        await eventually(is_listed)


async def test_raw_events(
    run_controllers: RunControllers, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with run_controllers(RawEventsController()) as client:
        await create(client, key)
        await eventually(lambda: "changed" in caplog.messages)
        await client.delete(Example, key)
        await eventually(lambda: "deleted" in caplog.messages)
    assert fields(caplog, "deleted", "name") == [key.name]


async def test_raw_events_write_nothing() -> None:
    rules = manager_rules([RawEventsController()])
    assert [rule["verbs"] for rule in rules if rule["resources"][0].startswith("examples")] == [
        ["list", "watch"]
    ]


async def create_pod(client: Client, key: Key) -> None:
    metadata = ObjectMeta(namespace=key.namespace, name=key.name)
    spec = PodSpec(containers=[Container(name="a", image="b")])
    await client.create(Pod(metadata=metadata, spec=spec))


async def test_pod_killer(
    run_controllers: RunControllers, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_killer, "LIFETIME_SECONDS", 2.0)
    async with run_controllers(pod_killer.PodKillerController()) as client:
        await create_pod(client, key)

        async def is_deleted() -> bool:
            return await client.list(Pod, key.namespace) == []

        await eventually(is_deleted)


async def test_daemons(
    run_controllers: RunControllers, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    controller = DaemonsController(interval_seconds=0.05)
    async with run_controllers(controller) as client:
        await create(client, key, ExampleSpec(field="value"))
        await eventually(lambda: len(fields(caplog, "ping", "field")) > 2)
        (task,) = controller.tasks.values()
        await client.delete(Example, key)
        await eventually(lambda: task.cancelled())
    assert set(fields(caplog, "ping", "field")) == {"value"}


async def test_filters(
    run_controllers: RunControllers, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    controllers = LabelController(), ChangeController(), ConditionController()
    async with run_controllers(*controllers) as client:
        labels, annotations = {"somelabel": "somevalue"}, {"someannotation": "somevalue"}
        metadata = ObjectMeta(
            namespace=key.namespace, name="full", labels=labels, annotations=annotations
        )
        await client.create(Example(metadata=metadata, spec=ExampleSpec(field="value")))
        await create(client, key)
        # The status that another controller writes reconciles the object once more.
        await eventually(lambda: set(fields(caplog, "the labels match", "name")) == {"full"})
        await eventually(lambda: fields(caplog, "the annotation matches", "name")[:1] == ["full"])
        await eventually(lambda: len(fields(caplog, "the field matches", "name")) > 1)
        await client.patch(Example, key, {"spec": {"duration": 5}})
        await client.patch(Example, key, {"spec": {"field": "changed"}})
        await eventually(lambda: "changed" in fields(caplog, "the field changed", "field"))
    assert set(fields(caplog, "the labels match", "name")) == {"full"}
    assert set(fields(caplog, "the field matches", "name")) == {"full"}
    assert len(fields(caplog, "the field changed", "field")) == 3


async def test_peering(
    run_controllers: RunControllers, key: Key, kubeconfig: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with run_controllers(MinimalController()):
        pass  # the CRD is installed
    connection = await asyncio.to_thread(load_config, str(kubeconfig))

    def new_manager() -> Manager:
        manager = Manager(
            connection,
            Options(
                metrics_bind_address="0",
                leader_election=True,
                leader_election_namespace=key.namespace,
                watch_namespaces=(key.namespace,),
            ),
        )
        manager.add(PeeringController())
        return manager

    first, second = new_manager(), new_manager()
    stop_first, stop_second = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run(stop_first))
        await eventually(first.holds_lease)
        group.create_task(second.run(stop_second))
        await create(first.client, key)
        await ready(first.client, key)
        assert not second.holds_lease()
        stop_first.set()
        await eventually(second.holds_lease)
        await second.client.patch(Example, key, {"spec": {"field": "value"}})
        await eventually(lambda: caplog.messages.count("reconciled by the leader") >= 2)
        stop_second.set()


async def test_hooks(key: Key, kubeconfig: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    connection = await asyncio.to_thread(load_config, str(kubeconfig))
    options = Options(
        metrics_bind_address="127.0.0.1:0",
        health_probe_bind_address="127.0.0.1:0",
        watch_namespaces=(key.namespace,),
    )
    manager, stop = Manager(connection, options), asyncio.Event()
    hooks.build(manager, ManagerFlags())

    def read(port: int, path: str) -> str:
        with urlopen(f"http://127.0.0.1:{port}{path}") as response:
            return str(response.read(), "utf-8")

    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        await create_pod(manager.client, key)
        await eventually(lambda: "served by the background task" in caplog.messages)
        server = manager.server
        assert server is not None
        await eventually(lambda: asyncio.to_thread(read, server.health_port, "/readyz/start"))
        metrics = await asyncio.to_thread(read, server.metrics_port, "/metrics")
        assert "example_tasks 1.0" in metrics
        stop.set()
    assert caplog.messages[-1] == "cleaned up"
