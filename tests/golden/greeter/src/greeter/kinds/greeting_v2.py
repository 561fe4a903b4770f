"""Greeting v2: another form of the kind, and the way to v1, which the controller knows, and back."""

from __future__ import annotations

from kubewright import Conversion, Resource, version_of
from msgspec import convert

from .greeting import Greeting, GreetingSpec, GreetingStatus


class GreetingV2Spec(GreetingSpec):
    """What a Greeting wants; all fields of v1 until you change them."""


class GreetingV2Status(GreetingStatus):
    """What was found; all fields of v1 until you change them."""


@version_of(Greeting, "v2", storage=True)
class GreetingV2(Resource[GreetingV2Spec, GreetingV2Status]):
    """What a Greeting is, in a sentence: `kubectl explain greeting` shows it."""


class GreetingV2Conversion(Conversion[GreetingV2, Greeting]):
    """Fields of one name are carried over; add here what is called or counted otherwise. Metadata is carried for you."""

    def to_hub(self, old: GreetingV2) -> Greeting:
        """From v2 to v1."""
        spec = convert(old.spec, GreetingSpec, from_attributes=True)
        return Greeting(spec=spec, status=convert(old.status, GreetingStatus, from_attributes=True))

    def from_hub(self, hub: Greeting) -> GreetingV2:
        """From v1 to v2."""
        spec = convert(hub.spec, GreetingV2Spec, from_attributes=True)
        return GreetingV2(spec=spec, status=convert(hub.status, GreetingV2Status, from_attributes=True))
