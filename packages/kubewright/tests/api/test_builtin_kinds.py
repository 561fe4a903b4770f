"""The generated kinds of Kubernetes, without an API server."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import kubewright.api
from kubewright.api.apps_v1 import Deployment, DeploymentSpec
from kubewright.api.coordination_v1 import Lease, LeaseSpec
from kubewright.api.core_v1 import (
    Container,
    ContainerPort,
    EmptyDirVolumeSource,
    Pod,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    Secret,
    Volume,
)
from kubewright.api.meta_v1 import LabelSelector
from kubewright.api.networking_v1 import NetworkPolicy, NetworkPolicySpec
from kubewright.api.policy_v1 import PodDisruptionBudget
from kubewright.api.rbac_v1 import Role
from kubewright.api.resource_v1 import DeviceAttribute
from kubewright.condition import find_condition
from kubewright.errors import Undecodable
from kubewright.kind import Object, ObjectMeta
from kubewright.markers import ListType, MapType
from kubewright.overlay import overlay
from kubewright.schema import struct_fields, unwrap_annotation

MODULES = [module.name for module in pkgutil.iter_modules(kubewright.api.__path__)]
MAX_IMPORT_MILLISECONDS = 15


def kinds_of(module: str) -> list[type[Object]]:
    namespace = vars(importlib.import_module(f"kubewright.api.{module}"))
    return [
        value
        for value in namespace.values()
        if isinstance(value, type)
        and issubclass(value, Object)
        and value.__module__ == f"kubewright.api.{module}"
    ]


def new_deployment() -> Deployment:
    labels = {"app": "web"}
    return Deployment(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=DeploymentSpec(
            replicas=0,
            selector=LabelSelector(matchLabels=labels),
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels=labels),
                spec=PodSpec(
                    containers=[
                        Container(
                            name="web",
                            image="web:1",
                            ports=[ContainerPort(containerPort=80)],
                            resources=ResourceRequirements(limits={"cpu": 1, "memory": "1Gi"}),
                        )
                    ],
                    volumes=[Volume(name="tmp", emptyDir=EmptyDirVolumeSource())],
                    hostNetwork=False,
                ),
            ),
        ),
    )


def test_every_module_has_a_kind_but_meta_v1() -> None:
    assert len(MODULES) == 23
    assert [module for module in MODULES if not kinds_of(module)] == ["meta_v1"]


@pytest.mark.parametrize("module", MODULES)
def test_every_kind_decodes(module: str) -> None:
    for kind in kinds_of(module):
        assert kind.definition.external
        assert kind.definition.decoder
        try:
            obj = kind.decode(b'{"metadata": {"name": "a"}, "unknown": 1}')
        except Undecodable as error:
            assert "missing required field" in str(error)  # noqa: PT017  # others decode
        else:
            assert obj.metadata.name == "a"
            assert obj.encode()["kind"] == kind.definition.name


def test_a_desired_object_has_only_what_was_set() -> None:
    assert new_deployment().encode() == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            # Not the default, which is 1.
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [
                        {
                            "name": "web",
                            "image": "web:1",
                            "ports": [{"containerPort": 80}],
                            "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
                        }
                    ],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                    "hostNetwork": False,
                },
            },
        },
    }


def test_an_empty_object_that_means_something_is_sent() -> None:
    policy = NetworkPolicy(spec=NetworkPolicySpec(podSelector=LabelSelector()))
    assert policy.encode()["spec"] == {"podSelector": {}}


def test_a_missing_required_field_is_an_error_of_the_constructor() -> None:
    with pytest.raises(TypeError, match="'name'"):
        Container(image="web:1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Container("web")  # type: ignore[arg-type, call-arg]


def test_objects_can_be_changed() -> None:
    deployment = new_deployment()
    deployment.spec.replicas = 3
    deployment.spec.selector.matchLabels["tier"] = "front"
    spec = deployment.encode()["spec"]
    assert (spec["replicas"], spec["selector"]["matchLabels"]["tier"]) == (3, "front")


def test_null_and_missing_fields_decode() -> None:
    assert Role.decode(b'{"metadata": {"name": "a"}, "rules": null}').rules == []
    budget = PodDisruptionBudget.decode(b'{"status": {"conditions": null}}')
    assert (budget.status.conditions, budget.status.currentHealthy) == ([], None)
    assert new_deployment().status.readyReplicas is None


def test_types_of_values() -> None:
    pod = Pod.decode(
        b"""{"spec": {"containers": [
            {"name": "a", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
             "livenessProbe": {"httpGet": {"port": "http"}}, "imagePullPolicy": "Sometimes"}]},
            "status": {"startTime": "2026-01-02T03:04:05Z"}}"""
    )
    container = pod.spec.containers[0]
    assert container.resources is not None
    assert container.resources.limits == {"cpu": 2, "memory": "1Gi"}
    assert container.livenessProbe is not None
    assert container.livenessProbe.httpGet is not None
    assert container.livenessProbe.httpGet.port == "http"
    # A newer version of Kubernetes may have further values of an enum.
    assert container.imagePullPolicy == "Sometimes"
    assert pod.status.startTime == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_secret_has_bytes_and_a_repr_without_values() -> None:
    secret = Secret.decode(b'{"metadata": {"name": "a"}, "data": {"key": "aHVudGVyMg=="}}')
    assert secret.data == {"key": b"hunter2"}
    secret.stringData = {"other": "hunter3"}
    assert "hunter" not in repr(secret)
    assert "'key', 'other'" in repr(secret)
    assert secret.encode()["data"] == {"key": "aHVudGVyMg=="}


def test_a_micro_time_has_six_digits() -> None:
    def encode_time(time: datetime | None) -> object:
        return Lease(spec=LeaseSpec(renewTime=time)).encode()["spec"].get("renewTime")

    whole = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert encode_time(whole) == "2026-01-02T03:04:05.000000Z"
    assert encode_time(whole.replace(microsecond=120000)) == "2026-01-02T03:04:05.120000Z"
    assert encode_time(None) is None
    lease = Lease(spec=LeaseSpec(acquireTime=whole))
    assert overlay({"spec": {}}, lease)["spec"] == {"acquireTime": "2026-01-02T03:04:05.000000Z"}


def test_a_field_with_the_name_of_a_type_keeps_its_wire_name() -> None:
    assert struct_fields(DeviceAttribute).keys() >= {"bool", "int", "string"}
    assert DeviceAttribute(bool_=True).bool_ is True


def test_merge_keys_are_in_the_annotations() -> None:
    def markers_of(struct: type, field: str) -> list[object]:
        return unwrap_annotation(struct_fields(struct)[field][0], field)[1]

    assert ListType("map", "name") in markers_of(PodSpec, "containers")
    assert ListType("map", "containerPort", "protocol") in markers_of(Container, "ports")
    assert ListType("atomic") in markers_of(Container, "args")
    assert ListType("set") in markers_of(ObjectMeta, "finalizers")
    assert ListType("map", "uid") in markers_of(ObjectMeta, "ownerReferences")
    assert MapType("atomic") in markers_of(PodSpec, "nodeSelector")
    assert LabelSelector.__schema__ == (MapType("atomic"),)


def test_fields_that_the_class_does_not_declare_survive_an_update() -> None:
    deployment = new_deployment()
    stored = deployment.encode()
    stored["spec"]["future"] = {"a": 1}
    stored["spec"]["template"]["spec"]["containers"].insert(0, {"name": "first"})
    stored["spec"]["template"]["spec"]["containers"][1]["future"] = 2
    assert deployment.spec.template.spec is not None
    deployment.spec.template.spec.containers[0].image = "web:2"
    updated = overlay(stored, deployment)
    assert updated["spec"]["future"] == {"a": 1}
    assert updated["spec"]["template"]["spec"]["containers"] == [
        {
            "name": "web",
            "image": "web:2",
            "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
            "future": 2,
        }
    ]


def test_importing_a_kind_is_fast(tmp_path: Path) -> None:
    program = (
        "import kubewright, time; start = time.process_time();"
        "from kubewright.api.apps_v1 import Deployment;"
        "print((time.process_time() - start) * 1000)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    milliseconds = [
        float(
            subprocess.run(
                [sys.executable, "-c", program],
                check=True,
                capture_output=True,
                text=True,
                env=environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)},
            ).stdout
        )
        for _ in range(5)
    ]
    # The first one compiles the modules. Other processes prolong all of them.
    assert min(milliseconds[1:]) <= MAX_IMPORT_MILLISECONDS


def test_conditions_of_any_kind_can_be_found() -> None:
    deployment = Deployment.decode(
        b'{"status": {"conditions": [{"type": "Available", "status": "True"}]}}'
    )
    available = find_condition(deployment.status.conditions, "Available")
    assert available is not None
    assert (available.status, available.lastUpdateTime) == ("True", None)
    assert find_condition(deployment.status.conditions, "Progressing") is None
