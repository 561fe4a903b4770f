"""What every object carries: its Key, its ObjectMeta, its Conditions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct


class Key(NamedTuple):
    """Which object: all that ever travels through a queue. A cluster-scoped object has namespace ""."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """Whose object this is; garbage collection follows it."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    blockOwnerDeletion: bool = False


class ObjectMeta(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """The part of metadata that operators use. Frozen: it is changed by a patch, never in memory."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    generateName: str = ""
    creationTimestamp: datetime | None = None
    deletionTimestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    ownerReferences: list[OwnerReference] = []

    @property
    def key(self) -> Key:
        """Namespace and name together."""
        return Key(self.namespace, self.name)

    @property
    def revision(self) -> int:
        """ResourceVersion as a number, 0 where there is none. Kubernetes 1.35 made the order of these official."""
        return int(self.resourceVersion or 0)


class Condition(Struct, frozen=True, gc=False, kw_only=True):
    """One standard metav1.Condition."""

    type: Annotated[
        str, Meta(description="What the condition is about, in CamelCase.", max_length=316)
    ]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="Whether it holds.")]
    reason: Annotated[
        str, Meta(description="Why, as one CamelCase word for programs.", max_length=1024)
    ] = ""
    message: Annotated[
        str, Meta(description="Why, and what to do, for people.", max_length=32768)
    ] = ""
    lastTransitionTime: Annotated[
        datetime | None, Meta(description="When status last changed.")
    ] = None
    observedGeneration: Annotated[
        int, Meta(description="The metadata.generation it was computed from.", ge=0)
    ] = 0


def now() -> datetime:
    """The wall clock in whole seconds, as Kubernetes writes it."""
    return datetime.now(UTC).replace(microsecond=0)


def with_condition(conditions: list[Condition], new: Condition) -> list[Condition]:
    """The list with `new` in the place of its type; lastTransitionTime moves only when status does.

    Conditions of other types, which may have other writers, stay as they are and where they are.
    """
    old = next((c for c in conditions if c.type == new.type), None)
    since = old.lastTransitionTime if old is not None and old.status == new.status else None
    stamped = Condition(
        type=new.type,
        status=new.status,
        reason=new.reason,
        message=new.message,
        lastTransitionTime=since or now(),
        observedGeneration=new.observedGeneration,
    )
    if old is None:
        return [*conditions, stamped]
    return [stamped if c is old else c for c in conditions]
