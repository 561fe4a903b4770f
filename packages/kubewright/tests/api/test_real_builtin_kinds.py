"""The generated kinds on the real API server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hack.generate_api import INPUT, download_input
from kubewright.api.autoscaling_v2 import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
)
from kubewright.api.batch_v1 import CronJob, CronJobSpec, JobSpec, JobTemplateSpec
from kubewright.api.coordination_v1 import Lease, LeaseSpec
from kubewright.api.core_v1 import (
    ConfigMap,
    Container,
    ContainerPort,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    Secret,
    Service,
    ServicePort,
    ServiceSpec,
    VolumeResourceRequirements,
)
from kubewright.api.discovery_v1 import EndpointSlice
from kubewright.api.meta_v1 import LabelSelector
from kubewright.api.networking_v1 import NetworkPolicy, NetworkPolicySpec
from kubewright.api.policy_v1 import PodDisruptionBudget, PodDisruptionBudgetSpec
from kubewright.api.rbac_v1 import Role
from kubewright.api_requests import request_for
from kubewright.builder.typegen.openapi_input import read_input
from kubewright.client import Client
from kubewright.crd import build_crds
from kubewright.kind import Object, ObjectMeta, Resource, Spec, Status, kind
from kubewright.testing.controlplane import ControlPlane
from kubewright.yaml_text import to_yaml

from ..support.api_harness import ApiHarness
from ..support.kubernetes_version import newest_only
from .test_builtin_kinds import MODULES, kinds_of, new_deployment

LABELS = {"app": "web"}
# Bodies of subresources.
WITHOUT_COLLECTION = {"Eviction", "Scale", "TokenRequest"}


@newest_only
def test_the_committed_input_is_that_of_the_pinned_api_server(control_plane: ControlPlane) -> None:
    assert download_input(control_plane.apiserver) == read_input(INPUT)


@newest_only
def test_every_served_kind_has_a_class_of_its_scope(control_plane: ControlPlane) -> None:
    served = {}
    for line in control_plane.kubectl("api-versions").split():
        group = line.rpartition("/")[0]
        # Other groups are those of CRDs.
        if "." in group and not group.endswith(".k8s.io"):
            continue
        path = f"/apis/{line}" if group else f"/api/{line}"
        for resource in json.loads(control_plane.kubectl("get", "--raw", path))["resources"]:
            if "/" not in resource["name"]:
                served[line, resource["kind"]] = resource["name"], resource["namespaced"]
    definitions = [kind.definition for module in MODULES for kind in kinds_of(module)]
    assert served == {
        (definition.api_version, definition.name): (definition.plural, definition.namespaced)
        for definition in definitions
        if definition.name not in WITHOUT_COLLECTION
    }
    assert len(definitions) == 71


def objects(namespace: str) -> list[Object]:
    def metadata(name: str) -> ObjectMeta:
        return ObjectMeta(name=name, namespace=namespace)

    template = PodTemplateSpec(
        spec=PodSpec(containers=[Container(name="a", image="a:1")], restartPolicy="Never")
    )
    deployment = new_deployment()
    deployment.metadata = metadata("web")
    # The server does not store False here.
    assert deployment.spec.template.spec is not None
    deployment.spec.template.spec.hostNetwork = None
    return [
        deployment,
        Service(
            metadata=metadata("web"),
            spec=ServiceSpec(
                selector=LABELS, ports=[ServicePort(name="http", port=80, targetPort="web")]
            ),
        ),
        ConfigMap(metadata=metadata("a"), data={"key": "value"}, binaryData={"key2": b"\x00"}),
        Secret(metadata=metadata("a"), data={"key": b"value"}, stringData={"key2": "value2"}),
        PersistentVolumeClaim(
            metadata=metadata("a"),
            spec=PersistentVolumeClaimSpec(
                accessModes=["ReadWriteOnce"],
                resources=VolumeResourceRequirements(requests={"storage": "1Gi"}),
            ),
        ),
        # Times without a fraction of a second.
        Lease(
            metadata=metadata("a"),
            spec=LeaseSpec(renewTime=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ),
        CronJob(
            metadata=metadata("a"),
            spec=CronJobSpec(
                schedule="* * * * *",
                suspend=False,
                jobTemplate=JobTemplateSpec(spec=JobSpec(template=template)),
            ),
        ),
        HorizontalPodAutoscaler(
            metadata=metadata("a"),
            spec=HorizontalPodAutoscalerSpec(
                maxReplicas=3,
                scaleTargetRef=CrossVersionObjectReference(
                    apiVersion="apps/v1", kind="Deployment", name="web"
                ),
            ),
        ),
        PodDisruptionBudget(
            metadata=metadata("a"),
            spec=PodDisruptionBudgetSpec(
                minAvailable="50%", selector=LabelSelector(matchLabels=LABELS)
            ),
        ),
        NetworkPolicy(
            metadata=metadata("a"),
            spec=NetworkPolicySpec(podSelector=LabelSelector(), policyTypes=["Ingress"]),
        ),
        # The server answers with `rules: null` and `endpoints: null`.
        Role(metadata=metadata("a")),
        EndpointSlice(metadata=metadata("a"), addressType="IPv4"),
    ]


def is_subset(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and is_subset(value, whole[key]) for key, value in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(is_subset, part, whole))
    # The server writes the quantity 1 as "1".
    return str(part) == str(whole)


async def test_objects_are_stored_as_they_are(real_api: ApiHarness) -> None:
    for obj in objects(real_api.namespace):
        created = await real_api.client.create(obj)
        stored = await real_api.client.get(type(obj), obj.key)
        assert stored == created
        desired = obj.encode()
        # The server moves it into `data`.
        desired.pop("stringData", None)
        assert is_subset(desired, stored.encode()), desired


@pytest.mark.parametrize("index", range(12))
async def test_applying_a_decoded_object_changes_nothing(real_api: ApiHarness, index: int) -> None:
    """The types lose nothing that the API server stores in these objects."""
    obj = objects(real_api.namespace)[index]
    await real_api.client.create(obj)
    before = await get_json(real_api.client, obj)
    await real_api.client.update(await real_api.client.get(type(obj), obj.key))
    assert await get_json(real_api.client, obj) == before


async def get_json(client: Client, obj: Object) -> Any:
    """Every field that is stored, also those that the class does not declare."""
    raw = await client.transport.send(request_for("GET", obj.definition, obj.key))
    stored: dict[str, Any] = json.loads(raw)
    for name in ("managedFields", "resourceVersion"):
        stored["metadata"].pop(name, None)
    return stored


class AppSpec(Spec, kw_only=True):
    template: PodTemplateSpec
    resources: ResourceRequirements | None = None


@kind("embedding.example.com/v1")
class App(Resource[AppSpec, Status]):
    """A kind with parts of built-in kinds."""


async def test_types_of_kubernetes_in_a_kind_of_ours(
    control_plane: ControlPlane, real_api: ApiHarness, tmp_path: Path
) -> None:
    file = tmp_path / "crd.yaml"
    file.write_text(to_yaml(*build_crds([App])))
    control_plane.apply(file)
    name = App.definition.group_resource
    control_plane.wait_for_crds(name)
    app = App(
        metadata=ObjectMeta(name="a", namespace=real_api.namespace),
        spec=AppSpec(
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels=LABELS),
                spec=PodSpec(
                    containers=[
                        Container(name="a", ports=[ContainerPort(name="web", containerPort=80)])
                    ]
                ),
            ),
            resources=ResourceRequirements(limits={"cpu": "100m"}),
        ),
    )
    stored = await real_api.client.create(app)
    assert is_subset(app.encode()["spec"], stored.encode()["spec"])
    # The default of Kubernetes, without which a list-map key would be missing.
    assert stored.spec.template.spec is not None
    assert stored.spec.template.spec.containers[0].ports[0].protocol == "TCP"
    control_plane.kubectl("delete", "crd", name)
