"""Declaring a kind: `@kind` on a `Resource[Spec, Status]`. The class is the decoder, the encoder
and the CRD.

    class GreetingSpec(Spec):
        name: Annotated[str, Doc("The name to greet.")] = ""

    class GreetingStatus(Status):
        text: Annotated[str | None, Doc("The greeting.")] = None

    @kind("example.com/v1")
    class Greeting(Resource[GreetingSpec, GreetingStatus]):
        "A greeting."
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    get_args,
)

import msgspec
from msgspec import Meta, Struct

from .condition import (
    READY_CONDITION,
    UNOBSERVED_GENERATION,
    Condition,
    ConditionStatus,
    find_condition,
)
from .definition import KindDefinition
from .errors import SchemaError, Undecodable
from .markers import Column, ListType, Scale, SchemaOverride
from .nulls import drop_nulls
from .plural import pluralize


class Key(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped object is ""."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


_TEMPLATE_METADATA = {
    "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    "finalizers": {"type": "array", "items": {"type": "string"}},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "name": {"type": "string"},
    "namespace": {"type": "string"},
}


class OwnerReference(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """The owner of an object; the garbage collector deletes the object with it."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    blockOwnerDeletion: bool = False


class ObjectMeta(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """The part of metadata that operators use. Frozen: metadata is changed by a patch only."""

    # For metadata inside a spec, such as that of a Pod template: what a user may set there.
    __schema__ = (SchemaOverride.of(description=None, properties=_TEMPLATE_METADATA),)

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
    finalizers: Annotated[list[str], ListType("set")] = []
    ownerReferences: Annotated[list[OwnerReference], ListType("map", "uid")] = []

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def revision(self) -> int:
        """The resourceVersion as a number; 0 for an object that is not stored.

        Kubernetes 1.35 made it official that resource versions can be compared as numbers.
        """
        return int(self.resourceVersion or 0)


_DEFAULT_COLUMNS = (
    Column(
        "Ready",
        '.status.conditions[?(@.type=="Ready")].status',
        "string",
        description="Whether the last reconcile reached the desired state; see Reason.",
    ),
    Column(
        "Reason",
        '.status.conditions[?(@.type=="Ready")].reason',
        "string",
        priority=1,
        description="Reason of the Ready condition.",
    ),
    Column("Age", ".metadata.creationTimestamp", "date"),
)


class Object(Struct, kw_only=True):
    """An object of the API. apiVersion and kind belong to the class and are added by `encode`."""

    definition: ClassVar[KindDefinition]
    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> Key:
        return self.metadata.key

    @classmethod
    def decode(cls, raw: bytes | msgspec.Raw) -> Self:
        """Decode JSON. Unknown fields are ignored; a value of a wrong type raises Undecodable.

        A null counts as absent: the API server sends one for an empty list that its Go type does
        not omit, such as the rules of a Role.
        """
        try:
            return cls.definition.decoder.decode(raw)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, RecursionError) as error:
            # Only the text: the traceback would keep `raw`, perhaps 1 MB, until a collection.
            problem = str(error)
        if "got `null`" in problem:
            with suppress(msgspec.DecodeError, RecursionError):
                return msgspec.convert(drop_nulls(msgspec.json.decode(raw)), cls)
        raise Undecodable(f"cannot decode {cls.definition.name}: {problem}")

    def encode(self) -> dict[str, Any]:
        """The object as plain JSON values, with apiVersion and kind, without fields not set."""
        type_meta = {"apiVersion": self.definition.api_version, "kind": self.definition.name}
        return type_meta | self.encode_fields()

    def encode_fields(self) -> dict[str, Any]:
        """The object as plain JSON values, without apiVersion and kind."""
        return drop_nulls(msgspec.to_builtins(self))  # type: ignore[no-any-return]


if TYPE_CHECKING:
    # Type checkers would ask every subclass to repeat frozen=True, which msgspec inherits.
    class Spec(Struct, kw_only=True):
        """The desired state."""
