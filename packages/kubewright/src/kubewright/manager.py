"""The process: connections, caches, the lease, the controllers and the endpoints; started in this
order, stopped in reverse.

    runnables -> reach the API server -> endpoints, webhooks -> watches -> the lease
              -> each controller when its caches are in sync

    a signal -> no new keys, webhooks not ready -> running reconciles end -> Events are written
             -> runnables end -> the lease is released -> webhooks end -> connections are closed

A standby does everything up to the lease, so its caches are current when it gets the lease. It
serves webhooks as the leader does.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .authorization import ApiAuthorizer
from .cache import Cache, Signal
from .client import Client
from .controller import Controller
from .declaration import check_controller
from .engine import Engine
from .errors import ConfigError
from .kind import Key
from .kubeconfig import Connection
from .leader import LeaderElector
from .lease_guard import LeaseGuard
from .log import Log
from .loop_turns import LoopTurns
from .metrics import Metrics
from .recorder import EventRecorder
from .shard_guard import ANY_SHARD, set_current_shard
from .shard_keys import ShardKeys
from .shard_runner import sharded_kinds
from .sharded_run import ShardedRun
from .shards import Shards
from .source import wait_for_streams
from .transport import ManagerTransport, Transport
from .watch_set import WatchSet
from .webhook.options import WebhookOptions

if TYPE_CHECKING:
    from .server import HealthCheck, Server
    from .webhook.runner import WebhookRunner
    from .webhook.types import Conversion, Webhook

# Of the time for a graceful shutdown. The remainder is for cancelled tasks, Events, runnables
# and the lease.
_DRAIN_FRACTION = 0.7


class Runnable(Protocol):
    """Code that runs next to the controllers, such as a connection to another system."""

    async def run(self) -> None:
        """Run until cancelled, then clean up."""


def _new_process_identity() -> str:
    # The host name is that of the Pod; the UUID distinguishes two processes in one Pod.
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True)
class Options:
    """How a manager runs; `command.py` has the flags."""

    name: str = "manager"
    metrics_bind_address: str = ":8080"
    metrics_secure: bool = False
    metrics_certificate_dir: str = ""
    health_probe_bind_address: str = ""
    leader_election: bool = False
    leader_election_id: str = ""
    leader_election_namespace: str = ""
    watch_namespaces: tuple[str, ...] = ()
    watch_list: bool = False
    graceful_shutdown_seconds: float = 30.0
    webhooks: WebhookOptions = field(default_factory=WebhookOptions)
    identity: str = field(default_factory=_new_process_identity)
    shards: int = 1

    @property
    def elects_leader(self) -> bool:
        return self.leader_election or self.shards > 1


class Manager:
    """Add controllers and webhooks, then `await run()`."""

    def __init__(
        self,
        connection: Connection,
        options: Options | None = None,
        *,
        transport: ManagerTransport | None = None,
    ) -> None:
        """Tests pass a `transport` in place of a real connection."""
        self.options = options = options or Options()
        name, identity = options.name, options.identity
        self._server = connection.server
        self.log, self.metrics = Log("manager"), Metrics()
        guard = LeaseGuard(expires_at=0.0 if options.elects_leader else math.inf)
        self.shards = Shards(guard, options.shards)
        self.holds_lease = self.shards.guard.holds_lease
        """Whether a write may be sent now: while this process certainly holds the lease, or
        always without leader election."""
        self.transport: ManagerTransport = transport or Transport(
            connection,
            metrics=self.metrics,
            guard=self.shards.guard if options.elects_leader else None,
            user_agent=f"{name}/{os.getpid()} (kubewright)",
        )
        self._transport_without_lease: ManagerTransport = self.transport.without_lease_guard()
        self.cache = cache = Cache(self.log)
        self.client = Client(self.transport, field_manager=name, cache=cache)
        self.recorder = EventRecorder(
            self.client,
            self.metrics,
            self.log,
            component=name,
            instance=identity,
            may_record=self.shards.guard.holds_lease if options.shards > 1 else None,
        )
        # A standby writes too: the Lease, reviews for /metrics, and certificates of webhooks.
        self._client_without_lease = client = Client(
            self._transport_without_lease, field_manager=name
        )
        self.namespace = options.leader_election_namespace or connection.namespace
        lease = Key(self.namespace, options.leader_election_id or f"{name}-leader")
        self.leader = LeaderElector(
            client, lease, identity, guard=guard, metrics=self.metrics, log=self.log
        )
        self.authorizer = ApiAuthorizer(client)
        self.started_leading: Signal[()] = Signal("started leading")
        """Emitted when this process gets the lease, before any controller starts. Events recorded
        before that were not sent."""
        self.stopped_leading: Signal[()] = Signal("stopped leading")
        """Emitted when the lease is lost. The process has to end then, even if something hangs."""
        self.controllers: list[Controller[Any]] = []
        self.webhooks: list[Webhook[Any]] = []
        self.conversions: list[Conversion[Any, Any]] = []
        self.webhook_runner: WebhookRunner | None = None
        self.server: Server | None = None
        self._sharded: ShardedRun | None = None
        if self.shards.sharded_guard is not None:
            self._sharded = ShardedRun(
                client,
                lease,
                identity,
                self.shards.sharded_guard,
                metrics=self.metrics,
                log=self.log,
                stop_seconds=options.graceful_shutdown_seconds * _DRAIN_FRACTION,
            )
        self._runnables: list[Runnable] = []
        self._leader_runnables: list[Runnable] = []
        self._healthz_checks: dict[str, HealthCheck] = {}
        self.watches = WatchSet(
            cache,
            self.client,
            self.metrics,
            namespaces=options.watch_namespaces,
            use_watch_list=options.watch_list,
            shard_count=options.shards,
        )
        self._readyz_checks: dict[str, HealthCheck] = {"watches": self.watches.check}
        self.caches_all_shards = False
        """Whether each replica caches all objects although it reconciles only those of its shards;
        for a component that shows all objects."""

    def add(self, component: Controller[Any] | Webhook[Any] | Conversion[Any, Any]) -> None:
        """Add a controller, a webhook or a conversion."""
        if not isinstance(component, Controller):
            # Imported here: most managers have no webhook.
            from .webhook.types import Conversion, Webhook

            if isinstance(component, Webhook):
                return self.webhooks.append(component)
            if isinstance(component, Conversion):
                return self.conversions.append(component)
        check_controller(component, self.controllers)
        component.bind(
            self.client, self.cache, self.recorder, namespaces=self.options.watch_namespaces
        )
        self.controllers.append(component)

    def add_runnable(self, runnable: Runnable, *, leader_only: bool = False) -> None:
        """Run this from before the controllers start until after they have ended.

        With `leader_only` it starts with the controllers, in the process that has the lease.
        """
        (self._leader_runnables if leader_only else self._runnables).append(runnable)

    def add_healthz_check(self, name: str, check: HealthCheck) -> None:
        """Add a check to /healthz: if it fails, kubelet restarts the process.

        The check returns None, or the problem; it may be a coroutine function.
        """
        self._add_check(self._healthz_checks, name, check)

    def add_readyz_check(self, name: str, check: HealthCheck) -> None:
        """Add a check to /readyz: if it fails, the Pod gets no requests from Services."""
        self._add_check(self._readyz_checks, name, check)

    def _add_check(self, checks: dict[str, HealthCheck], name: str, check: HealthCheck) -> None:
        if name in {"ping", "webhooks", *checks}:
            raise ConfigError(f'there are two health checks with the name "{name}"')
        checks[name] = check

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Run until `stop` is set or an essential part fails. The failure is raised after an
        orderly end.
        """
        stop = stop or asyncio.Event()
        self.webhook_runner = self._build_webhook_runner()
        self.server = server = self._build_server()
        engines: list[Engine[Any]] = []
        try:
            engines = self._build_engines()
            self.cache.seal(self.watches.kinds)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(runnable.run()) for runnable in self._runnables]
                version = await self.client.server_version()
                self.log.debug("reached the API server", server=self._server, version=version)
                await server.start()
                if self.webhook_runner is not None:
                    await self.webhook_runner.start()
                tasks += [group.create_task(work) for work in self._background_work(engines)]
                await stop.wait()
                await self._drain(engines)
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as error_group:
            raise _first_cause(error_group) from error_group
        finally:
            await asyncio.gather(*(engine.stop(0) for engine in engines))
            await (self._sharded or self.leader).release()
            if self.webhook_runner is not None:
                await self.webhook_runner.stop()
            await server.stop()
            await self.transport.close()
            await self._transport_without_lease.close()

    def _background_work(self, engines: list[Engine[Any]]) -> list[Coroutine[Any, Any, None]]:
        return [
            *self.watches.runs(),
            *([self.webhook_runner.run()] if self.webhook_runner is not None else []),
            self._run_recorder(),
            self.metrics.measure_loop_lag(),
            self._run_controllers(engines),
        ]

    async def _drain(self, engines: list[Engine[Any]]) -> None:
        """End the engines first, while watches, runnables and the lease still work, so that no
        reconcile is interrupted.
        """
        seconds = self.options.graceful_shutdown_seconds
        if self._sharded is not None:
            await self._sharded.leave()
        self.log.info("stopping: waiting for running reconciles", seconds=seconds)
        webhooks = [self.webhook_runner.drain()] if self.webhook_runner is not None else []
        stopping = (engine.stop(seconds * _DRAIN_FRACTION) for engine in engines)
        await asyncio.gather(*webhooks, *stopping)
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self.recorder.flush()

    async def _run_recorder(self) -> None:
        # Its Events are about objects of all shards; `may_record` was checked for each.
        set_current_shard(ANY_SHARD)
        await self.recorder.run()

    def _build_engines(self) -> list[Engine[Any]]:
        is_sharded = self.options.shards > 1 and not self.caches_all_shards
        sharded = sharded_kinds(self.controllers) if is_sharded else {}
        for controller in self.controllers:
            for kind in controller.cached_kinds():
                self.watches.add(kind, sharded.get(kind))
        turns = LoopTurns()
        return [self._build_engine(controller, turns) for controller in self.controllers]

    def _build_engine(self, controller: Controller[Any], turns: LoopTurns) -> Engine[Any]:
        resource = controller.kind.definition.group_resource
        resources = [other.kind.definition.group_resource for other in self.controllers]
        count, store = self.options.shards, self.cache.store(controller.kind)
        return Engine(
            controller,
            cache=self.cache,
            client=self.client,
            recorder=self.recorder,
            metrics=self.metrics,
            log=Log("controller"),
            # Another controller of the kind has written to the status too.
            clears_status=resources.count(resource) == 1,
            shards=ShardKeys(store, controller.shard_by, count) if count > 1 else None,
            turns=turns,
        )

    async def _run_controllers(self, engines: list[Engine[Any]]) -> None:
        if not self.options.elects_leader:
            return await self._run_leader_work(engines)
        try:
            await (
                self._sharded.run(
                    engines,
                    self.watches,
                    self.recorder,
                    start_engine=self._start_engine,
                    run_as_leader=self._run_as_leader,
                )
                if self._sharded is not None
                else self._run_while_leading(engines)
            )
        except BaseExceptionGroup:
            self.stopped_leading.emit()
            raise

    async def _run_while_leading(self, engines: list[Engine[Any]]) -> None:
        # The watches fill the caches in the meantime.
        await self.leader.acquire()
        self.started_leading.emit()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.leader.renew_until_lost())
            group.create_task(self._run_leader_work(engines))

    async def _run_as_leader(self) -> None:
        self.started_leading.emit()
        await self._run_leader_work([])

    async def _run_leader_work(self, engines: list[Engine[Any]]) -> None:
        async with asyncio.TaskGroup() as group:
            for engine in engines:
                group.create_task(self._start_engine(engine))
            for runnable in self._leader_runnables:
                group.create_task(runnable.run())

    async def _start_engine(self, engine: Engine[Any]) -> None:
        # Only the kinds of this controller: a missing CRD must not keep the others from starting.
        await self.watches.wait_until_synced(engine.controller.cached_kinds())
        await wait_for_streams(engine.controller.sources)
        self.log.info(
            "Starting workers",
            controller=engine.controller.name,
            workers=engine.controller.max_concurrent_reconciles,
        )
        engine.start()

    def _build_server(self) -> Server:
        """The server of /metrics, /healthz and /readyz, with its readiness checks."""
        # Not at the top: only a running manager needs it.
        from .server import Server

        server = Server(
            self.metrics,
            metrics_bind_address=self.options.metrics_bind_address,
            health_probe_bind_address=self.options.health_probe_bind_address,
            secure=self.options.metrics_secure,
            certificate_dir=self.options.metrics_certificate_dir,
            authorizer=self.authorizer if self.options.metrics_secure else None,
        )
        if self.webhook_runner is not None:
            server.add_readyz_check("webhooks", self.webhook_runner.readiness_problem)
        for name, check in self._readyz_checks.items():
            server.add_readyz_check(name, check)
        for name, check in self._healthz_checks.items():
            server.add_healthz_check(name, check)
        return server

    def _build_webhook_runner(self) -> WebhookRunner | None:
        if not self.webhooks and not self.conversions:
            return None
        from .webhook.runner import WebhookRunner

        return WebhookRunner(
            self.webhooks,
            self.conversions,
            self.options.webhooks,
            name=self.options.name,
            namespace=self.namespace,
            # Every replica serves webhooks, so their writes need no lease.
            client=self._client_without_lease,
            metrics=self.metrics,
        )


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in the group, at any depth: it is what ended the other tasks."""
    first = group.exceptions[0]
    return _first_cause(first) if isinstance(first, BaseExceptionGroup) else first
