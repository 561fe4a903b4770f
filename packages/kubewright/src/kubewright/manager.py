"""The process: connections, caches, the lease, the controllers, the endpoints; started in order, stopped in reverse.

    reach the API server -> endpoints -> watches -> the lease -> each controller as soon as its caches are filled
    a signal -> not ready, no new keys -> what is in work ends -> events written -> services closed -> lease released
             -> webhooks answered no more -> connections closed

A standby does all of the first line but the last step, so its caches are warm when the lease comes. It answers webhooks as the leader does.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from .authorization import ApiAuthorizer
from .cache import Cache
from .client import Client
from .controller import Controller
from .engine import Engine
from .errors import ConfigError
from .kind import Object, Resource
from .kubeconfig import Connection
from .leader import LeaderElector
from .log import Log
from .meta import Key
from .metrics import Metrics
from .recorder import EventRecorder
from .reflector import Reflector
from .server import Server
from .source import KindSource, OwnedKindSource
from .status import StatusWriter
from .transport import ManagerTransport, Request, Transport
from .webhook.options import WebhookOptions
from .webhook.runner import WebhookRunner
from .webhook.types import Conversion, Webhook

# A bookmark shows life once a minute and a dead watch is noticed after 70 s; beyond this, something is really wrong.
_MAX_WATCH_AGE_SECONDS = 100.0
_LOOP_LAG_INTERVAL_SECONDS = 5.0
# The rest is for what is cancelled to end, for events, services and the lease.
_DRAIN_FRACTION = 0.7


class Runnable(Protocol):
    """Something that lives beside the controllers, such as a connection to another system."""

    async def run(self) -> None:
        """Live until cancelled, then clean up."""
        ...


def _new_process_identity() -> str:
    """A name that no other process has, and that a person can trace to its Pod."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True)
class Options:
    """How a manager runs; `command.py` has the flags for it."""

    name: str = "manager"
    metrics_bind_address: str = ":8080"
    metrics_secure: bool = False
    metrics_certificate_dir: str = ""
    health_probe_bind_address: str = ""
    leader_election: bool = False
    leader_election_id: str = ""
    leader_election_namespace: str = ""
    watch_namespaces: tuple[str, ...] = ()
    graceful_shutdown_seconds: float = 30.0
    webhooks: WebhookOptions = field(default_factory=WebhookOptions)
    identity: str = field(default_factory=_new_process_identity)


