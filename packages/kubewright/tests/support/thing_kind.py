"""A kind in two versions that uses every supported type."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct

from kubewright.kind import Resource, Spec, Status, kind
from kubewright.markers import (
    Column,
    Doc,
    EmbeddedResource,
    Int32,
    Int64,
    IntOrString,
    ListType,
    PreserveUnknownFields,
    Scale,
    SchemaOverride,
    ValidationRule,
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Port(Struct, omit_defaults=True):
    """A port with a name."""

    name: Annotated[str, Doc("Its name.", max_length=15)]
    number: Annotated[Int32, Doc("Its number.", ge=1, le=65535)]
    protocol: Literal["TCP", "UDP"] = "TCP"


class Range(Struct):
    """A range with both ends."""

    rules: ClassVar = (
        ValidationRule("self.low <= self.high", message="low must not be above high"),
    )

    low: int = 0
    high: Annotated[int, Doc("The upper end.", lt=1000)] = 10


class ThingSpec(Spec):
    """The desired state."""

    name: Annotated[str, Doc("A DNS label.", min_length=1, max_length=63, pattern="^[a-z0-9-]+$")]
    replicas: Annotated[Int32, Doc("How many.", ge=0)] = 3
    big: Int64 = 0
    ratio: Annotated[float, Doc("A share.", gt=0, le=1)] = 0.5
    enabled: bool = True
    color: Color = Color.RED
    mode: Literal["fast", "slow"] | None = None
    level: Literal[1, 2, 3] = 1
    until: datetime | None = None
    blob: bytes | None = None
    labels: Annotated[dict[str, str], Doc("Names and values.", max_length=10)] = {}
    ports: Annotated[
        list[Port], ListType("map", "name", "protocol"), Doc("Where it listens.", max_length=8)
    ] = []
    tags: Annotated[
        list[Annotated[str, Doc("One of them.", max_length=20)]],
        ListType("set"),
        Doc("All different.", max_length=10),
    ] = []
    order: Annotated[list[int], ListType("atomic")] = []
    window: Range | None = None
    limit: Annotated[IntOrString, Doc("A number or a percentage.")] = "25%"
    free: PreserveUnknownFields = {}
    template: EmbeddedResource | None = None
    anything: Any = None
    size: Annotated[
        int,
        ValidationRule("self >= oldSelf", message="size cannot shrink"),
        SchemaOverride.of(title="Size"),
    ] = 1


class ThingStatus(Status):
    """The observed state."""

    replicas: Int32 = 0
    selector: str = ""
    since: datetime | None = None


@kind(
    "everything.test/v1",
    short=("th",),
    categories=("all", "tests"),
    columns=[
        Column("Name", ".spec.name"),
        Column("Replicas", ".status.replicas", description="How many there are."),
        Column("Until", ".spec.until", priority=1),
        Column("First", ".spec.ports[0].number"),
    ],
    scale=Scale(label_selector_path=".status.selector"),
)
class Thing(Resource[ThingSpec, ThingStatus]):
    """Everything at once.

    With a second paragraph.
    """

    rules: ClassVar = (
        ValidationRule("self.metadata.name.size() < 64", message="the name is too long"),
    )


class OldThingSpec(Spec):
    """The desired state in v1alpha1."""

    name: str = ""


@kind(
    "everything.test/v1alpha1",
    name="Thing",
    storage=False,
    deprecated="everything.test/v1alpha1 Thing is old; use v1",
)
class OldThing(Resource[OldThingSpec, ThingStatus]):
    """Thing in v1alpha1."""
