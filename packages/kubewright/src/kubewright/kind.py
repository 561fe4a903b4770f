"""Declaring a kind: `@kind` on a `Resource[Spec, Status]`. The class is the decoder, the encoder and the CRD.

    class GreetingSpec(Spec):
        name: Annotated[str, Doc("Whom to greet.")] = ""

    class GreetingStatus(Status):
        text: Annotated[str | None, Doc("The greeting.")] = None

    @kind("example.com/v1")
    class Greeting(Resource[GreetingSpec, GreetingStatus]):
        "Says hello."

All else (decoding, the CRD, its columns, rights and watches) follows from these lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from .errors import SchemaError, Undecodable
from .meta import Condition, Key, ObjectMeta
from .schema import ListType


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; priority 1 shows it only with `-o wide`. The type follows from the field."""

    name: str
    path: str
    type: str = ""
    priority: int = 0
    description: str = ""


@dataclass(frozen=True)
class Scale:
    """The scale subresource: what `kubectl scale` and a HorizontalPodAutoscaler read and write."""

    spec_replicas_path: str = ".spec.replicas"
    status_replicas_path: str = ".status.replicas"
    label_selector_path: str = ""


_READY_COLUMN = Column(
    "Ready",
    '.status.conditions[?(@.type=="Ready")].status',
    "string",
    description="Whether the answer is current.",
)
_REASON_COLUMN = Column(
    "Reason",
    '.status.conditions[?(@.type=="Ready")].reason',
    "string",
    priority=1,
    description="Why, in one word.",
)
_AGE_COLUMN = Column("Age", ".metadata.creationTimestamp", "date")
_DEFAULT_COLUMNS = (_READY_COLUMN, _REASON_COLUMN, _AGE_COLUMN)


@dataclass(frozen=True)
class KindDefinition:
    """What `@kind` was told, and the decoder made from it; found at `<class>.definition`."""

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
        """`plural.group`, the name that RBAC, kubectl and the CRD go by."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The API server's path of a collection, an object or a subresource."""
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [
            prefix,
            f"namespaces/{namespace}" if namespace and self.namespaced else "",
            self.plural,
            name,
            subresource,
        ]
        return "/".join(part for part in parts if part)


class Object(Struct, kw_only=True):
    """Anything the API server stores. apiVersion and kind belong to the class and are added when it is written."""

    definition: ClassVar[KindDefinition]
    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key

    @classmethod
    def decode(cls, raw: bytes | msgspec.Raw) -> Self:
        """The object in these bytes of JSON; unknown fields are ignored, wrong ones raise Undecodable."""
        try:
            return cls.definition.decoder.decode(raw)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, RecursionError) as error:
            raise Undecodable(f"this {cls.definition.name} does not decode: {error}") from error

    def encode(self) -> dict[str, Any]:
        """The object as plain JSON values, with apiVersion and kind, without what is not set."""
        head = {"apiVersion": self.definition.api_version, "kind": self.definition.name}
        return head | drop_nulls(msgspec.to_builtins(self))  # type: ignore[no-any-return]


