"""Greeting v2, and its conversion to v1 and back."""

from __future__ import annotations

from kubewright import Conversion, Resource, version_of
from msgspec import convert

from .greeting import Greeting, GreetingSpec, GreetingStatus


# Spec and status have the fields of v1. To remove or rename one, inherit from Spec and
# Status instead, and declare all fields.
class GreetingV2Spec(GreetingSpec):
    """The desired state."""


class GreetingV2Status(GreetingStatus):
    """The observed state."""


@version_of(Greeting, "v2", storage=True)
class GreetingV2(Resource[GreetingV2Spec, GreetingV2Status]):
    # A docstring here is the description of the kind in `kubectl explain`.
    pass


class GreetingV2Conversion(Conversion[GreetingV2, Greeting]):
    """Copies fields of the same name; convert renamed fields and other units here.

    Metadata is copied automatically.
    """

    def to_hub(self, spoke: GreetingV2) -> Greeting:
        spec = convert(spoke.spec, GreetingSpec, from_attributes=True)
        status = convert(spoke.status, GreetingStatus, from_attributes=True)
        return Greeting(spec=spec, status=status)

    def from_hub(self, hub: Greeting) -> GreetingV2:
        spec = convert(hub.spec, GreetingV2Spec, from_attributes=True)
        status = convert(hub.status, GreetingV2Status, from_attributes=True)
        return GreetingV2(spec=spec, status=status)
