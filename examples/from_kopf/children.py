"""kopf 02: a Pod for each object."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example, ExampleStatus
from kubewright import Controller, Done, ObjectMeta, Waiting
from kubewright.api.core_v1 import Container, EnvVar, Pod, PodSpec


class ChildrenController(Controller[Example]):
    def __init__(self) -> None:
        self.owns(Pod)

    async def reconcile(self, example: Example) -> Done | Waiting:
        pod = Pod(
            metadata=ObjectMeta(name=example.metadata.name),
            spec=PodSpec(
                containers=[
                    Container(
                        name="the-only-one",
                        image="busybox",
                        command=["sh", "-x", "-c"],
                        args=[f'echo "FIELD=$FIELD"; sleep {example.spec.duration}'],
                        env=[EnvVar(name="FIELD", value=example.spec.field or "default-value")],
                    )
                ]
            ),
        )
        children = await self.apply(example, pod)
        example.status = ExampleStatus(children=[children.live(pod).metadata.uid])
        return children.outcome()
