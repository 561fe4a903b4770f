"""What a user writes: a class beside the kind. What is written is what the API server is told to ask for.

    class GreetingWebhook(Webhook[Greeting]):
        async def default(self, greeting: Greeting, request: Admission) -> None:
            if not greeting.spec.name:
                greeting.spec = replace(greeting.spec, name="world")      # from msgspec.structs: a spec is frozen

        async def validate(self, greeting: Greeting, old: Greeting | None, request: Admission) -> None:
            if greeting.spec.name == "nobody":
                raise Refused("there has to be somebody", field="spec.name")

What a CEL `Rule` of the type can say needs no webhook: the API server evaluates it by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from ..controller import Permission
from ..errors import ConfigError, Rejected
from ..kind import Object
from ..log import Log

T = TypeVar("T", bound=Object)
SpokeT = TypeVar("SpokeT", bound=Object)
HubT = TypeVar("HubT", bound=Object)
Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True)
class Admission:
    """What is known of the request that a webhook is asked about, and what it wants to tell besides yes or no."""

    operation: Operation = "CREATE"
    namespace: str = ""
    name: str = ""
    """Empty on CREATE where the server is to generate it."""
    username: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    """Nothing will be stored: whatever this webhook does elsewhere has to be left undone."""
    subresource: str = ""
    warnings: list[str] = field(default_factory=list)
    rejections: list[Rejected] = field(default_factory=list)

    def warn(self, message: str) -> None:
        """Tell whoever sent the object something, without refusing it; kubectl prints it."""
        self.warnings.append(message)

    def reject(self, message: str, *, field: str = "") -> None:
        """Refuse, but go on looking: whoever sent the object hears of all that is wrong at once."""
        self.rejections.append(Rejected(message, field=field))


class Webhook(Generic[T]):
    """Subclass it with your kind and write `default`, `validate`, or both."""

    # By its name pytest would take the one of a kind TestRun for tests.
    __test__: ClassVar[bool] = False
    kind: ClassVar[type[Object]]
    timeout_seconds: ClassVar[int] = 5
    """How long the API server waits, 1 to 30; whoever writes the object waits too."""
    failure_policy: ClassVar[Literal["Fail", "Ignore"]] = "Fail"
    """What the API server does when nobody answers, or the answer is an error."""
    warn_only: ClassVar[bool] = False
    """Never refuse, not even an object that does not fit the class; `failure_policy` is then best Ignore."""
    side_effects: ClassVar[Literal["None", "NoneOnDryRun"]] = "None"
    include_status: ClassVar[bool] = False
    """Be asked about writes of the status, too."""
    include_terminating: ClassVar[bool] = False
    """Be asked about objects that are being deleted, too; then no finalizer comes off while nobody answers."""
    namespace_selector: ClassVar[dict[str, Any] | None] = None
    """Which namespaces, as a label selector; see `configuration.selector_of` for the default."""
    object_selector: ClassVar[dict[str, Any] | None] = None

    permissions: list[Permission]
    log: Log

    def __init_subclass__(cls) -> None:
        for base in getattr(cls, "__orig_bases__", ()):
            match get_args(base):
                case (type() as kind,) if issubclass(kind, Object):
                    cls.kind = kind

    def __new__(cls, *args: Any, **named: Any) -> Webhook[T]:
        """Check the declaration here, so that a subclass's __init__ need not call ours."""
        self = super().__new__(cls)
        if not hasattr(cls, "kind"):
            raise ConfigError(
                f"{cls.__name__} does not say its kind: write class {cls.__name__}(Webhook[YourKind])"
            )
        if not (self.has_default or self.has_validate or self.has_validate_deletion):
            raise ConfigError(
                f"{cls.__name__} has nothing to do: write default, validate or validate_deletion"
            )
        if not 1 <= cls.timeout_seconds <= 30:
            raise ConfigError(
                f"{cls.__name__}.timeout_seconds is {cls.timeout_seconds}; the API server takes 1 to 30"
            )
        self.permissions, self.log = [], Log(cls.__name__)
        return self

    async def default(self, obj: T, request: Admission) -> None:
        """Fill in what the sender left out, in place."""

    async def validate(self, obj: T, old: T | None, request: Admission) -> None:
        """Raise `Refused`, or call `request.refuse`, where the object may not be stored.

        `old` is None on CREATE, and where the stored object does not fit the class any more: it must be possible to mend it.
        """

    async def validate_deletion(self, obj: T, request: Admission) -> None:
        """The same for a deletion. Writing it means that nothing of the kind can be deleted while nobody answers."""

    def needs(
        self,
        kind: type[Object],
        *verbs: str,
        subresource: str = "",
        resource_names: tuple[str, ...] = (),
    ) -> None:
        """Declare what these methods do through a client, for the generated role."""
        self.permissions.append(Permission(kind, verbs, subresource, resource_names))

    @property
    def has_default(self) -> bool:
        """Whether `default` is written."""
        return type(self).default is not Webhook.default

    @property
    def has_validate(self) -> bool:
        """Whether `validate` is written."""
        return type(self).validate is not Webhook.validate

    @property
    def has_validate_deletion(self) -> bool:
        """Whether `validate_deletion` is written."""
        return type(self).validate_deletion is not Webhook.validate_deletion


class Conversion(Generic[SpokeT, HubT]):
    """Between one version of a kind and its hub, the version that all others are converted through; plain functions without I/O.

    class GreetingConversion(Conversion[GreetingV1, Greeting]):
        def to_hub(self, old: GreetingV1) -> Greeting: ...
        def from_hub(self, hub: Greeting) -> GreetingV1: ...

    Metadata is carried over by itself. What one version cannot say is kept in an annotation, unless `keep` is off.
    """

    # By its name pytest would take the one of a kind TestRun for tests.
    __test__: ClassVar[bool] = False
    spoke: ClassVar[type[Object]]
    hub: ClassVar[type[Object]]
    preserve_lost_fields: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        for base in getattr(cls, "__orig_bases__", ()):
            match get_args(base):
                case (type() as old, type() as hub) if issubclass(old, Object) and issubclass(
                    hub, Object
                ):
                    cls.spoke, cls.hub = old, hub

    def __new__(cls, *args: Any, **named: Any) -> Conversion[SpokeT, HubT]:
        """Check the declaration here, so that a subclass's __init__ need not call ours."""
        if not hasattr(cls, "spoke"):
            raise ConfigError(
                f"{cls.__name__} does not say its versions: write class {cls.__name__}(Conversion[Old, Hub])"
            )
        old, hub = cls.spoke.definition, cls.hub.definition
        if (old.group, old.name) != (hub.group, hub.name) or old.version == hub.version:
            names = f"{old.api_version} {old.name} and {hub.api_version} {hub.name}"
            raise ConfigError(f"{cls.__name__}: {names} are no two versions of one kind")
        return super().__new__(cls)

    def to_hub(self, old: SpokeT) -> HubT:
        """The same object in the hub's version."""
        raise TypeError(f"{type(self).__name__} has no to_hub")

    def from_hub(self, hub: HubT) -> SpokeT:
        """The same object in the other version."""
        raise TypeError(f"{type(self).__name__} has no from_hub")
