"""kopf 01: set a status."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example, ExampleStatus
from kubewright import Controller


class MinimalController(Controller[Example]):
    async def reconcile(self, example: Example) -> None:
        example.status = ExampleStatus(message="hello world")
