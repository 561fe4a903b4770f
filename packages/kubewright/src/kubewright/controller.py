"""What a user types all day: a class (or a function) with `reconcile(obj)`, and what wakes it. `engine.py` runs it.

    class GreetingController(Controller[Greeting]):
        async def reconcile(self, greeting: Greeting) -> None:
            greeting.status = GreetingStatus(text=f"Hello, {greeting.spec.name}")

A reconcile reads state from memory, acts, and sets `obj.status`. It returns None (or `Done(...)`), or raises: `Retry` for what will
pass, `Terminal` for what trying again cannot mend; anything else backs off. The engine alone writes the status: once, only if it
changed, also on failure, with conditions and observedGeneration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, get_args

from .cache import IndexFunction
from .errors import ConfigError
from .kind import Object, Resource
from .log import Log
from .meta import Key
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
    """What a reconcile may return: words for the Ready condition, and when to look again."""

    reason: str = "Reconciled"
    message: str = ""
    requeue_after_seconds: float | None = None


@dataclass(frozen=True)
class Permission:
    """A right beyond those that follow from the watches, for the generated role."""

    kind: type[Object]
    verbs: tuple[str, ...]
    subresource: str = ""
    resource_names: tuple[str, ...] = ()
    """Only these objects; all of the kind where there are none."""


class Controller(Generic[T]):
    """Subclass it with your kind and write `reconcile`; declare in `__init__` what else wakes your objects."""

    # By its name pytest would take the one of a kind TestRun for tests.
    __test__: ClassVar[bool] = False
    kind: ClassVar[type[Resource[Any, Any]]]
    versions: ClassVar[tuple[type[Object], ...]] = ()
    """Other versions of the kind that the CRD serves."""
    concurrency: ClassVar[int] = 64
    """How many objects at once; each at most once at a time. Fewer, if what `reconcile` talks to bears less."""
    timeout_seconds: ClassVar[float] = 120.0
    resync_seconds: ClassVar[float] = 10 * 3600.0
    """How often every object is looked at although nothing seems to have happened; 0 for never."""
    finalizer: ClassVar[str] = ""
    """With a finalizer, `finalize` runs before the object goes."""
    predicate: ClassVar[Predicate] = staticmethod(any_change)

    sources: list[KindSource | OwnedKindSource | StreamSource | TimerSource]
    permissions: list[Permission]
    log: Log

    def __init_subclass__(cls) -> None:
        for base in getattr(cls, "__orig_bases__", ()):
            match get_args(base):
                case (type() as kind,) if issubclass(kind, Resource):
                    cls.kind = kind

    def __new__(cls, *args: Any, **named: Any) -> Controller[T]:
        """Make the lists of declarations here, so that a subclass's __init__ need not call ours."""
        self = super().__new__(cls)
        if not hasattr(cls, "kind"):
            raise ConfigError(
                f"{cls.__name__} does not say its kind: write class {cls.__name__}(Controller[YourKind])"
            )
        self.sources, self.permissions, self.log = [], [], Log(cls.__name__)
        return self

    async def reconcile(self, obj: T) -> Done | None:
        """Bring the world to what the object wants, and its status to what the world is."""
        raise TypeError(f"{type(self).__name__} has no reconcile")

    async def finalize(self, obj: T) -> None:
        """Clean up before the object goes; must bear being run twice."""

    def wake_on(
        self,
        what: type[Object] | Stream,
        *,
        by: IndexFunction,
        of: IndexFunction = object_name,
        when: Predicate = any_change,
    ) -> None:
        """Let changes elsewhere wake the objects that depend on them, found by index.

        `by` reads from our object what it depends on; `of` reads from the other object what it is known by (its name).
        """
        self.sources.append(
            StreamSource(what, by) if isinstance(what, Stream) else KindSource(what, by, of, when)
        )

    def wake_on_owned(self, kind: type[Object]) -> None:
        """Let changes of objects that ours own wake the owner."""
        self.sources.append(OwnedKindSource(kind))

    def wake_every(self, seconds: float) -> None:
        """Look at all objects every so often."""
        self.sources.append(TimerSource(seconds))

    def needs(
        self,
        kind: type[Object],
        *verbs: str,
        subresource: str = "",
        resource_names: tuple[str, ...] = (),
    ) -> None:
        """Declare what the reconcile does through the client, for the generated role; `create` cannot be limited to names."""
        self.permissions.append(Permission(kind, verbs, subresource, resource_names))

    def log_for(self, key: Key) -> Log:
        """The log for lines about one object, with the fields by which controller-runtime names it."""
        return self.log.bind(
            **{self.kind.definition.name: key}, namespace=key.namespace, name=key.name
        )

    @property
    def name(self) -> str:
        """What logs and metrics call it: the kind in lower case, as controller-runtime does."""
        return self.kind.definition.name.lower()


def controller(
    kind: type[T],
    reconcile: Callable[[T], Awaitable[Done | None]],
    *,
    finalize: Callable[[T], Awaitable[None]] | None = None,
    **options: Any,
) -> Controller[T]:
    """A controller from a function, for those who need no class: `manager.add(controller(Greeting, greet))`."""
    body: dict[str, Any] = {"reconcile": staticmethod(reconcile), "kind": kind, **options}
    if finalize is not None:
        body["finalize"] = staticmethod(finalize)
    made: Controller[T] = type(f"{kind.__name__}Controller", (Controller,), body)()
    return made
