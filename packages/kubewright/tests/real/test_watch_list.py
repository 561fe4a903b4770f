"""WatchList on the real API server: the same objects as in pages, or pages where it is disabled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubewright.builtin import ConfigMap
from kubewright.cache import Store
from kubewright.client import Client
from kubewright.controller import controller
from kubewright.kind import Key, Object, ObjectMeta
from kubewright.kubeconfig import load_config
from kubewright.log import Log
from kubewright.manager import Options
from kubewright.metrics import Metrics
from kubewright.reflector import Reflector
from kubewright.selection import select
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.transport import Transport

from ..support.api_harness import ApiHarness, run_manager
from ..support.widget_kind import Widget, double


@asynccontextmanager
async def run_reflector(
    client: Client, kind: type[Object], namespace: str, **options: Any
) -> AsyncIterator[Reflector[Any]]:
    store: Store[Any] = Store(kind.definition, Log("test"))
    reflector: Reflector[Any] = Reflector(
        kind, store, client, Metrics(), Log("test"), namespace=namespace, **options
    )
    task = asyncio.create_task(reflector.run())
    try:
        await reflector.synced.wait()
        yield reflector
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_streamed_objects_are_those_of_the_pages(real_api: ApiHarness) -> None:
    client, namespace = real_api.client, real_api.namespace
    for number in range(30):
        labels = {"color": "red"} if number % 3 else {}
        metadata = ObjectMeta(name=f"w{number}", namespace=namespace, labels=labels)
        await client.create(Widget(metadata=metadata))
    red = select(Widget, label_selector="color=red")
    red_metadata = select(Widget, label_selector="color=red", metadata_only=True)
    for kind, count in ((Widget, 30), (red, 20), (red_metadata, 20)):
        async with (
            run_reflector(client, kind, namespace, use_watch_list=True) as stream,
            run_reflector(client, kind, namespace) as pages,
        ):
            assert len(stream.store.objects) == count
            assert stream.store.objects == pages.store.objects
            await client.delete(Widget, Key(namespace, "w1"))
            await client.create(Widget(metadata=metadata_of(namespace, "w1", {"color": "red"})))
            await eventually(partial(are_equal, stream, pages))


def are_equal(one: Reflector[Any], other: Reflector[Any]) -> bool:
    return (one.resource_version, one.store.objects) == (
        other.resource_version,
        other.store.objects,
    )


def metadata_of(namespace: str, name: str, labels: dict[str, str]) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace, labels=labels)


async def test_manager_with_the_option_reconciles(real_api: ApiHarness) -> None:
    await real_api.create_widget("a", size=3)
    options = Options(
        metrics_bind_address="0",
        watch_namespaces=(real_api.namespace,),
        watch_list=True,
        graceful_shutdown_seconds=5,
    )
    async with run_manager(real_api, controller(Widget, double), options=options):
        await real_api.wait_for_ready("a")
        await real_api.create_widget("b", size=4)
        await real_api.wait_for_ready("b")


async def test_server_without_the_feature_is_listed_in_pages(
    control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    gates = ["--feature-gates=WatchList=false"]
    async with ControlPlane(control_plane.binaries, extra_args=gates) as plane:
        connection = await asyncio.to_thread(
            load_config, str(plane.admin_kubeconfig), environ={}, home=Path("/")
        )
        transport = Transport(connection)
        client = Client(transport)
        await client.create(ConfigMap(metadata=metadata_of("default", "a", {})))
        async with run_reflector(client, ConfigMap, "default", use_watch_list=True) as reflector:
            assert Key("default", "a") in reflector.store.objects
            assert "the server does not stream lists, using pages" in caplog.text
            await client.create(ConfigMap(metadata=metadata_of("default", "b", {})))
            await eventually(lambda: Key("default", "b") in reflector.store.objects)
        await transport.close()
