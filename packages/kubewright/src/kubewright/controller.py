"""What the author of an operator writes: a class (or a function) with `reconcile(obj)`, and what
wakes it. `engine.py` runs it.

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

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, get_args

from .cache import IndexFunction
from .errors import ConfigError
from .kind import Object, Resource
from .log import Log
from .source import (
    KindSource,
    OwnedKindSource,
    Predicate,
    Stream,
    StreamSource,
    TimerSource,
    any_change,
    object_name,
)

T = TypeVar("T", bound=Resource[Any, Any])


@dataclass(frozen=True)
class Done:
    """The object is as desired: Ready becomes True, with this reason and message."""

    reason: str = "Reconciled"
    message: str = ""
    requeue_after_seconds: float | None = None


@dataclass(frozen=True)
class Waiting:
    """The object is not ready yet because work is in progress: Ready becomes False.

    This is normal progress, not a fault, so no warning Event is recorded. `after` is the delay in
    seconds until the next reconcile; None leaves the wake-up to a watch.

    With `write_status_first` the reconcile has put into the status what it is about to do. The
    engine stores that status and runs the object again immediately. The action is then sent by a
    run that has read the record, so a crash in between cannot lose track of it.
    """

    reason: str
    message: str
    after: float | None = None
    write_status_first: bool = False


@dataclass(frozen=True)
class Permission:
    """A permission for the generated role, beyond those that follow from the watches."""

    kind: type[Object]
    verbs: tuple[str, ...]
    subresource: str = ""
    resource_names: tuple[str, ...] = ()
    """Only objects with these names; empty for all objects of the kind."""


class HasPermissions:
    """A part of the manager that declares what it does through the client."""

    permissions: list[Permission]

    def needs(
        self,
        kind: type[Object],
        *verbs: str,
        subresource: str = "",
        resource_names: tuple[str, ...] = (),
    ) -> None:
        """Declare a permission for the generated role. RBAC cannot limit `create` to names."""
        self.permissions.append(Permission(kind, verbs, subresource, resource_names))


class Controller(HasPermissions, Generic[T]):
    """Subclass it with your kind and write `reconcile`. Declare what else wakes your objects in
    `__init__`.
    """

    # pytest would collect the controller of a kind named TestRun as a class of tests.
    __test__: ClassVar[bool] = False
    kind: ClassVar[type[Resource[Any, Any]]]
    versions: ClassVar[tuple[type[Object], ...]] = ()
    """Other versions of the kind that the CRD serves."""
    concurrency: ClassVar[int] = 64
    """How many objects are reconciled at the same time; one object never twice. Choose fewer
    if the system that `reconcile` calls cannot take as many."""
    timeout_seconds: ClassVar[float] = 120.0
    resync_seconds: ClassVar[float] = 10 * 3600.0
    """How often every object is reconciled although nothing changed; 0 for never."""
    finalizer: str = ""
    """With a finalizer, `finalize` runs before the API server removes the object."""
    predicate: ClassVar[Predicate] = staticmethod(any_change)

    sources: list[KindSource | OwnedKindSource | StreamSource | TimerSource]
    read_kinds: list[type[Object]]
    log: Log

    def __init_subclass__(cls) -> None:
        for base in getattr(cls, "__orig_bases__", ()):
            match get_args(base):
                case (type() as kind,) if issubclass(kind, Resource):
                    cls.kind = kind

    def __new__(cls, *args: Any, **kwargs: Any) -> Controller[T]:
        # The lists are created here so that a subclass's __init__ need not call ours.
        self = super().__new__(cls)
        if not hasattr(cls, "kind"):
            raise ConfigError(
                f"{cls.__name__} has no kind: write class {cls.__name__}(Controller[YourKind])"
            )
        self.sources, self.read_kinds, self.permissions = [], [], []
        self.log = Log(cls.__name__)
        return self

    async def reconcile(self, obj: T) -> Done | Waiting | None:
        """Make the actual state match the spec, and set the status."""
        raise TypeError(f"{type(self).__name__} has no reconcile")

    async def finalize(self, obj: T) -> Waiting | None:
        """Clean up before the object is removed. It may run more than once.

        The finalizer is removed when this returns None. `Waiting` keeps it while cleanup goes on.
        """

    def wake_on(
        self,
        what: type[Object] | Stream,
        *,
        by: IndexFunction,
        of: IndexFunction = object_name,
        when: Predicate = any_change,
    ) -> None:
        """Reconcile the objects that depend on something else when that changes.

        `by` returns the values by which our object refers to the other one. `of` returns the values
        by which the other object is referred to; by default its name.
        """
        self.sources.append(
            StreamSource(what, by) if isinstance(what, Stream) else KindSource(what, by, of, when)
        )

    def wake_on_owned(self, kind: type[Object]) -> None:
        """Reconcile the owner when an object that it owns changes."""
        self.sources.append(OwnedKindSource(kind))

    def wake_every(self, seconds: float) -> None:
        self.sources.append(TimerSource(seconds))

    def reads(self, kind: type[Object]) -> None:
        """Declare that the reconcile reads this kind from the cache; changes do not wake it.

        The manager keeps the kind in the cache, waits for its first list before it starts the
        controller, and the generated role may list and watch it.
        """
        self.read_kinds.append(kind)

    def cached_kinds(self) -> list[type[Object]]:
        """The kinds that the manager has to keep in the cache for this controller."""
        woken_by = (
            source.kind
            for source in self.sources
            if isinstance(source, KindSource | OwnedKindSource)
        )
        return [self.kind, *woken_by, *self.read_kinds]

    @property
    def name(self) -> str:
        """The name in logs and metrics: the kind in lower case, as in controller-runtime."""
        return self.kind.definition.name.lower()


def controller(
    kind: type[T],
    reconcile: Callable[[T], Awaitable[Done | Waiting | None]],
    *,
    finalize: Callable[[T], Awaitable[Waiting | None]] | None = None,
    **options: Any,
) -> Controller[T]:
    """A controller made of a function: `manager.add(controller(Greeting, greet))`."""
    members: dict[str, Any] = {"reconcile": staticmethod(reconcile), "kind": kind, **options}
    if finalize is not None:
        members["finalize"] = staticmethod(finalize)
    instance: Controller[T] = type(f"{kind.__name__}Controller", (Controller,), members)()
    return instance
