"""A MyApp becomes a Deployment and all that it needs: a Service, an Ingress and more."""

from __future__ import annotations

from typing import Annotated

from kubewright import Controller, Doc, Done, ObjectMeta, Resource, Spec, Status, Waiting, kind
from kubewright.api import apps_v1 as apps
from kubewright.api import autoscaling_v2 as scaling
from kubewright.api import core_v1 as core
from kubewright.api import networking_v1 as networking
from kubewright.api.meta_v1 import LabelSelector


class MyAppSpec(Spec):
    image: Annotated[str, Doc("Image of the container.", min_length=1)]
    replicas: Annotated[int, Doc("Number of Pods; with maxReplicas the least number.", ge=1)] = 1
    maxReplicas: Annotated[int | None, Doc("Scale by CPU usage up to this number.", ge=1)] = None
    port: Annotated[int, Doc("Port that the container serves.", ge=1, le=65535)] = 8080
    host: Annotated[str | None, Doc("Host name; an Ingress exists if it is set.")] = None
    config: Annotated[dict[str, str], Doc("Files in /etc/config of the container.")] = {}


class MyAppStatus(Status):
    readyReplicas: Annotated[int, Doc("Number of ready Pods.")] = 0
    address: Annotated[str | None, Doc("IP address of the Service.")] = None


@kind("examples.kubewright.dev/v1")
class MyApp(Resource[MyAppSpec, MyAppStatus]):
    """An application."""


class MyAppController(Controller[MyApp]):
    def __init__(self) -> None:
        self.owns(core.ConfigMap, core.ServiceAccount, core.Service, apps.Deployment)
        self.owns(networking.Ingress, scaling.HorizontalPodAutoscaler)

    async def reconcile(self, app: MyApp) -> Done | Waiting:
        meta = ObjectMeta(name=app.metadata.name, labels={"app": app.metadata.name})
        config = core.ConfigMap(metadata=meta, data=app.spec.config)
        account = core.ServiceAccount(metadata=meta, automountServiceAccountToken=False)
        deployment = build_deployment(app.spec, meta)
        port = core.ServicePort(port=80, targetPort=app.spec.port)
        service_spec = core.ServiceSpec(selector=meta.labels, ports=[port])
        service = core.Service(metadata=meta, spec=service_spec)
        optional = build_ingress(app.spec, meta), build_autoscaler(app.spec, meta)
        children = await self.apply(app, config, account, deployment, service, *optional)
        app.status.readyReplicas = children.live(deployment).status.readyReplicas or 0
        app.status.address = children.live(service).spec.clusterIP
        return children.outcome()


def build_deployment(spec: MyAppSpec, meta: ObjectMeta) -> apps.Deployment:
    mount = core.VolumeMount(name="config", mountPath="/etc/config")
    port = core.ContainerPort(containerPort=spec.port)
    container = core.Container(name="app", image=spec.image, ports=[port], volumeMounts=[mount])
    volume = core.Volume(name="config", configMap=core.ConfigMapVolumeSource(name=meta.name))
    pod = core.PodSpec(containers=[container], volumes=[volume], serviceAccountName=meta.name)
    template = core.PodTemplateSpec(metadata=ObjectMeta(labels=meta.labels), spec=pod)
    selector = LabelSelector(matchLabels=meta.labels)
    deployment = apps.DeploymentSpec(selector=selector, template=template)
    # The number of Pods belongs to the autoscaler, if there is one.
    deployment.replicas = None if spec.maxReplicas else spec.replicas
    return apps.Deployment(metadata=meta, spec=deployment)


def build_ingress(spec: MyAppSpec, meta: ObjectMeta) -> networking.Ingress | None:
    if spec.host is None:
        return None
    port = networking.ServiceBackendPort(number=80)
    service = networking.IngressServiceBackend(name=meta.name, port=port)
    backend = networking.IngressBackend(service=service)
    path = networking.HTTPIngressPath(path="/", pathType="Prefix", backend=backend)
    http = networking.HTTPIngressRuleValue(paths=[path])
    ingress = networking.IngressSpec(rules=[networking.IngressRule(host=spec.host, http=http)])
    return networking.Ingress(metadata=meta, spec=ingress)


def build_autoscaler(spec: MyAppSpec, meta: ObjectMeta) -> scaling.HorizontalPodAutoscaler | None:
    if spec.maxReplicas is None:
        return None
    target = scaling.CrossVersionObjectReference(
        apiVersion="apps/v1", kind="Deployment", name=meta.name
    )
    autoscaler = scaling.HorizontalPodAutoscalerSpec(
        scaleTargetRef=target, minReplicas=spec.replicas, maxReplicas=spec.maxReplicas
    )
    return scaling.HorizontalPodAutoscaler(metadata=meta, spec=autoscaler)
