"""kopf 08: follow objects of another operator without writing to them."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example
from kubewright import Controller, Key


class RawEventsController(Controller[Example]):
    writes_status = False

    async def reconcile(self, example: Example) -> None:
        self.log.info("changed", object=str(example.key), spec=example.spec)

    async def reconcile_deleted(self, key: Key) -> None:
        self.log.info("deleted", object=str(key))
