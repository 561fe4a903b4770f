"""What the author of an operator writes: a class (or a function) with `reconcile(obj)`, and what
triggers it. `engine.py` runs it.

    class GreetingController(Controller[Greeting]):
        async def reconcile(self, greeting: Greeting) -> None:
            greeting.status = GreetingStatus(text=f"Hello, {greeting.spec.name}")

A reconcile reads state from memory, acts, and sets `obj.status`. It ends in one of these ways:

    return None or Done(...)   the object is as desired: Ready is True
    return Waiting(...)        work is in progress: Ready is False, without a warning Event
    raise NotSynced(...)       the data it needs is still loading: the status stays as it is
    raise Retry(...)           a temporary fault: Ready is False, run again after a delay
    raise Terminal(...)        a retry is useless until the object or its input changes
    raise anything else        Ready is False, run again with back-off

Only the engine writes the status: once, only if it changed, also after a failure, with conditions
and observedGeneration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, TypedDict, TypeVar, Unpack, get_args

from .cache import Cache
from .child_applier import ApplyOptions, ChildApplier
from .children import Children
from .client import Client
from .condition import READY_CONDITION, utc_now
from .consequence import is_valid_delay
from .errors import ConfigError
from .index import IndexFunction
from .kind import Key, Object
from .log import Log
from .outcome import Done, Waiting
from .own_writes import OwnWrites
from .permission import HasPermissions
from .predicate import Predicate, any_change
from .recorder import EventRecorder, EventType
from .source import (
    ChildId,
    IndexedKindSource,
    MapFunction,
    MappedKindSource,
    OwnedKindSource,
    ReferenceFunction,
    Stream,
    StreamSource,
    object_name,
)
from .threads import call_directly, run_async
from .workqueue import Backoff, RateLimit

T = TypeVar("T", bound=Object)
ChildT = TypeVar("ChildT", bound=Object)
ReadT = TypeVar("ReadT", bound=Object)
R = TypeVar("R")
Outcome = Done | Waiting | None

FINALIZER_PREFIX = "kubewright.dev/"
"""The finalizer of a controller that owns kinds across namespaces has its name behind this."""


class Controller(HasPermissions, Generic[T]):
    """Subclass it with your kind and write `reconcile`. Declare in `__init__` what else
    triggers it.
    """

    # pytest would collect the controller of a kind named TestRun as a class of tests.
    __test__: ClassVar[bool] = False
    name: str = ""
    """The name in logs, metrics and field managers, unique in the manager; by default the kind in
    lower case, as in controller-runtime."""
    kind: ClassVar[type[Object]]
    versions: ClassVar[tuple[type[Object], ...]] = ()
    """Other versions of the kind that the CRD serves."""
    max_concurrent_reconciles: ClassVar[int] = 64
    """How many objects are reconciled at the same time; one object never twice. Choose fewer
    if the system that `reconcile` calls cannot take as many."""
    timeout_seconds: ClassVar[float] = 120.0
    resync_seconds: ClassVar[float] = 10 * 3600.0
    """How often every object is reconciled although nothing changed; 0 for never."""
    finalizer: str = ""
    """With a finalizer, `finalize` runs before the API server removes the object."""
    writes_status: bool | None = None
    """Whether the engine writes the status of the object; by default only for the kinds that this
    project declares, because others have their own writer."""
    ready_condition: str | None = None
    """The type of the condition for the outcome of the reconcile; "" for none. By default it is
    Ready for the kinds that this project declares. If a kind has several controllers, each needs
    another one. Without a condition, failures are in Events and in the log."""
    predicate: ClassVar[Predicate] = staticmethod(any_change)
    """Which changes of an object lead to a reconcile of it."""

    backoff: ClassVar[Backoff] = Backoff()
    """The delay before a retry after a failure."""
    rate_limit: ClassVar[RateLimit | None] = None
    """Limits the retries of all objects together; None for no limit."""
    debounce_seconds: ClassVar[float] = 0.0
    """How long a change waits for more changes of the same object. Then one reconcile handles all
    of them."""

    sources: list[IndexedKindSource | MappedKindSource | OwnedKindSource | StreamSource]
    read_kinds: list[type[Object]]
    _indexes: list[tuple[type[Object], str, IndexFunction]]
    child_kinds: list[type[Object]]
    cross_namespace_kinds: list[type[Object]]
    _child_writes: OwnWrites[ChildId]
    call_in_loop: Callable[..., None] = staticmethod(call_directly)
    """Calls a function in the event loop, from any thread."""
    period_of: Callable[[T], float | None] | None = None
    enqueue_after: Callable[[Key, float], None] | None = None
    clock: Callable[[], datetime] = staticmethod(utc_now)
    """The current time in UTC, in whole seconds. `testing.reconcile` replaces it."""
    # The manager sets these in `add`.
    client: Client
    cache: Cache
    recorder: EventRecorder
    child_applier: ChildApplier
    log: Log

    def __init_subclass__(cls) -> None:
        if "kind" in cls.__dict__:
            # A selection of the kind, which a type checker does not accept in brackets.
            return
        for base in getattr(cls, "__orig_bases__", ()):
            match get_args(base):
                case (type() as kind,) if issubclass(kind, Object):
                    cls.kind = kind

    def __new__(cls, *args: Any, **kwargs: Any) -> Controller[T]:
        # The lists are created here so that a subclass's __init__ need not call ours.
        self = super().__new__(cls)
        if not hasattr(cls, "kind"):
            raise ConfigError(
                f"{cls.__name__} has no kind: write class {cls.__name__}(Controller[YourKind])"
            )
        if not hasattr(cls.kind, "definition"):
            name = cls.kind.__name__
            raise ConfigError(f'{name} is not a kind: write @kind("group/version") above its class')
        definition = cls.kind.definition
        self.name = cls.name or definition.name.lower()
        if cls.writes_status is None:
            has_status = "status" in cls.kind.__struct_fields__ and not definition.metadata_only
            self.writes_status = has_status and not definition.external
        if cls.ready_condition is None:
            self.ready_condition = "" if definition.external else READY_CONDITION
        self.sources, self.read_kinds, self.permissions = [], [], []
        self._indexes = []
        self.child_kinds, self.cross_namespace_kinds = [], []
        self._child_writes = OwnWrites()
        self.log = Log(cls.__name__)
        return self

    def reconcile(self, obj: T) -> Awaitable[Outcome] | Outcome:
        """Make the actual state match the spec, and set the status.

        Write it as `async def`. A plain `def` may block, and runs in a thread; see `threads`.
        """
        raise NotImplementedError

    def finalize(self, obj: T) -> Awaitable[Waiting | None] | Waiting | None:
        """Clean up before the object is removed. It may run more than once.

        The finalizer is removed when this returns None. `Waiting` keeps it while cleanup goes on.
        """
        return None

    def reconcile_deleted(self, key: Key) -> Awaitable[Outcome] | Outcome:
        """Clean up after an object that is gone. It may run more than once, and for a name that
        never existed.

        It is not called for objects that were deleted while no manager was running. What must not
        be missed needs a finalizer.
        """
        return None

    def overrides(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(Controller, method)

    def get_predicate(self) -> Predicate:
        """The predicate as a function; as an attribute of a class it would be bound to self."""
        predicate: Predicate = vars(self).get("predicate", type(self).predicate)
        return predicate

    def watches(
        self,
        what: type[Object] | Stream,
        *,
        index_by: ReferenceFunction | None = None,
        lookup_by: ReferenceFunction = object_name,
        map_func: MapFunction | None = None,
        predicate: Predicate = any_change,
        any_namespace: bool = False,
    ) -> None:
        """Reconcile the objects that depend on something else when that changes.

        `index_by` returns the values by which our object refers to the other one: names of objects
        in its namespace, or in all namespaces with `any_namespace`; a Key names one in another
        namespace. `lookup_by` returns the values by which the other object is referred to; by
        default its name.

        `map_func` replaces them: it returns the keys of our objects that depend on the other one.
        """
        if (index_by is None) == (map_func is None):
            raise ConfigError(f"watches({_name_of(what)}) takes either index_by or map_func")
        if isinstance(what, Stream):
            if index_by is None:
                raise ConfigError(
                    "A Stream emits names, not objects: use index_by instead of map_func."
                )
            self.sources.append(StreamSource(what, index_by))
        elif index_by is not None:
            self.sources.append(
                IndexedKindSource(what, index_by, lookup_by, predicate, any_namespace)
            )
        elif map_func is not None:
            self.sources.append(MappedKindSource(what, map_func, predicate))

    def owns(
        self,
        *kinds: type[Object],
        any_owner: bool = False,
        cross_namespace: bool = False,
        predicate: Predicate = any_change,
    ) -> None:
        """Declare the kinds of the children that `apply` manages. A changed child triggers a
        reconcile of its controller owner, or with `any_owner` of all owners.

        `cross_namespace` permits children that cannot have an owner reference: cluster-scoped ones,
        and ones in another namespace than the owner. The controller then has a finalizer, and
        deletes these children before the owner goes.
        """
        self.child_kinds += kinds
        if cross_namespace:
            self.cross_namespace_kinds += kinds
            self.finalizer = self.finalizer or f"{FINALIZER_PREFIX}{self.name}"
        self.sources += (
            OwnedKindSource(kind, self.name, any_owner, predicate, self._child_writes)
            for kind in kinds
        )

    async def apply(
        self,
        owner: T,
        *children: Object | None,
        prune: bool = True,
        force: bool = True,
        adopt: bool = False,
        recreate: Sequence[Object] = (),
    ) -> Children:
        """Create, update and prune the children of `owner` by server-side apply.

        None stands for an optional child that is not wanted. Nothing is sent for a child that is as
        desired. With `prune`, children of an earlier reconcile that are not passed are deleted.
        With `force`, fields that another manager owns are taken over, with an Event; without it,
        the conflict is raised. `adopt` takes over objects that exist and have no controller. A
        child in `recreate` is deleted and created again if a field that cannot be changed has to
        change.
        """
        wanted = [child for child in children if child is not None]
        options = ApplyOptions(prune, force, adopt, recreate)
        return await self.child_applier.apply(owner, wanted, options)

    def children_of(self, owner: T, kind: type[ChildT]) -> list[ChildT]:
        """The children that `apply` has created, of a kind that `owns` declares; from the cache."""
        return self.child_applier.children_of(owner, kind)

    def bind(
        self,
        client: Client,
        cache: Cache,
        recorder: EventRecorder,
        *,
        namespaces: Sequence[str] = (),
    ) -> None:
        """Connect the controller to a manager that watches these namespaces, or to a test."""
        self.client, self.cache, self.recorder = client, cache, recorder
        for kind, name, function in self._indexes:
            cache.store(kind).add_index(name, function)
        self.child_applier = ChildApplier(
            self.name,
            self.kind,
            self.child_kinds,
            self.cross_namespace_kinds,
            client=client,
            namespaces=namespaces,
            own_writes=self._child_writes,
            enqueue=self.enqueue,
            cache=cache,
            recorder=recorder,
            log=self.log,
        )

    def reconcile_every(self, seconds: float | Callable[[T], float | None]) -> None:
        """Reconcile each object at least that often. A function returns the seconds for an object;
        None for no periodic reconcile of it.
        """
        if not callable(seconds) and not (is_valid_delay(seconds) and seconds > 0):
            raise ConfigError(f"reconcile_every({seconds!r}) needs a positive number of seconds")
        self.period_of = seconds if callable(seconds) else lambda _: seconds

    def reads(self, *kinds: type[Object]) -> None:
        """Declare that the reconcile reads these kinds from the cache; changes do not trigger it.

        The manager keeps them in the cache, waits for their first lists before it starts the
        controller, and the generated role may list and watch them.
        """
        self.read_kinds += kinds

    def indexes(
        self, kind: type[ReadT], **functions: Callable[[ReadT], str | Iterable[str] | None]
    ) -> None:
        """Declare that the reconcile reads this kind from the cache by values of its objects:

        self.indexes(Pod, node=lambda pod: pod.spec.nodeName)
        pods = self.cache.by_index(Pod, "node", "node-1")
        """
        self.reads(kind)
        self._indexes += ((kind, name, function) for name, function in functions.items())

    def enqueue(self, key: Key, *, after_seconds: float = 0.0) -> None:
        """Reconcile the object, also from outside a reconcile. Without effect before the controller
        starts, because that reconciles every object.
        """
        if self.enqueue_after is not None:
            self.call_in_loop(self.enqueue_after, key, after_seconds)

    def event(self, obj: Object, type: EventType, reason: str, message: str) -> None:
        """Record an Event about an object, which `kubectl describe` shows. Returns immediately."""
        self.call_in_loop(self.recorder.event, obj, type, reason, message)

    def run_async(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Wait for a coroutine in a reconcile that is a plain `def`:
        `self.run_async(self.client.get(Pod, key))`.
        """
        return run_async(coroutine)

    def cached_kinds(self) -> list[type[Object]]:
        """The kinds that the manager has to keep in the cache for this controller."""
        watched = (source.kind for source in self.sources if not isinstance(source, StreamSource))
        return [self.kind, *watched, *self.read_kinds]


