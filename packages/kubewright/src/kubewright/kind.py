"""Declaring a kind: `@kind` on a `Resource[Spec, Status]`. The class is the decoder, the encoder
and the CRD.

    class GreetingSpec(Spec):
        name: Annotated[str, Doc("The name to greet.")] = ""

    class GreetingStatus(Status):
        text: Annotated[str | None, Doc("The greeting.")] = None

    @kind("example.com/v1")
    class Greeting(Resource[GreetingSpec, GreetingStatus]):
        "A greeting."

Decoding, the CRD with its columns, permissions and watches follow from these lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    get_args,
)

import msgspec
from msgspec import Meta, Struct

from .errors import SchemaError, Undecodable
from .plural import pluralize
from .schema import Column, ListType, Scale


class Key(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped object is ""."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


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
        return Key(self.namespace, self.name)

    @property
    def revision(self) -> int:
        """The resourceVersion as a number; 0 for an object that is not stored.

        Kubernetes 1.35 made it official that resource versions can be compared as numbers.
        """
        return int(self.resourceVersion or 0)


class Condition(Struct, frozen=True, gc=False, kw_only=True):
    """One standard metav1.Condition."""

    type: Annotated[str, Meta(description="Type of the condition, in CamelCase.", max_length=316)]
    status: Annotated[
        Literal["True", "False", "Unknown"], Meta(description="Status of the condition.")
    ]
    reason: Annotated[
        str,
        Meta(
            description="Reason for the status, one CamelCase word for programs.", max_length=1024
        ),
    ] = ""
    message: Annotated[
        str, Meta(description="What happened, why, and what to do, for users.", max_length=32768)
    ] = ""
    lastTransitionTime: Annotated[
        datetime | None, Meta(description="When the status last changed.")
    ] = None
    observedGeneration: Annotated[
        int, Meta(description="The metadata.generation that the condition was computed from.", ge=0)
    ] = 0


def utc_now() -> datetime:
    """The wall clock in whole seconds, the resolution of metav1.Time."""
    return datetime.now(UTC).replace(microsecond=0)


def find_condition(conditions: Sequence[Condition], type: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type), None)


def with_condition(conditions: list[Condition], new: Condition) -> list[Condition]:
    """The list with `new` in place of the condition of its type.

    lastTransitionTime moves only when the status does. Conditions of other types, which may have
    other writers, stay as they are.
    """
    old = find_condition(conditions, new.type)
    since = old.lastTransitionTime if old is not None and old.status == new.status else None
    stamped = msgspec.structs.replace(new, lastTransitionTime=since or utc_now())
    if old is None:
        return [*conditions, stamped]
    return [stamped if c is old else c for c in conditions]


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


@dataclass(frozen=True)
class KindDefinition:
    """The arguments of `@kind` and the decoder of the class; stored as `<class>.definition`."""

    type: type[Object]
    group: str
    version: str
    name: str
    plural: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    columns: tuple[Column, ...] = ()
    scale: Scale | None = None
    served: bool = True
    storage: bool = True
    deprecation_warning: str = ""
    metadata_only: bool = False
    decoder: msgspec.json.Decoder[Any] = field(
        default_factory=msgspec.json.Decoder, repr=False, compare=False
    )

    @property
    def api_version(self) -> str:
        """`group/version`, or just the version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`plural.group`, the name of the resource in RBAC, in kubectl and of the CRD."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path in the API of a collection, an object or a subresource."""
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"namespaces/{namespace}" if namespace and self.namespaced else ""
        return "/".join(part for part in (prefix, scope, self.plural, name, subresource) if part)


class Object(Struct, kw_only=True):
    """An object of the API. apiVersion and kind belong to the class and are added by `encode`."""

    definition: ClassVar[KindDefinition]
    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> Key:
        return self.metadata.key

    @classmethod
    def decode(cls, raw: bytes | msgspec.Raw) -> Self:
        """Decode JSON. Unknown fields are ignored; a value of a wrong type raises Undecodable."""
        try:
            return cls.definition.decoder.decode(raw)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, RecursionError) as error:
            raise Undecodable(f"cannot decode {cls.definition.name}: {error}") from error

    def encode(self) -> dict[str, Any]:
        """The object as plain JSON values, with apiVersion and kind, without fields not set."""
        type_meta = {"apiVersion": self.definition.api_version, "kind": self.definition.name}
        return type_meta | drop_nulls(msgspec.to_builtins(self))  # type: ignore[no-any-return]


def drop_nulls(value: Any) -> Any:
    """JSON values without nulls: the API server rejects an explicit null in most places."""
    if isinstance(value, dict):
        return {k: drop_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [drop_nulls(v) for v in value]
    return value


if TYPE_CHECKING:
    # Type checkers would ask every subclass to repeat frozen=True, which msgspec inherits.
    class Spec(Struct, kw_only=True):
        """The desired state."""
else:

    class Spec(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
        """The desired state. Frozen, because only users change it: setting a field raises."""


class Status(Struct, gc=False, kw_only=True):
    """The observed state. Only the engine writes the two fields here; a kind adds its own.

    `None` means "not known" and is absent on the wire. Every other value is written, also 0 and
    False.
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
            self.spec = self.spec_type()  # type: ignore[assignment]
        if self.status is missing:
            self.status = self.status_type()  # type: ignore[assignment]


def kind(
    api_version: str,
    *,
    name: str = "",
    plural: str = "",
    short: Sequence[str] = (),
    categories: Sequence[str] = (),
    namespaced: bool = True,
    columns: Sequence[Column] = (),
    scale: Scale | None = None,
    served: bool = True,
    storage: bool = True,
    deprecated: str = "",
    metadata_only: bool = False,
) -> Callable[[type[ObjectT]], type[ObjectT]]:
    """Make the class a kind of that group and version.

    `metadata_only` asks the API server for metadata alone: fewer bytes to send, decode and keep.
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
            short_names=tuple(short),
            categories=tuple(categories),
            namespaced=namespaced,
            columns=_with_default_columns(cls, columns),
            scale=scale,
            served=served,
            storage=storage,
            deprecation_warning=deprecated,
            metadata_only=metadata_only,
            decoder=msgspec.json.Decoder(cls),
        )
        return cls

    return declare


def _with_default_columns(cls: type[Object], columns: Sequence[Column]) -> tuple[Column, ...]:
    has_conditions = issubclass(getattr(cls, "status_type", type(None)), Status)
    return (*columns, *_DEFAULT_COLUMNS) if has_conditions else tuple(columns)


def version_of(
    kind_class: type[Object],
    version: str,
    *,
    columns: Sequence[Column] | None = None,
    served: bool = True,
    storage: bool = False,
    deprecated: str = "",
) -> Callable[[type[ObjectT]], type[ObjectT]]:
    """Make the class another version of a kind, with the kind's names, scope, scale and columns."""

    def declare(cls: type[ObjectT]) -> type[ObjectT]:
        kind_columns = kind_class.definition.columns
        cls.definition = replace(
            kind_class.definition,
            type=cls,
            version=version,
            columns=kind_columns if columns is None else _with_default_columns(cls, columns),
            served=served,
            storage=storage,
            deprecation_warning=deprecated,
            decoder=msgspec.json.Decoder(cls),
        )
        return cls

    return declare