def drop_nulls(value: Any) -> Any:
    """JSON values without nulls: on the API server's side a null is not "absent" but an error in most places."""
    if isinstance(value, dict):
        return {k: drop_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [drop_nulls(v) for v in value]
    return value


if TYPE_CHECKING:
    # Type checkers would ask every subclass to repeat frozen=True, which msgspec inherits.
    class Spec(Struct, kw_only=True):
        """What the user wants."""
else:

    class Spec(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
        """What the user wants. Frozen: only the user changes it, so setting a field raises."""


class Status(Struct, gc=False, kw_only=True):
    """What we found. The two fields here are written by the controller alone; a kind adds its own.

    `None` means "not known" and is absent on the wire; every other value, zero and False too, is written.
    """

    conditions: Annotated[
        list[Condition],
        ListType("map", "type"),
        Meta(description="What is true of this object, one entry a type; Ready is always there."),
    ] = []
    observedGeneration: Annotated[
        int | None, Meta(description="The metadata.generation that this status was computed from.")
    ] = None

    def condition(self, type: str) -> Condition | None:
        """The condition of that type, or None."""
        return next((c for c in self.conditions if c.type == type), None)


SpecT = TypeVar("SpecT", bound=Struct)
StatusT = TypeVar("StatusT", bound=Struct)
ObjectT = TypeVar("ObjectT", bound=Object)


class Resource(Object, Generic[SpecT, StatusT], kw_only=True):
    """An object with spec and status, both of which may be missing on the wire."""

    spec_type: ClassVar[type[Struct]]
    status_type: ClassVar[type[Struct]]
    spec: SpecT = None  # type: ignore[assignment]  # filled below: the default depends on the subclass
    status: StatusT = None  # type: ignore[assignment]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__dict__.get("__orig_bases__", ()):
            match get_args(base):
                case (type() as spec, type() as status):
                    cls.spec_type, cls.status_type = spec, status

    def __post_init__(self) -> None:
        missing: Any = None
        if self.spec is missing:
            self.spec = self.spec_type()  # type: ignore[assignment]
        if self.status is missing:
            self.status = self.status_type()  # type: ignore[assignment]


# By their endings, the first that fits, as kubebuilder's library has them; rare words are left out: `plural=` says another.
_PLURAL_ENDINGS = (
    *(
        ("index", "indices"),
        ("vertex", "vertices"),
        ("matrix", "matrices"),
        ("criterion", "criteria"),
        ("medium", "media"),
    ),
    *(
        ("person", "people"),
        ("child", "children"),
        ("human", "humans"),
        ("man", "men"),
        ("mouse", "mice"),
        ("quiz", "quizzes"),
    ),
    *(
        ("leaf", "leaves"),
        ("shelf", "shelves"),
        ("life", "lives"),
        ("half", "halves"),
        ("radius", "radii"),
        ("focus", "foci"),
    ),
    *((word, word) for word in ("data", "series", "information", "equipment")),
    *(
        ("potato", "potatoes"),
        ("tomato", "tomatoes"),
        ("piano", "pianos"),
        ("datum", "data"),
        ("alias", "aliases"),
    ),
    *(("sis", "ses"), ("ss", "sses"), ("us", "uses"), ("s", "s")),
    *(("x", "xes"), ("z", "zes"), ("ch", "ches"), ("sh", "shes")),
    *(("io", "ios"), ("oo", "oos"), ("to", "tos"), ("o", "oes")),
)


def pluralize(kind: str) -> str:
    """The plural that kubebuilder would give: HostInfo -> hostinfoes, Policy -> policies, AppSettings -> appsettings, Index -> indices."""
    word = kind.lower()
    for ending, plural in _PLURAL_ENDINGS:
        if word.endswith(ending):
            return word.removesuffix(ending) + plural
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


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

    `metadata_only` asks the server for metadata alone: fewer bytes to send, decode and keep. Ready, Reason and Age
    columns follow the declared ones where the status is a `Status`.
    """
    group, slash, version = api_version.rpartition("/")
    if (slash and not group) or not version:
        raise SchemaError(
            api_version, 'apiVersion must read "group/version", or "v1" for the core group'
        )

    def declare(cls: type[ObjectT]) -> type[ObjectT]:
        own = name or cls.__name__
        cls.definition = KindDefinition(
            type=cls,
            group=group,
            version=version,
            name=own,
            plural=plural or pluralize(own),
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
    """The columns of `kubectl get`: the declared ones, and where the status is a `Status` what every one has."""
    ours = issubclass(getattr(cls, "status_type", type(None)), Status)
    return (*columns, *_DEFAULT_COLUMNS) if ours else tuple(columns)


def version_of(
    main: type[Object],
    version: str,
    *,
    columns: Sequence[Column] | None = None,
    served: bool = True,
    storage: bool = False,
    deprecated: str = "",
) -> Callable[[type[ObjectT]], type[ObjectT]]:
    """Make the class another version of a kind: names, scope and scale are the kind's, and so are its columns unless others are given."""

    def declare(cls: type[ObjectT]) -> type[ObjectT]:
        cls.definition = replace(
            main.definition,
            type=cls,
            version=version,
            columns=main.definition.columns
            if columns is None
            else _with_default_columns(cls, columns),
            served=served,
            storage=storage,
            deprecation_warning=deprecated,
            decoder=msgspec.json.Decoder(cls),
        )
        return cls

    return declare
