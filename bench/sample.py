"""The kind that every contender reconciles: its status has twice the size of its spec."""

from __future__ import annotations

from typing import Annotated

from kubewright import Doc, Resource, Spec, Status, kind


class SampleSpec(Spec):
    size: Annotated[int, Doc("The number to double.")] = 0


class SampleStatus(Status):
    doubled: Annotated[int | None, Doc("Twice the size; absent until it is computed.")] = None


@kind("bench.kubewright.example/v1")
class Sample(Resource[SampleSpec, SampleStatus]):
    """A number, and twice that number."""
