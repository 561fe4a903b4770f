"""Greeting: its types and its controller."""

from __future__ import annotations

from kubewright import Column, Controller, Done, Resource, Spec, Status, kind


class GreetingSpec(Spec):
    """The desired state."""

    # An example: rename it, or remove it.
    foo: str = ""


# Conditions and observedGeneration come with Status. A field that is None is not written.
class GreetingStatus(Status):
    """The observed state."""

    # An example: a copy of spec.foo.
    echo: str | None = None


@kind(
    "demo.example.com/v1",
    columns=[Column("Foo", ".spec.foo"), Column("Echo", ".status.echo")],
    storage=False,
)
class Greeting(Resource[GreetingSpec, GreetingStatus]):
    # A docstring here is the description of the kind in `kubectl explain`.
    pass


def status_of(spec: GreetingSpec) -> GreetingStatus:
    """Compute the status without I/O, so that unit tests need no cluster."""
    return GreetingStatus(echo=spec.foo)


class GreetingController(Controller[Greeting]):
    """Keeps the status of every Greeting up to date.

    To reconcile when other objects change, or to write them, declare it in __init__ with
    `watches` and `needs`.
    """

    async def reconcile(self, greeting: Greeting) -> Done:
        # Return Waiting while work is in progress. Raise Retry for a temporary failure, Terminal
        # when a retry is useless until the object or its input changes.
        greeting.status = status_of(greeting.spec)
        return Done()
