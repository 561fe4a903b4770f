"""Site: its types and its controller."""

from __future__ import annotations

from typing import Annotated

from kubewright import (
    Column,
    Controller,
    Doc,
    Done,
    Int32,
    ObjectMeta,
    Resource,
    Spec,
    Status,
    Waiting,
    kind,
)
from kubewright.api.apps_v1 import Deployment, DeploymentSpec
from kubewright.api.core_v1 import (
    ConfigMap,
    Container,
    PodSpec,
    PodTemplateSpec,
    Service,
    ServicePort,
    ServiceSpec,
)
from kubewright.api.meta_v1 import LabelSelector


class SiteSpec(Spec):
    """The desired state."""

    image: Annotated[str, Doc("Image to run.")]
    replicas: Annotated[Int32, Doc("Number of Pods.")] = 1


# Conditions and observedGeneration come with Status. A field that is None is not written.
class SiteStatus(Status):
    """The observed state."""


@kind(
    "demo.example.com/v1",
    columns=[Column("Image", ".spec.image"), Column("Replicas", ".spec.replicas")],
)
class Site(Resource[SiteSpec, SiteStatus]):
    # A docstring here is the description of the kind in `kubectl explain`.
    pass


def build_deployment(site: Site) -> Deployment:
    labels = {"app.kubernetes.io/instance": site.metadata.name}
    container = Container(name="main", image=site.spec.image)
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[container])
    )
    return Deployment(
        metadata=ObjectMeta(name=site.metadata.name, labels=labels),
        spec=DeploymentSpec(
            replicas=site.spec.replicas,
            selector=LabelSelector(matchLabels=labels),
            template=template,
        ),
    )


def build_service(site: Site) -> Service:
    labels = {"app.kubernetes.io/instance": site.metadata.name}
    return Service(
        metadata=ObjectMeta(name=site.metadata.name, labels=labels),
        spec=ServiceSpec(selector=labels, ports=[ServicePort(port=80)]),
    )


def build_configmap(site: Site) -> ConfigMap:
    metadata = ObjectMeta(name=site.metadata.name)
    return ConfigMap(metadata=metadata, data={"example": "value"})


class SiteController(Controller[Site]):
    """Keeps the children of every Site as they are built above.

    To reconcile when other objects change, or to write them, declare it in __init__ with
    `watches` and `needs`.
    """

    def __init__(self) -> None:
        self.owns(Deployment, Service, ConfigMap)

    async def reconcile(self, site: Site) -> Done | Waiting:
        # A child that is not passed any more is deleted. Pass None for an optional one.
        children = await self.apply(
            site, build_deployment(site), build_service(site), build_configmap(site)
        )
        return children.outcome()
