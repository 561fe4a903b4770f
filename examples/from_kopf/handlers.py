"""kopf 05: creation, update, restart, deletion, and the change of one field."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example, ExampleStatus
from kubewright import Controller


class HandlersController(Controller[Example]):
    finalizer = "examples.kubewright.dev/handlers"

    async def reconcile(self, example: Example) -> None:
        old, new = example.status.field, example.spec.field
        if example.status.observedGeneration is None:
            self.log.info("CREATED")
        elif example.status.observedGeneration != example.metadata.generation:
            self.log.info("UPDATED")
        else:
            self.log.info("RESUMED")
        if old != new:
            self.log.info("FIELD CHANGED", old=old, new=new)
        example.status = ExampleStatus(field=new)

    async def finalize(self, example: Example) -> None:
        self.log.info("DELETED")
