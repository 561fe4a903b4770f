"""What `apply` returns: the live children of an object, and whether they are ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

from msgspec import Struct

from .errors import Terminal
from .kind import Key, Object
from .outcome import Done, Waiting
from .readiness import Readiness

T = TypeVar("T", bound=Object)


class ChildState(Struct, frozen=True):
    """A live child and its readiness."""

    object: Object
    readiness: Readiness

    def __str__(self) -> str:
        return f"{self.object.definition.name} {self.object.key.name}: {self.readiness.message}"


@dataclass(frozen=True)
class Children(Sequence[Object]):
    """The live objects of one `apply`, in the order in which they were passed.

    They are shared with the cache: read them, but do not change them.
    """

    namespace: str
    """The namespace of the owner, which a child has if it names none."""
    states: tuple[ChildState, ...]

    @overload
    def __getitem__(self, index: int) -> Object: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Object]: ...
    def __getitem__(self, index: int | slice) -> Object | Sequence[Object]:
        return [child.object for child in self.states][index]

    def __len__(self) -> int:
        return len(self.states)

    def live(self, child: T) -> T:
        """The live object of a child that was passed to `apply`."""
        key = child.key
        if child.definition.namespaced and not key.namespace:
            key = Key(self.namespace, key.name)
        for obj in self:
            if isinstance(obj, type(child)) and obj.key == key:
                return obj
        raise KeyError(f"{child.definition.name} {key} was not passed to apply")

    @property
    def not_ready(self) -> tuple[ChildState, ...]:
        return tuple(child for child in self.states if not child.readiness.is_current)

    @property
    def ready(self) -> bool:
        return not self.not_ready

    def outcome(self) -> Done | Waiting:
        """Done if all children are ready, else Waiting with what is missing.

        Raises Terminal if a child has failed: only its next change can help, and it
        triggers a reconcile of the owner.
        """
        message = "; ".join(map(str, self.not_ready))
        if any(child.readiness.state == "Failed" for child in self.states):
            raise Terminal("ChildFailed", message, keep_status=True)
        if message:
            return Waiting("ChildrenNotReady", message)
        count = len(self.states)
        return Done(
            "ChildrenReady", f"{count} {'child is' if count == 1 else 'children are'} ready"
        )
