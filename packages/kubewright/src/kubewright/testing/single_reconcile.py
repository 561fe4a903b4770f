"""One reconcile without a server: objects and a clock in; the object, writes, Events and the delay
until the next reconcile out.

    result = await reconcile(SiteController(), site, secret)
    assert result.object.status.readyReplicas == 0
    assert [str(write) for write in result.writes] == [
        "apply deployments default/docs",
        "patch sites default/docs/status",
    ]
    assert (await result.again()).writes == []

`FakeApi` replaces the API server, so objects are validated and completed as by their CRD. The
controller has the permissions that it declares: any other request fails with Forbidden, as it
would with the generated role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from ..builtin import Event
from ..cache import Cache
from ..client import Client
from ..condition import READY_CONDITION, Condition, find_condition, utc_now
from ..consequence import Consequence
from ..controller import Controller
from ..declaration import check_controller
from ..engine import Engine
from ..errors import Forbidden
from ..kind import Key, Object
from ..log import Log
from ..metrics import Metrics
from ..patch import Json
from ..rbac import PolicyRule, manager_rules
from ..recorder import EventRecorder
from ..reflector import Reflector
from ..selection import declared_kind
from ..transport import Request
from .fake import FakeApi
from .fake.object_writer import APPLY_PATCH
from .fake.resource_path import ResourcePath, parse_path

T = TypeVar("T", bound=Object)
_OtherT = TypeVar("_OtherT", bound=Object)

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Write:
    """A request that changes something: `apply deployments default/docs`."""

    verb: str
    """create, update, patch, apply, delete or deletecollection."""
    resource: str
    """The plural of the kind, as in `kubectl get`."""
    key: Key
    subresource: str
    body: Any
    """The manifest, the patch, or the options of a deletion; None if there is no body."""

    def __str__(self) -> str:
        subresource = f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {self.resource} {self.key}{subresource}"


@dataclass(frozen=True)
class RecordedEvent:
    """An Event about the object or another one."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class ReconcileResult(Generic[T]):
    """What one reconcile led to."""

    object: T
    """The object as it is stored afterwards; as it was passed if it no longer exists."""
    exists: bool
    """Whether the object still exists: without its last finalizer, a deleted object is gone."""
    writes: list[Write]
    """The requests that changed something, in order, without Events."""
    events: list[RecordedEvent]
    requeue_after_seconds: float | None
    """When the object is reconciled again without a change; None if only a change triggers it."""
    retried_with_backoff: bool
    error: BaseException | None
    """What the reconcile raised."""
    client: Client
    """Reads and writes the state as an administrator: to change it before `again`."""
    _run: Callable[[], Any] = field(repr=False)

    @property
    def ready(self) -> Condition | None:
        """The condition Ready of the stored object."""
        conditions = getattr(getattr(self.object, "status", None), "conditions", ())
        return find_condition(conditions, READY_CONDITION)

    async def again(self) -> ReconcileResult[T]:
        """Reconcile the object once more, in the state as it is now."""
        result: ReconcileResult[T] = await self._run()
        return result


async def reconcile(
    controller: Controller[T],
    obj: T,
    *others: Object,
    clock: Callable[[], datetime] = utc_now,
) -> ReconcileResult[T]:
    """Reconcile `obj` once, in a cluster that has only it and `others`.

    Objects are stored as they are given, with their status. What the API server would set, such as
    uid and generation, is set if it is missing; a missing namespace becomes `default`.
    """
    obj = _with_namespace(obj)
    api = FakeApi(kinds=_own_kinds(controller, obj, *others), clock=clock)
    api.add(obj, *map(_with_namespace, others))
    controller.clock = clock
    run = _SingleReconcile(controller, obj, api)
    return await run()


def _with_namespace(obj: _OtherT) -> _OtherT:
    if not obj.definition.namespaced or obj.metadata.namespace:
        return obj
    return replace(obj, metadata=replace(obj.metadata, namespace="default"))


def _own_kinds(controller: Controller[Any], *objects: Object) -> list[type[Object]]:
    """The kinds with a CRD of this project; FakeApi knows those of Kubernetes."""
    kinds = [*controller.cached_kinds(), *controller.versions, *map(type, objects)]
    declared = dict.fromkeys(map(declared_kind, kinds))
    return [kind for kind in declared if not kind.definition.external]


