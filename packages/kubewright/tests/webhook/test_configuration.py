from __future__ import annotations

from typing import Any

import pytest

from kubewright import Admission, Webhook, rbac
from kubewright.builtin import ConfigMap, Pod
from kubewright.controller import Controller
from kubewright.crd import build_crds
from kubewright.errors import ConfigError
from kubewright.webhook import WebhookClientConfig, build_configurations, with_conversions
from kubewright.webhook.ca_bundle import ca_permissions
from kubewright.webhook.options import WebhookOptions

from ..support.widget_kind import Widget
from .box_kind import Box, BoxConversion, BoxWebhook, OldBox

SERVICE_CLIENT_CONFIG = WebhookClientConfig(namespace="sys", service="op-webhook-service")


class PodWebhook(Webhook[Pod]):
    failure_policy = "Ignore"
    timeout_seconds = 2
    include_terminating = True
    side_effects = "NoneOnDryRun"
    object_selector = {"matchLabels": {"a": "b"}}

    async def validate_deletion(self, pod: Pod, request: Admission) -> None: ...


def test_configurations_of_a_webhook() -> None:
    [mutating, validating] = build_configurations([BoxWebhook()], SERVICE_CLIENT_CONFIG, name="op")
    rule = {
        "apiGroups": ["hooks.kubewright.test"],
        "apiVersions": ["v2"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["boxes"],
        "scope": "Namespaced",
    }
    condition = {
        "name": "not-while-deleting",
        "expression": "request.operation != 'UPDATE' || !has(oldObject.metadata.deletionTimestamp)",
    }
    service = {
        "namespace": "sys",
        "name": "op-webhook-service",
        "path": "/validate-hooks-kubewright-test-v2-box",
        "port": 443,
    }
    assert validating == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "op-validating-webhook-configuration"},
        "webhooks": [
            {
                "name": "validate.boxes.hooks.kubewright.test",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": service},
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "sideEffects": "None",
                "timeoutSeconds": 5,
                "rules": [rule],
                "matchConditions": [condition],
            }
        ],
    }
    assert mutating["metadata"] == {"name": "op-mutating-webhook-configuration"}
    [entry] = mutating["webhooks"]
    assert (entry["name"], entry["reinvocationPolicy"]) == (
        "mutate.boxes.hooks.kubewright.test",
        "IfNeeded",
    )
    assert entry["rules"] == [rule]


def test_configuration_follows_the_class_attributes() -> None:
    [validating] = build_configurations(
        [PodWebhook()],
        SERVICE_CLIENT_CONFIG,
        name="op",
        annotations={"cert-manager.io/inject-ca-from": "sys/cert"},
    )
    assert validating["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "sys/cert"}
    [entry] = validating["webhooks"]
    assert entry["rules"][0]["operations"] == ["DELETE"]
    assert (entry["failurePolicy"], entry["timeoutSeconds"], entry["sideEffects"]) == (
        "Ignore",
        2,
        "NoneOnDryRun",
    )
    assert "matchConditions" not in entry
    kept_out = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", "sys"],
    }
    assert entry["namespaceSelector"] == {"matchExpressions": [kept_out]}
    assert entry["objectSelector"] == {"matchLabels": {"a": "b"}}
    assert entry["name"] == "validate.pods.core"


def test_conversion_is_added_to_its_crds_only() -> None:
    crds = with_conversions(
        build_crds([Box, OldBox, Widget]),
        [BoxConversion()],
        WebhookClientConfig(url="https://here:1", ca_bundle=b"ca"),
    )
    by_name = {crd["metadata"]["name"]: crd["spec"].get("conversion") for crd in crds}
    assert by_name == {
        "boxes.hooks.kubewright.test": {
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": {"url": "https://here:1/convert", "caBundle": "Y2E="},
                "conversionReviewVersions": ["v1"],
            },
        },
        "widgets.kubewright.test": None,
    }


def test_second_webhook_of_a_kind_is_an_error() -> None:
    class Other(Webhook[OldBox]):
        async def validate(self, box: OldBox, old: OldBox | None, request: Admission) -> None: ...

    with pytest.raises(
        ConfigError, match=r"two webhooks for boxes.hooks.kubewright.test, BoxWebhook and Other"
    ):
        build_configurations([BoxWebhook(), Other()], SERVICE_CLIENT_CONFIG, name="op")


def test_permissions_of_the_own_ca_are_limited_to_names() -> None:
    cluster_wide, namespaced = ca_permissions(
        [BoxWebhook()], [BoxConversion()], WebhookOptions(), name="op"
    )
    configured = {"apiGroups": ["admissionregistration.k8s.io"], "verbs": ["get", "patch"]}
    assert rbac.build_rules(cluster_wide) == [
        configured
        | {
            "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": ["op-mutating-webhook-configuration"],
        },
        configured
        | {
            "resources": ["validatingwebhookconfigurations"],
            "resourceNames": ["op-validating-webhook-configuration"],
        },
        {
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "resourceNames": ["boxes.hooks.kubewright.test"],
            "verbs": ["get", "patch"],
        },
    ]
    assert rbac.build_rules(namespaced) == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["op-webhook-ca"],
            "verbs": ["get", "patch"],
        },
    ]


def test_no_permissions_without_an_own_ca() -> None:
    files: Any = ([BoxWebhook()], [BoxConversion()], WebhookOptions(certificate_dir="/certs"))
    nothing: Any = ([], [], WebhookOptions())
    for parts in (files, nothing):
        assert ca_permissions(*parts, name="op") == ([], [])


def test_needs_of_a_webhook_are_in_the_role_of_the_manager() -> None:
    class ReadingWebhook(BoxWebhook):
        def __init__(self) -> None:
            super().__init__()
            self.needs(ConfigMap, "get", resource_names=("limits",))

    class WidgetController(Controller[Widget]): ...

    rules = rbac.manager_rules([WidgetController()], [ReadingWebhook()])
    assert {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["limits"],
        "verbs": ["get"],
    } in rules
    assert {
        "apiGroups": ["kubewright.test"],
        "resources": ["widgets/status"],
        "verbs": ["patch", "update"],
    } in rules
