"""Copies the label `team` of a Namespace to its Pods: a controller of an external kind.

It keeps only metadata of Pods in memory, and writes nothing but the label. It needs no CRD, and no
permission for the status of Pods.
"""

from __future__ import annotations

from kubewright import Controller, Key, Namespace, Pod, select

LABEL = "team"


class PodLabelController(Controller[Pod]):
    kind = select(Pod, metadata_only=True)

    def __init__(self) -> None:
        self.watches(Namespace, index_by=lambda pod: pod.metadata.namespace)
        self.needs(Pod, "patch")

    async def reconcile(self, pod: Pod) -> None:
        namespace = self.cache.get(Namespace, Key("", pod.metadata.namespace))
        team = namespace.metadata.labels.get(LABEL) if namespace is not None else None
        if team != pod.metadata.labels.get(LABEL):
            # None removes a label.
            await self.client.patch(self.kind, pod.key, {"metadata": {"labels": {LABEL: team}}})
