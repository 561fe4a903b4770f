"""kopf 10: delete every Pod 30 seconds after its start, except those of the system."""

from __future__ import annotations

from datetime import UTC, datetime

from kubewright import Controller, Done, Pod

LIFETIME_SECONDS = 30.0


class PodKillerController(Controller[Pod]):
    def __init__(self) -> None:
        self.needs(Pod, "delete")

    async def reconcile(self, pod: Pod) -> Done:
        if pod.metadata.namespace.startswith("kube-") or pod.metadata.creationTimestamp is None:
            return Done()
        age = datetime.now(UTC) - pod.metadata.creationTimestamp
        if (remaining := LIFETIME_SECONDS - age.total_seconds()) > 0:
            return Done(requeue_after_seconds=remaining)
        await self.client.delete(Pod, pod.key, uid=pod.metadata.uid)
        return Done()
