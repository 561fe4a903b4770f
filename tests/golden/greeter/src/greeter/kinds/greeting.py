"""Greeting: what is wanted, what was found, and how one follows from the other."""

from __future__ import annotations

from typing import Annotated

from kubewright import Column, Controller, Doc, Done, Resource, Spec, Status, kind


class GreetingSpec(Spec):
    """What a Greeting wants."""

    foo: Annotated[str, Doc("An example: rename it, or remove it.")] = ""


class GreetingStatus(Status):
    """What was found; conditions and observedGeneration come with Status. None is "not known", and absent on the wire."""

    echo: Annotated[str | None, Doc("An example: spec.foo, seen.")] = None


@kind("demo.example.com/v1", columns=[Column("Foo", ".spec.foo"), Column("Echo", ".status.echo")], storage=False)
class Greeting(Resource[GreetingSpec, GreetingStatus]):
    """What a Greeting is, in a sentence: `kubectl explain greeting` shows it."""


def status_of(spec: GreetingSpec) -> GreetingStatus:
    """All of the answer and none of the I/O, so that plain calls test it."""
    return GreetingStatus(echo=spec.foo)


class GreetingController(Controller[Greeting]):
    """Keeps the status true; what else wakes it (`wake_on`) and may be done (`needs`), its __init__ declares."""

    async def reconcile(self, greeting: Greeting) -> Done:
        """Look at one Greeting; raise Retry for what will pass, Terminal for what only a change can mend."""
        greeting.status = status_of(greeting.spec)
        return Done()
