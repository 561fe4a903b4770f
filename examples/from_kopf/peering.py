"""kopf 06: one of several replicas acts.

python -m kubewright run examples/from_kopf/peering.py -leader-elect
"""

from __future__ import annotations

from examples.from_kopf.example_kind import Example
from kubewright import Controller


class PeeringController(Controller[Example]):
    async def reconcile(self, example: Example) -> None:
        self.log.info("reconciled by the leader")
