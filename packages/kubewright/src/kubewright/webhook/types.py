"""The classes that an operator extends: a webhook, and a conversion between versions.

    class GreetingWebhook(Webhook[Greeting]):
        async def default(self, greeting: Greeting, request: Admission) -> None:
            if not greeting.spec.name:
                greeting.spec = replace(greeting.spec, name="world")  # msgspec.structs.replace

        async def validate(
            self, greeting: Greeting, old: Greeting | None, request: Admission
        ) -> None:
            if greeting.spec.name == "admin":
                raise Rejected("must not be admin", field="spec.name")

Only the methods that you define are registered with the API server. A rule that CEL can express
needs no webhook: use a `ValidationRule` of the type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from ..errors import ConfigError, Rejected
from ..kind import Object
from ..log import Log
from ..permission import HasPermissions

T = TypeVar("T", bound=Object)
SpokeT = TypeVar("SpokeT", bound=Object)
HubT = TypeVar("HubT", bound=Object)
Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True)
class Admission:
    """What a webhook gets as `request`: the user's request, and its warnings and rejections."""

    operation: Operation = "CREATE"
    namespace: str = ""
    name: str = ""
    """Empty on CREATE if the server generates it."""
    username: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    """The object will not be stored: the webhook must not have side effects."""
    subresource: str = ""
    warnings: list[str] = field(default_factory=list)
    rejections: list[Rejected] = field(default_factory=list)

    def warn(self, message: str) -> None:
        """Add a warning for the client, without rejecting the object; kubectl prints it."""
        self.warnings.append(message)

    def reject(self, message: str, *, field: str = "") -> None:
        """Reject the object, but continue, so that the client gets all problems together."""
        self.rejections.append(Rejected(message, field=field))


class Webhook(HasPermissions, Generic[T]):
    """Extend it with your kind; define `default`, `validate` and `validate_deletion` as needed."""

    # Otherwise pytest would collect the webhook of a kind named TestRun as tests.
    __test__: ClassVar[bool] = False
    kind: ClassVar[type[Object]]
    timeout_seconds: ClassVar[int] = 5
    """How long the API server waits, 1 to 30; the client waits too."""
    failure_policy: ClassVar[Literal["Fail", "Ignore"]] = "Fail"
    """What the API server does if the webhook does not respond, or fails."""
    warn_only: ClassVar[bool] = False
    """Never reject an object, even if it does not match its class.

    `failure_policy` should be Ignore then.
    """
    side_effects: ClassVar[Literal["None", "NoneOnDryRun"]] = "None"
    include_status: ClassVar[bool] = False
    """Whether writes of the status call the webhook too."""
    include_terminating: ClassVar[bool] = False
    """Whether writes of objects that are being deleted call the webhook too.

    Then no finalizer can be removed while the webhook is not available.
    """
    namespace_selector: ClassVar[dict[str, Any] | None] = None
    """A label selector for namespaces. For a built-in kind it excludes kube-system by default."""
    object_selector: ClassVar[dict[str, Any] | None] = None

    log: Log

    def __init_subclass__(cls) -> None:
        for base in getattr(cls, "__orig_bases__", ()):
            match get_args(base):
                case (type() as kind,) if issubclass(kind, Object):
                    cls.kind = kind

    def __new__(cls, *args: Any, **kwargs: Any) -> Webhook[T]:
        # Checked here, so that the __init__ of a subclass need not call super().
        self = super().__new__(cls)
        if not hasattr(cls, "kind"):
            raise ConfigError(
                f"{cls.__name__} has no kind: declare class {cls.__name__}(Webhook[YourKind])"
            )
        if not (self.has_default or self.has_validate or self.has_validate_deletion):
            raise ConfigError(
                f"{cls.__name__} has no methods: define default, validate or validate_deletion"
            )
        if not 1 <= cls.timeout_seconds <= 30:
            raise ConfigError(
                f"{cls.__name__}.timeout_seconds is {cls.timeout_seconds}; must be from 1 to 30"
            )
        self.permissions, self.log = [], Log(cls.__name__)
        return self

    async def default(self, obj: T, request: Admission) -> None:
        """Set defaults, in place."""

    async def validate(self, obj: T, old: T | None, request: Admission) -> None:
        """Raise `Rejected` or call `request.reject` if the object must not be stored.

        `old` is `None` on CREATE, and if the stored object no longer matches its class, because it
        must be possible to fix it.
        """

    async def validate_deletion(self, obj: T, request: Admission) -> None:
        """Raise `Rejected` or call `request.reject` if the object must not be deleted.

        If it is defined, no object can be deleted while the webhook is not available.
        """

    @property
    def has_default(self) -> bool:
        return type(self).default is not Webhook.default

    @property
    def has_validate(self) -> bool:
        return type(self).validate is not Webhook.validate

    @property
    def has_validate_deletion(self) -> bool:
        return type(self).validate_deletion is not Webhook.validate_deletion


class Conversion(Generic[SpokeT, HubT]):
    """Converts one version of a kind to its hub and back; all conversions go through the hub.

        class GreetingConversion(Conversion[GreetingV1, Greeting]):
            def to_hub(self, spoke: GreetingV1) -> Greeting: ...
            def from_hub(self, hub: Greeting) -> GreetingV1: ...

    The two methods must not do I/O. Metadata is copied automatically. A field that the other
    version does not have is stored in an annotation, unless `preserve_lost_fields` is False.
    """

    # Otherwise pytest would collect the conversion of a kind named TestRun as tests.
    __test__: ClassVar[bool] = False
    spoke: ClassVar[type[Object]]
    hub: ClassVar[type[Object]]
    preserve_lost_fields: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        for base in getattr(cls, "__orig_bases__", ()):
            match get_args(base):
                case (type() as spoke, type() as hub) if issubclass(spoke, Object) and issubclass(
                    hub, Object
                ):
                    cls.spoke, cls.hub = spoke, hub

    def __new__(cls, *args: Any, **kwargs: Any) -> Conversion[SpokeT, HubT]:
        # Checked here, so that the __init__ of a subclass need not call super().
        if not hasattr(cls, "spoke"):
            raise ConfigError(
                f"{cls.__name__} has no versions: "
                f"declare class {cls.__name__}(Conversion[Spoke, Hub])"
            )
        spoke, hub = cls.spoke.definition, cls.hub.definition
        if (spoke.group, spoke.name) != (hub.group, hub.name) or spoke.version == hub.version:
            names = f"{spoke.api_version} {spoke.name} and {hub.api_version} {hub.name}"
            raise ConfigError(f"{cls.__name__}: {names} are not two versions of one kind")
        return super().__new__(cls)

    def to_hub(self, spoke: SpokeT) -> HubT:
        raise TypeError(f"{type(self).__name__} has no to_hub")

    def from_hub(self, hub: HubT) -> SpokeT:
        raise TypeError(f"{type(self).__name__} has no from_hub")
