"""Street: its types."""

from __future__ import annotations

from kubewright import Column, Resource, Spec, Status, kind


class StreetSpec(Spec):
    """The desired state."""

    # An example: rename it, or remove it.
    foo: str = ""


# Conditions and observedGeneration come with Status. A field that is None is not written.
class StreetStatus(Status):
    """The observed state."""

    # An example: a copy of spec.foo.
    echo: str | None = None


@kind(
    "demo.example.com/v1",
    plural="roads",
    columns=[Column("Foo", ".spec.foo"), Column("Echo", ".status.echo")],
)
class Street(Resource[StreetSpec, StreetStatus]):
    # A docstring here is the description of the kind in `kubectl explain`.
    pass
