"""The controller of Pod (v1), a kind of another project."""

from __future__ import annotations

from kubewright import Controller, Done
from kubewright.api.core_v1 import Pod


class PodController(Controller[Pod]):
    """Reconciles every Pod. Another controller writes its status.

    To reconcile when other objects change, or to write objects, declare it in __init__ with
    `watches`, `owns` and `needs`.
    """

    async def reconcile(self, pod: Pod) -> Done:
        # Raise Retry for a temporary failure, Terminal when a retry is useless until the object or
        # its input changes.
        return Done()
