"""`mark_ready` on the fake and on the real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kubewright.api.apps_v1 import (
    DaemonSet,
    DaemonSetSpec,
    Deployment,
    DeploymentSpec,
    ReplicaSet,
    ReplicaSetSpec,
    StatefulSet,
    StatefulSetSpec,
)
from kubewright.api.batch_v1 import Job, JobSpec
from kubewright.api.core_v1 import (
    ConfigMap,
    Container,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    Pod,
    PodSpec,
    PodTemplateSpec,
    VolumeResourceRequirements,
)
from kubewright.api.meta_v1 import LabelSelector
from kubewright.builtin import PodMetadata
from kubewright.errors import ConfigError
from kubewright.kind import Key, Object, ObjectMeta
from kubewright.readiness import readiness_of
from kubewright.testing import mark_ready

from ..support.api_harness import ApiHarness

LABELS = {"app": "a"}
SELECTOR = LabelSelector(matchLabels=LABELS)


def pod_spec(**fields: Any) -> PodSpec:
    return PodSpec(containers=[Container(name="main", image="web:1")], **fields)


def template(**fields: Any) -> PodTemplateSpec:
    return PodTemplateSpec(metadata=ObjectMeta(labels=LABELS), spec=pod_spec(**fields))


def new_objects(namespace: str) -> list[Object]:
    metadata = ObjectMeta(name="a", namespace=namespace)
    indexed = JobSpec(
        completionMode="Indexed",
        completions=3,
        parallelism=2,
        template=PodTemplateSpec(spec=pod_spec(restartPolicy="Never")),
    )
    claim = PersistentVolumeClaimSpec(
        accessModes=["ReadWriteOnce"],
        resources=VolumeResourceRequirements(requests={"storage": "1Gi"}),
    )
    return [
        Deployment(
            metadata=metadata,
            spec=DeploymentSpec(replicas=3, selector=SELECTOR, template=template()),
        ),
        ReplicaSet(metadata=metadata, spec=ReplicaSetSpec(selector=SELECTOR, template=template())),
        StatefulSet(
            metadata=metadata,
            spec=StatefulSetSpec(serviceName="a", selector=SELECTOR, template=template()),
        ),
        DaemonSet(metadata=metadata, spec=DaemonSetSpec(selector=SELECTOR, template=template())),
        Pod(metadata=metadata, spec=pod_spec()),
        Job(metadata=metadata, spec=JobSpec(template=template(restartPolicy="Never"))),
        Job(metadata=ObjectMeta(name="indexed", namespace=namespace), spec=indexed),
        PersistentVolumeClaim(metadata=metadata, spec=claim),
    ]


async def test_every_supported_kind_becomes_current(api: ApiHarness) -> None:
    for obj in new_objects(api.namespace):
        await api.client.create(obj)
        # Twice: the status of an object that is ready can be written again.
        for _ in range(2):
            ready = await mark_ready(api.client, type(obj), obj.key)
            readiness = readiness_of(ready)
            assert readiness.is_current, (type(obj).__name__, readiness)
        assert readiness_of(await api.client.get(type(obj), obj.key)).is_current


async def test_a_changed_object_can_be_marked_again(api: ApiHarness) -> None:
    [deployment, *_] = new_objects(api.namespace)
    await api.client.create(deployment)
    await mark_ready(api.client, Deployment, deployment.key)
    patch = {"spec": {"replicas": 5}}
    assert not readiness_of(await api.client.patch(Deployment, deployment.key, patch)).is_current
    changed = await mark_ready(api.client, Deployment, deployment.key)
    assert changed.status.availableReplicas == 5
    assert readiness_of(changed).is_current


async def test_a_class_with_metadata_only(api: ApiHarness) -> None:
    pod = Pod(metadata=ObjectMeta(name="a", namespace=api.namespace), spec=pod_spec())
    await api.client.create(pod)
    await mark_ready(api.client, PodMetadata, pod.key)
    assert (await api.client.get(Pod, pod.key)).status.phase == "Running"


async def test_other_kinds_are_rejected_with_the_supported_ones(api: ApiHarness) -> None:
    message = (
        "mark_ready does not support ConfigMap, only DaemonSet, Deployment, Job, "
        "PersistentVolumeClaim, Pod, ReplicaSet, StatefulSet; write the status with "
    )
    with pytest.raises(ConfigError, match=message):
        await mark_ready(api.client, ConfigMap, Key(api.namespace, "a"))
