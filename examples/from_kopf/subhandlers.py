"""kopf 07: one step for each item of the spec."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example
from kubewright import Controller


class SubhandlersController(Controller[Example]):
    async def reconcile(self, example: Example) -> None:
        for item in example.spec.items:
            self.log.info("handling", item=item)
