"""The kind that all examples here reconcile, as crd.yaml does for those of kopf."""

from __future__ import annotations

from typing import Annotated

from kubewright import Column, Doc, Resource, Spec, Status, kind


class ExampleSpec(Spec):
    duration: Annotated[int, Doc("How many seconds the Pod sleeps.", ge=0)] = 0
    field: Annotated[str | None, Doc("Any value.")] = None
    items: Annotated[list[str], Doc("Names of parts that are handled one after the other.")] = []
    injected: Annotated[int | None, Doc("What the webhook sets.")] = None


class ExampleStatus(Status):
    message: Annotated[str | None, Doc("What was done last.")] = None
    field: Annotated[str | None, Doc("The value of spec.field that was handled last.")] = None
    children: Annotated[list[str], Doc("UIDs of the Pods.")] = []
    runningPods: Annotated[list[str], Doc("Running Pods in the namespace.")] = []


@kind("examples.kubewright.dev/v1", short=("ex",), columns=[Column("Message", ".status.message")])
class Example(Resource[ExampleSpec, ExampleStatus]):
    """An object for the examples."""