class _SingleReconcile(Generic[T]):
    """A controller with its engine and its cache, but without workers and watches."""

    def __init__(self, controller: Controller[T], obj: T, api: FakeApi) -> None:
        self._controller, self._obj, self._api = controller, obj, api
        self._log, self._metrics = Log("test"), Metrics()
        self._rules = manager_rules([controller])
        self._is_role_checked = False
        api.faults.append(self._deny)
        cache = Cache(self._log)
        client = Client(api, field_manager=controller.name, cache=cache)
        self._recorder = EventRecorder(
            client, self._metrics, self._log, component=controller.name, instance="test"
        )
        check_controller(controller, [])
        controller.bind(client, cache, self._recorder)
        self._engine = Engine(
            controller,
            cache=cache,
            client=client,
            recorder=self._recorder,
            metrics=self._metrics,
            log=self._log,
        )
        self._reflectors: list[Reflector[Any]] = [
            Reflector(kind, cache.store(kind), client, self._metrics, self._log)
            for kind in dict.fromkeys(controller.cached_kinds())
        ]
        cache.seal([reflector.kind for reflector in self._reflectors])

    async def __call__(self) -> ReconcileResult[T]:
        # A new list each time: there is no watch that would bring the changes of others.
        for reflector in self._reflectors:
            await reflector.list_all()
        first = len(self._api.requests)
        self._is_role_checked = True
        consequence = await self._engine.reconcile(self._obj.key) or Consequence("success", None)
        self._is_role_checked = False
        requests = self._api.requests[first:]
        stored = self._api.objects.get(self._path_of(self._obj))
        decode = self._obj.definition.decoder.decode
        return ReconcileResult(
            object=self._obj if stored is None else decode(msgspec.json.encode(stored)),
            exists=stored is not None,
            writes=[write for request in requests if (write := _parse_write(request)) is not None],
            events=list(self._take_events()),
            requeue_after_seconds=consequence.requeue_after_seconds,
            retried_with_backoff=consequence.rate_limited,
            error=consequence.error,
            client=Client(self._api),
            _run=self,
        )

    def _path_of(self, obj: Object) -> str:
        return obj.definition.path(obj.metadata.namespace, obj.metadata.name)

    def _take_events(self) -> Iterable[RecordedEvent]:
        queue = self._recorder.queue
        while not queue.empty():
            event: Event = queue.get_nowait()
            yield RecordedEvent(event.type, event.reason, event.message)

    def _deny(self, request: Request) -> Forbidden | None:
        path = parse_path(request.path) if self._is_role_checked else None
        if path is None:
            return None
        verb = _read_verb(request, path)
        if any(_is_permitted(rule, verb, path) for rule in self._rules):
            return None
        resource = f"{path.plural}.{path.group}".rstrip(".")
        subresource = f', subresource="{path.subresource}"' if path.subresource else ""
        return Forbidden(
            f'{request.operation}: {resource} "{path.name}" is forbidden: the controller '
            f'{self._controller.name} does not declare the verb "{verb}"; add '
            f'self.needs(<kind>, "{verb}"{subresource}) to __init__'
        )


def _read_verb(request: Request, path: ResourcePath) -> str:
    if request.method == "GET":
        return "get" if path.name else "list"
    verb = _VERBS[request.method]
    return "deletecollection" if verb == "delete" and not path.name else verb


def _is_permitted(rule: PolicyRule, verb: str, path: ResourcePath) -> bool:
    resource = f"{path.plural}/{path.subresource}" if path.subresource else path.plural
    names = rule.get("resourceNames")
    return (
        path.group in rule["apiGroups"]
        and resource in rule["resources"]
        and verb in rule["verbs"]
        and (not names or path.name in names)
    )


def _parse_write(request: Request) -> Write | None:
    path = parse_path(request.path)
    if request.method == "GET" or path is None or "dryRun=All" in request.query:
        return None
    body: Json | None = msgspec.json.decode(request.body) if request.body else None
    verb = "apply" if request.content_type == APPLY_PATCH else _read_verb(request, path)
    name = path.name
    if not name and isinstance(body, dict):
        metadata = body.get("metadata") or {}
        name = metadata.get("name") or metadata.get("generateName", "")
    return Write(verb, path.plural, Key(path.namespace, name), path.subresource, body)
