"""kopf 15: run every object periodically, or some seconds after its last change."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example
from kubewright import Controller, Done


class TimersController(Controller[Example]):
    def __init__(self, interval_seconds: float = 2.0) -> None:
        self.interval_seconds = interval_seconds

    async def reconcile(self, example: Example) -> Done:
        self.log.info("ping", field=example.spec.field)
        return Done(requeue_after_seconds=self.interval_seconds)
