"""The kind that every contender works on: its status says twice the size in its spec."""

from __future__ import annotations

from typing import Annotated

from kubewright import Doc, Resource, Spec, Status, kind


class SampleSpec(Spec):
    """What to double."""

    size: Annotated[int, Doc("The number to double.")] = 0


class SampleStatus(Status):
    """The answer."""

    doubled: Annotated[
        int | None, Doc("Twice the size; absent until somebody has computed it.")
    ] = None


@kind("bench.kubewright.example/v1")
class Sample(Resource[SampleSpec, SampleStatus]):
    """A number that wants to be doubled."""
