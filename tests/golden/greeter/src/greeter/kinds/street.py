"""Street: its types and its controller."""

from __future__ import annotations

from typing import Annotated

from kubewright import Column, Doc, Resource, Spec, Status, kind


class StreetSpec(Spec):
    """The desired state of a Street."""

    foo: Annotated[str, Doc("An example: rename it, or remove it.")] = ""


# Conditions and observedGeneration come with Status. A field that is None is not written.
class StreetStatus(Status):
    """The observed state of a Street."""

    echo: Annotated[str | None, Doc("An example: a copy of spec.foo.")] = None


@kind(
    "demo.example.com/v1",
    plural="roads",
    columns=[Column("Foo", ".spec.foo"), Column("Echo", ".status.echo")],
)
class Street(Resource[StreetSpec, StreetStatus]):
    """Describe Street in one sentence: `kubectl explain` shows it."""
