"""A controller with children, and a Deployment with the fields that make comparisons hard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from kubewright.builtin import ConfigMap
from kubewright.children import Children
from kubewright.controller import Controller
from kubewright.kind import Key, Object, ObjectMeta, Resource, kind
from kubewright.manager import Manager, Options
from kubewright.markers import ListType, Quantity
from kubewright.outcome import Done, Waiting
from kubewright.transport import ManagerTransport, Request, Transport, do_nothing

from .api_harness import FAKE_CONNECTION, ApiHarness
from .widget_kind import Widget


class Port(Struct, omit_defaults=True, kw_only=True):
    containerPort: int
    protocol: str | None = None
    name: str | None = None


class Resources(Struct, omit_defaults=True, kw_only=True):
    limits: dict[str, Quantity] = {}


class Container(Struct, omit_defaults=True, kw_only=True):
    name: str
    image: str | None = None
    ports: Annotated[list[Port], ListType("map", "containerPort", "protocol")] = []
    resources: Resources | None = None
    args: list[str] = []


class PodSpec(Struct, omit_defaults=True, kw_only=True):
    containers: Annotated[list[Container], ListType("map", "name")]
    hostname: str | None = None


class PodTemplate(Struct, omit_defaults=True, kw_only=True):
    metadata: ObjectMeta
    spec: PodSpec


class DeploymentSpec(Struct, omit_defaults=True, kw_only=True):
    selector: dict[str, dict[str, str]] = {}
    template: PodTemplate | None = None
    replicas: int | None = None


class DeploymentStatus(Struct, omit_defaults=True, kw_only=True):
    replicas: int | None = None
    observedGeneration: int | None = None


@kind("apps/v1")
class Deployment(Resource[DeploymentSpec, DeploymentStatus]):
    """A Deployment."""


def deployment(
    name: str = "web", app: str = "web", *, replicas: int | None = None, **pod: Any
) -> Deployment:
    container = Container(
        name="web",
        image="web:1",
        ports=[Port(containerPort=80), Port(containerPort=53, protocol="UDP")],
        # The API server stores 1 and 1Gi.
        resources=Resources(limits={"cpu": "1000m", "memory": "1024Mi"}),
        args=["--verbose"],
    )
    template = PodTemplate(
        metadata=ObjectMeta(labels={"app": app}), spec=PodSpec(containers=[container], **pod)
    )
    spec = DeploymentSpec(
        selector={"matchLabels": {"app": app}}, template=template, replicas=replicas
    )
    return Deployment(metadata=ObjectMeta(name=name), spec=spec)


def config_map(name: str = "config", namespace: str = "", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data or {"a": "1"})


class Parent(Controller[Widget]):
    """Applies the children that `build` returns, and counts its reconciles."""

    def __init__(
        self,
        *children: Object | None,
        kinds: Iterable[type[Object]] = (ConfigMap, Deployment),
        cross_namespace: bool = False,
        **options: Any,
    ) -> None:
        self.build: Callable[[Widget], Iterable[Object | None]] = lambda widget: children
        self.options = options
        self.results: list[Children] = []
        self.runs = 0
        self.owns(*kinds, cross_namespace=cross_namespace)

    async def reconcile(self, widget: Widget) -> Done | Waiting:
        self.runs += 1
        children = await self.apply(widget, *self.build(widget), **self.options)
        self.results.append(children)
        # Without the controllers of Kubernetes, no Deployment ever becomes available.
        terminating = any(state.readiness.state == "Terminating" for state in children.states)
        return children.outcome() if terminating else Done("Applied")


class RecordingTransport:
    """Records what a manager sends."""

    def __init__(self, inner: ManagerTransport) -> None:
        self._inner = inner
        self.requests: list[Request] = []

    async def send(self, request: Request) -> bytes:
        self.requests.append(request)
        return await self._inner.send(request)

    def stream_lines(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float,
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[bytes]:
        return self._inner.stream_lines(
            request, idle_timeout_seconds=idle_timeout_seconds, on_open=on_open
        )

    def without_lease_guard(self) -> ManagerTransport:
        return self._inner.without_lease_guard()

    async def close(self) -> None:
        await self._inner.close()

    def child_writes(self) -> list[tuple[str, str]]:
        """Method and path of every write, except to the owners and Events."""
        return [
            (request.method, request.path)
            for request in self.requests
            if request.method != "GET"
            and not any(part in request.path for part in ("/widgets/", "/events"))
        ]

    def applied(self) -> list[Any]:
        return [
            msgspec.json.decode(request.body or b"")
            for request in self.requests
            if "apply" in request.content_type
        ]


@asynccontextmanager
async def run_parent(
    api: ApiHarness, parent: Controller[Any], *, namespaces: tuple[str, ...] | None = None
) -> AsyncIterator[RecordingTransport]:
    """A manager with the controller, limited to these namespaces or to that of the test."""
    is_fake = api.connection is FAKE_CONNECTION
    transport = RecordingTransport(api.transport if is_fake else Transport(api.connection))
    options = Options(
        metrics_bind_address="0",
        watch_namespaces=(api.namespace,) if namespaces is None else namespaces,
        graceful_shutdown_seconds=5,
    )
    manager = Manager(api.connection, options, transport=transport)
    manager.add(parent)
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield transport
    finally:
        stop.set()
        await task


async def get(api: ApiHarness, kind: type[Any], name: str) -> Any:
    return await api.client.get(kind, Key(api.namespace, name))
