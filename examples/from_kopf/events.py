"""kopf 04: record Events."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example
from kubewright import Controller


class EventsController(Controller[Example]):
    async def reconcile(self, example: Example) -> None:
        self.event(example, "Normal", "SomeReason", "Some message.")
        self.event(example, "Warning", "SomeReason", "Some other message.")
        try:
            raise RuntimeError("the text of the error")
        except RuntimeError as error:
            self.event(example, "Warning", "SomeError", f"Some error: {error}.")
