"""kopf 09: an operator with a test."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example
from kubewright import Controller


class TestingController(Controller[Example]):
    async def reconcile(self, example: Example) -> None:
        self.log.info("something was logged here")
