"""Street: what is wanted, what was found, and how one follows from the other."""

from __future__ import annotations

from typing import Annotated

from kubewright import Column, Doc, Resource, Spec, Status, kind


class StreetSpec(Spec):
    """What a Street wants."""

    foo: Annotated[str, Doc("An example: rename it, or remove it.")] = ""


class StreetStatus(Status):
    """What was found; conditions and observedGeneration come with Status. None is "not known", and absent on the wire."""

    echo: Annotated[str | None, Doc("An example: spec.foo, seen.")] = None


@kind("demo.example.com/v1", plural="roads", columns=[Column("Foo", ".spec.foo"), Column("Echo", ".status.echo")])
class Street(Resource[StreetSpec, StreetStatus]):
    """What a Street is, in a sentence: `kubectl explain street` shows it."""