else:

    class Spec(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
        """The desired state. Frozen, because only users change it: setting a field raises."""


class _Conditions(list[Condition]):
    """Remembers which conditions were removed; neither encoded nor compared, so not a field."""

    removed_types: frozenset[str] = frozenset()


class Status(Struct, gc=False, kw_only=True):
    """The observed state. Only the engine writes the two fields here; a kind adds its own.

    `None` means "not known" and is absent on the wire. Every other value is written, also 0 and
    False. Stored conditions that are not mentioned stay: they may have other writers.
    """

    conditions: Annotated[
        list[Condition],
        ListType("map", "type"),
        Meta(description="Conditions of the object, one per type; Ready is always present."),
    ] = []
    observedGeneration: Annotated[
        int | None, Meta(description="The metadata.generation that this status was computed from.")
    ] = None

    def condition(self, type: str) -> Condition | None:
        return find_condition(self.conditions, type)

    def set_condition(
        self, type: str, status: ConditionStatus, reason: str, message: str = ""
    ) -> None:
        """Set a condition of this controller's own. The engine adds the times and generations."""
        if type == READY_CONDITION:
            raise ValueError("Ready follows from how the reconcile ends: return Done or Waiting")
        new = Condition(type=type, status=status, reason=reason, message=message)
        self._replace_condition(type, [new], self.removed_conditions - {type})

    def remove_condition(self, type: str) -> None:
        """Remove a condition, also from the stored object."""
        self._replace_condition(type, [], self.removed_conditions | {type})

    def _replace_condition(self, type: str, new: list[Condition], removed: frozenset[str]) -> None:
        conditions = _Conditions([*(c for c in self.conditions if c.type != type), *new])
        conditions.removed_types = removed
        self.conditions = conditions

    @property
    def removed_conditions(self) -> frozenset[str]:
        """The types of the conditions that the engine removes from the stored object."""
        return getattr(self.conditions, "removed_types", frozenset())


SpecT = TypeVar("SpecT", bound=Struct)
StatusT = TypeVar("StatusT", bound=Struct)
ObjectT = TypeVar("ObjectT", bound=Object)


class Resource(Object, Generic[SpecT, StatusT], kw_only=True):
    """An object with spec and status, both of which may be missing on the wire."""

    spec_type: ClassVar[type[Struct]]
    status_type: ClassVar[type[Struct]]
    # None until __post_init__: the default depends on the subclass.
    spec: SpecT = None  # type: ignore[assignment]
    status: StatusT = None  # type: ignore[assignment]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__dict__.get("__orig_bases__", ()):
            match get_args(base):
                case (type() as spec, type() as status):
                    cls.spec_type, cls.status_type = spec, status

    def __post_init__(self) -> None:
        # A variable, because mypy takes `self.spec is None` for always false.
        missing: Any = None
        if self.spec is missing:
            try:
                self.spec = self.spec_type()  # type: ignore[assignment]
            except TypeError:
                # It has required fields. The API server may send an external kind without them:
                # only metadata was requested, or the CRD does not require a spec.
                if not self.definition.external:
                    raise
        if self.status is missing:
            self.status = self.status_type()  # type: ignore[assignment]
        elif getattr(self.status, "observedGeneration", None) == UNOBSERVED_GENERATION:
            self.status.observedGeneration = None  # type: ignore[attr-defined]

    def encode(self) -> dict[str, Any]:
        """As for every object; a status without any field counts as not set."""
        encoded = super().encode()
        if encoded.get("status") == {}:
            del encoded["status"]
        return encoded


def kind(
    api_version: str,
    *,
    name: str = "",
    plural: str = "",
    singular: str = "",
    list_kind: str = "",
    short: Sequence[str] = (),
    categories: Sequence[str] = (),
    namespaced: bool = True,
    columns: Sequence[Column] = (),
    selectable_fields: Sequence[str] = (),
    scale: Scale | None = None,
    status_subresource: bool | None = None,
    conversion: Mapping[str, Any] | None = None,
    served: bool = True,
    storage: bool = True,
    deprecated: str | bool = False,
    metadata_only: bool = False,
    external: bool | None = None,
    require_spec: bool | None = None,
) -> Callable[[type[ObjectT]], type[ObjectT]]:
    """Make the class a kind of that group and version.

    `selectable_fields` are paths such as `.spec.nodeName`, for field selectors.
    `metadata_only` asks the API server for metadata alone: fewer bytes to send, decode and keep.
    `external` means that Kubernetes or another operator declares the kind; by default only those in
    the groups of Kubernetes are external.
    `require_spec` makes the API server reject objects without a spec; the default None does if the
    spec has a required field.
    If the status is a `Status`, the columns Ready, Reason and Age follow the given ones.
    """
    group, slash, version = api_version.rpartition("/")
    if (slash and not group) or not version:
        raise SchemaError(
            api_version, 'apiVersion must be "group/version", or "v1" for the core group'
        )

    def declare(cls: type[ObjectT]) -> type[ObjectT]:
        cls.definition = KindDefinition(
            type=cls,
            group=group,
            version=version,
            name=name or cls.__name__,
            plural=plural or pluralize(name or cls.__name__),
            singular=singular or (name or cls.__name__).lower(),
            list_kind=list_kind or f"{name or cls.__name__}List",
            short_names=tuple(short),
            categories=tuple(categories),
            namespaced=namespaced,
            columns=_with_default_columns(cls, columns),
            selectable_fields=tuple(selectable_fields),
            scale=scale,
            status_subresource=status_subresource,
            conversion=conversion,
            served=served,
            storage=storage,
            deprecated=bool(deprecated),
            deprecation_warning=deprecated if isinstance(deprecated, str) else "",
            metadata_only=metadata_only,
            external=_is_kubernetes_group(group) if external is None else external,
            require_spec=require_spec,
        )
        cls.definition.check_columns()
        _check_decodable(cls.definition)
        return cls

    return declare


def _is_kubernetes_group(group: str) -> bool:
    """Whether it is a group such as "", apps or policy.k8s.io, which no CRD of a project has."""
    return "." not in group or group.endswith(".k8s.io")


def _check_decodable(definition: KindDefinition) -> None:
    """Fail at the declaration, not at the first object, if a type cannot be decoded."""
    # An external kind was checked when its class was generated. The decoder of a Pod takes 10 ms.
    if not definition.external:
        definition.decoder  # noqa: B018  # built at its first use


def _with_default_columns(cls: type[Object], columns: Sequence[Column]) -> tuple[Column, ...]:
    has_conditions = issubclass(getattr(cls, "status_type", type(None)), Status)
    return (*columns, *_DEFAULT_COLUMNS) if has_conditions else tuple(columns)


def version_of(
    kind_class: type[Object],
    version: str,
    *,
    columns: Sequence[Column] | None = None,
    selectable_fields: Sequence[str] | None = None,
    served: bool = True,
    storage: bool = False,
    deprecated: str | bool = False,
) -> Callable[[type[ObjectT]], type[ObjectT]]:
    """Make the class another version of a kind, with the kind's names, scope and scale, and its
    columns and selectable fields unless others are given.
    """

    def declare(cls: type[ObjectT]) -> type[ObjectT]:
        definition = kind_class.definition
        cls.definition = replace(
            definition,
            type=cls,
            version=version,
            columns=definition.columns if columns is None else _with_default_columns(cls, columns),
            selectable_fields=definition.selectable_fields
            if selectable_fields is None
            else tuple(selectable_fields),
            served=served,
            storage=storage,
            deprecated=bool(deprecated),
            deprecation_warning=deprecated if isinstance(deprecated, str) else "",
        )
        cls.definition.check_columns()
        _check_decodable(cls.definition)
        return cls

    return declare
