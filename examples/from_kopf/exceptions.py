"""kopf 03: a failure for ever, a failure for a while, and a failure that gives up."""

from __future__ import annotations

from collections import Counter

from examples.from_kopf.example_kind import Example
from kubewright import Controller, Done, Key, Retry, Terminal


class ExceptionsController(Controller[Example]):
    def __init__(self) -> None:
        self.attempts: Counter[Key] = Counter()

    async def reconcile(self, example: Example) -> Done:
        self.attempts[example.key] += 1
        match example.spec.field:
            case "permanent":
                raise Terminal("Unsupported", "spec.field must not be permanent.")
            case "temporary" if self.attempts[example.key] <= 3:
                raise Retry("NotYet", "Expected to work soon.", requeue_after_seconds=0.1)
            case "give-up" if self.attempts[example.key] <= 3:
                raise RuntimeError("retried with back-off")
            case "give-up":
                raise Terminal("GaveUp", "Failed three times.")
        return Done(message=f"Succeeded at attempt {self.attempts[example.key]}.")
