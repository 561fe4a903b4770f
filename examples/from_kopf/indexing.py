"""kopf 16: read other objects from memory, by an index."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example, ExampleStatus
from kubewright import Controller, Done, Pod


class IndexingController(Controller[Example]):
    def __init__(self) -> None:
        self.indexes(
            Pod,
            phase=lambda pod: pod.status.phase,
            label=lambda pod: [f"{name}={value}" for name, value in pod.metadata.labels.items()],
        )

    async def reconcile(self, example: Example) -> Done:
        running = self.cache.by_index(Pod, "phase", "Running")
        web = self.cache.by_index(Pod, "label", "app=web")
        self.log.info("counted", pods=len(self.cache.all(Pod)), web=len(web))
        example.status = ExampleStatus(runningPods=sorted(str(pod.key) for pod in running))
        return Done(requeue_after_seconds=5)