def _name_of(what: type[Object] | Stream) -> str:
    return "stream" if isinstance(what, Stream) else what.__name__


class ControllerOptions(TypedDict, total=False):
    """The attributes of a Controller that `controller()` takes as arguments."""

    name: str
    versions: tuple[type[Object], ...]
    max_concurrent_reconciles: int
    timeout_seconds: float
    resync_seconds: float
    finalizer: str
    writes_status: bool
    ready_condition: str
    predicate: Predicate
    backoff: Backoff
    rate_limit: RateLimit
    debounce_seconds: float


def controller(
    kind: type[T],
    reconcile: Callable[[T], Awaitable[Outcome] | Outcome],
    *,
    finalize: Callable[[T], Awaitable[Waiting | None] | Waiting | None] | None = None,
    reconcile_deleted: Callable[[Key], Awaitable[Outcome] | Outcome] | None = None,
    **options: Unpack[ControllerOptions],
) -> Controller[T]:
    """A controller made of a function: `manager.add(controller(Greeting, greet))`."""
    allowed = ControllerOptions.__annotations__
    for option in options.keys() - allowed.keys():
        from difflib import get_close_matches

        similar = get_close_matches(option, allowed, 1)
        advice = f'Did you mean "{similar[0]}"?' if similar else f"It has: {', '.join(allowed)}."
        raise ConfigError(f'controller() has no option "{option}". {advice}')
    members: dict[str, Any] = {"reconcile": staticmethod(reconcile), "kind": kind, **options}
    if finalize is not None:
        members["finalize"] = staticmethod(finalize)
    if reconcile_deleted is not None:
        members["reconcile_deleted"] = staticmethod(reconcile_deleted)
    instance: Controller[T] = type(f"{kind.__name__}Controller", (Controller,), members)()
    return instance