class Manager:
    """Add controllers and webhooks, then `await run()`."""

    def __init__(
        self,
        connection: Connection,
        options: Options | None = None,
        *,
        transport: ManagerTransport | None = None,
    ) -> None:
        """`transport` takes the place of a real connection in tests."""
        self.options = options or Options()
        self._server_address = connection.server
        self.log = Log("manager")
        self.metrics = Metrics()
        agent = f"{self.options.name}/{os.getpid()} (kubewright)"
        may_write = self.can_write if self.options.leader_election else None
        self.transport: ManagerTransport = transport or Transport(
            connection, metrics=self.metrics, can_write=may_write, user_agent=agent
        )
        self._unguarded_transport: ManagerTransport = self.transport.unguarded()
        self.cache = Cache(self.log)
        self.client = Client(
            self.transport, field_manager=self.options.name, on_write=self.cache.apply_own_write
        )
        self.recorder = EventRecorder(
            self.client,
            self.metrics,
            self.log,
            component=self.options.name,
            instance=self.options.identity,
        )
        self.namespace = self.options.leader_election_namespace or connection.namespace
        lease = Key(
            self.namespace, self.options.leader_election_id or f"{self.options.name}-leader"
        )
        self._unguarded_client = Client(self._unguarded_transport, field_manager=self.options.name)
        self.leader = LeaderElector(
            self._unguarded_client, lease, self.options.identity, metrics=self.metrics, log=self.log
        )
        self.authorizer = ApiAuthorizer(self._unguarded_client)
        self.on_started_leading: list[Callable[[], object]] = []
        """Called when the lease has become ours, before any controller starts: what was said before that has reached nobody."""
        self.on_stopped_leading: Callable[[], object] = lambda: None
        """Called when the lease is lost: from then on the process has to end, whatever still hangs."""
        self.controllers: list[Controller[Any]] = []
        self.webhooks: list[Webhook[Any]] = []
        self.conversions: list[Conversion[Any, Any]] = []
        self.webhook_runner: WebhookRunner | None = None
        """The webhooks while they are served."""
        self._runnables: list[Runnable] = []
        self._reflectors: dict[type[Object], list[Reflector[Any]]] = {}

    def can_write(self) -> bool:
        """Whether a write may leave at this moment: while the lease is certainly ours, or always where nobody else can have it."""
        return not self.options.leader_election or self.leader.is_leader_now()

    def add(self, part: Controller[Any] | Webhook[Any] | Conversion[Any, Any]) -> None:
        """Run this; one controller a kind, since two writers of one status would fight."""
        match part:
            case Webhook():
                self.webhooks.append(part)
            case Conversion():
                self.conversions.append(part)
            case _:
                if any(other.kind is part.kind for other in self.controllers):
                    raise ConfigError(
                        f"there are two controllers for {part.kind.__name__}; one kind has one"
                    )
                self.controllers.append(part)

    def add_runnable(self, service: Runnable) -> None:
        """Run this beside the controllers, from before their start until after their end."""
        self._runnables.append(service)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Run until `stop` is set or something essential fails; what fails here is raised after an orderly end."""
        stop = stop or asyncio.Event()
        self.webhook_runner = self._build_webhook_runner()
        server = self.build_server()
        engines: list[Engine[Any]] = []
        try:
            version = await self.transport.send(
                Request("GET", "/version", operation="reach the API server", timeout_seconds=10)
            )
            self.log.debug(
                "reached the API server",
                server=self._server_address,
                version=parse_server_version(version),
            )
            engines = [self._build_engine(controller) for controller in self.controllers]
            await server.start()
            if self.webhook_runner is not None:
                await self.webhook_runner.start()
            async with asyncio.TaskGroup() as group:
                lives = [group.create_task(work) for work in self._build_background_work(engines)]
                await stop.wait()
                await self.drain(engines)
                for task in lives:
                    task.cancel()
        except BaseExceptionGroup as failed:
            raise _first_cause(failed) from failed
        finally:
            await asyncio.gather(*(engine.stop(0) for engine in engines))
            await self.leader.release()
            if self.webhook_runner is not None:
                await self.webhook_runner.stop()
            await server.stop()
            await self.transport.close()
            await self._unguarded_transport.close()

    def _build_background_work(self, engines: list[Engine[Any]]) -> list[Coroutine[Any, Any, None]]:
        """Everything that runs until the end."""
        watches = [
            reflector.run() for reflectors in self._reflectors.values() for reflector in reflectors
        ]
        others = [service.run() for service in self._runnables]
        if self.webhook_runner is not None:
            others.append(self.webhook_runner.run())
        return [
            *watches,
            *others,
            self.recorder.run(),
            self._measure_loop_lag(),
            self._run_controllers(engines),
        ]

    async def drain(self, engines: list[Engine[Any]]) -> None:
        """No key half done: engines end first, while watches, services and the lease still live."""
        self.log.info(
            "stopping: finishing what is in work", seconds=self.options.graceful_shutdown_seconds
        )
        drain = [self.webhook_runner.drain()] if self.webhook_runner is not None else []
        await asyncio.gather(
            *drain,
            *(
                engine.stop(self.options.graceful_shutdown_seconds * _DRAIN_FRACTION)
                for engine in engines
            ),
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self.recorder.flush()

    def _build_engine(self, controller: Controller[Any]) -> Engine[Any]:
        """The engine of a controller, and a watch for every kind that it depends on."""
        statuses = StatusWriter(self.client, self.recorder)
        engine: Engine[Any] = Engine(
            controller,
            cache=self.cache,
            client=self.client,
            status_writer=statuses,
            metrics=self.metrics,
            log=Log("controller"),
        )
        for kind in _watched_kinds(controller):
            if kind not in self._reflectors:
                self._reflectors[kind] = self._build_reflectors(kind)
        return engine

    def _build_reflectors(self, kind: type[Object]) -> list[Reflector[Any]]:
        """One watch of the kind for the whole cluster, or one a namespace where the manager is confined to some."""
        namespaces = self.options.watch_namespaces if kind.definition.namespaced else ()
        store = self.cache.store(kind)
        log = Log("cache")
        made = [
            Reflector(kind, store, self.client, self.metrics, log, namespace=name)
            for name in namespaces or ("",)
        ]
        resource = kind.definition.group_resource
        self.metrics.register_watch(
            resource,
            age=lambda: max(r.age_seconds for r in made),
            objects=lambda: len(store.objects),
        )
        return made

    async def _run_controllers(self, engines: list[Engine[Any]]) -> None:
        """Wait for the lease (the caches fill meanwhile), start the controllers, and keep the lease."""
        if not self.options.leader_election:
            await asyncio.gather(*(self._start_engine(engine) for engine in engines))
            return
        await self.leader.acquire()
        for listener in self.on_started_leading:
            listener()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.leader.renew_until_lost())
                for engine in engines:
                    group.create_task(self._start_engine(engine))
        except BaseExceptionGroup:
            self.on_stopped_leading()
            raise

    async def _start_engine(self, engine: Engine[Any]) -> None:
        """Start an engine when every cache that its reconcile reads is filled; a kind that is missing keeps only its own waiting."""
        for kind in _watched_kinds(engine.controller):
            for reflector in self._reflectors[kind]:
                await reflector.synced.wait()
        self.log.info(
            "Starting workers",
            controller=engine.controller.name,
            workers=engine.controller.concurrency,
        )
        engine.start()

    async def _measure_loop_lag(self) -> None:
        """How late the event loop is: a blocking call anywhere shows here."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LOOP_LAG_INTERVAL_SECONDS
            await asyncio.sleep(_LOOP_LAG_INTERVAL_SECONDS)
            self.metrics.observe_loop_lag(loop.time() - due)

    def build_server(self) -> Server:
        """The endpoints, with a readiness check a watched kind."""
        reviewer = self.authorizer if self.options.metrics_secure else None
        server = Server(
            self.metrics,
            metrics_bind_address=self.options.metrics_bind_address,
            health_probe_bind_address=self.options.health_probe_bind_address,
            secure=self.options.metrics_secure,
            certificate_dir=self.options.metrics_certificate_dir,
            authorizer=reviewer,
        )
        server.add_readyz_check("watches", self._check_watches)
        if self.webhook_runner is not None:
            server.add_readyz_check("webhooks", self.webhook_runner.readiness_problem)
        return server

    def _build_webhook_runner(self) -> WebhookRunner | None:
        """What answers the API server, where there is anything to answer. Its writes need no lease: every replica serves."""
        if not self.webhooks and not self.conversions:
            return None
        return WebhookRunner(
            self.webhooks,
            self.conversions,
            self.options.webhooks,
            name=self.options.name,
            namespace=self.namespace,
            client=self._unguarded_client,
            metrics=self.metrics,
        )

    def _check_watches(self) -> str | None:
        """What is wrong with the watches, all of it; None if nothing is."""
        every = (reflector for reflectors in self._reflectors.values() for reflector in reflectors)
        return (
            "; ".join(
                f"{reflector.name}: {words}"
                for reflector in every
                if (words := _describe_watch_problem(reflector))
            )
            or None
        )


def _describe_watch_problem(reflector: Reflector[Any]) -> str:
    """What is wrong with one watch, "" if nothing is."""
    if reflector.problem:
        return reflector.problem
    if not reflector.synced.is_set():
        return "not listed yet"
    age = reflector.age_seconds
    return f"nothing heard for {age:.0f} s" if age > _MAX_WATCH_AGE_SECONDS else ""


def _watched_kinds(controller: Controller[Any]) -> list[type[Object]]:
    """The kinds that a controller reads from the cache: its own and those that wake it."""
    own: type[Resource[Any, Any]] = controller.kind
    return [
        own,
        *(
            wake.kind
            for wake in controller.sources
            if isinstance(wake, KindSource | OwnedKindSource)
        ),
    ]


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error inside, however deep: it is what ended the rest."""
    first = group.exceptions[0]
    return _first_cause(first) if isinstance(first, BaseExceptionGroup) else first


def parse_server_version(body: bytes) -> str:
    """The version that an API server tells of itself; whoever answers otherwise is none."""
    try:
        return str(msgspec.json.decode(body, type=dict[str, Any])["gitVersion"])
    except (msgspec.DecodeError, KeyError):
        raise ConfigError(
            "what answers at this address is no Kubernetes API server: check the server in the kubeconfig"
        ) from None
