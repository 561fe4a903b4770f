"""What installed the manager, and the fixes that fit it, on a fake API server."""

from __future__ import annotations

import pytest

from kubewright import Client, Key
from kubewright.builtin import Lease, Node
from kubewright.errors import Forbidden
from kubewright.testing.fake import FakeApi
from vsphere_operators.doctor import crds
from vsphere_operators.doctor.installation import (
    DeploymentMetadata,
    Installation,
    find_installation,
)
from vsphere_operators.doctor.rbac import Grant, _binding_command
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.leader_lease import LEASE_NAME, SYSTEM_NAMESPACE
from vsphere_operators.manager_pods import ManagerPod

SELECTED = {"app.kubernetes.io/name": "vsphere-operators", "control-plane": "controller-manager"}
HELM_LABELS = {"app.kubernetes.io/managed-by": "Helm"}
RELEASE = {"meta.helm.sh/release-name": "mine"}
GRANT = Grant(role="vsphere-operators-manager-role", rules=[])
HELM_COMMAND = "helm upgrade mine CHART -n ops --reset-then-reuse-values --set rbac.create=true"


def add_deployment(
    api: FakeApi,
    namespace: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> None:
    metadata = {
        "name": "vsphere-operators-controller-manager",
        "labels": SELECTED | (labels or {}),
        "annotations": annotations or {},
    }
    template = {
        "metadata": {"labels": SELECTED},
        "spec": {"containers": [{"name": "manager", "image": "m"}]},
    }
    spec = {"selector": {"matchLabels": SELECTED}, "template": template}
    path = DeploymentMetadata.definition.path(namespace)
    api.create(path, {"metadata": metadata, "spec": spec})


def add_lease(api: FakeApi, namespace: str, labels: dict[str, str]) -> None:
    metadata = {"name": LEASE_NAME, "labels": labels, "annotations": RELEASE}
    api.create(Lease.definition.path(namespace), {"metadata": metadata})


async def find(api: FakeApi, namespace: str = "ops") -> Installation:
    return await find_installation(Client(api), Key(namespace, LEASE_NAME))


async def test_deployment_shows_the_tool() -> None:
    api = FakeApi()
    assert await find(api) == Installation()
    add_deployment(api, "other", HELM_LABELS, RELEASE)
    assert await find(api) == Installation(namespace="other", tool="helm", release="mine")
    add_deployment(api, SYSTEM_NAMESPACE)
    assert await find(api) == Installation()
    add_deployment(api, "ops", HELM_LABELS, RELEASE)
    assert await find(api) == Installation(namespace="ops", tool="helm", release="mine")


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [(HELM_LABELS, {}), (HELM_LABELS | {"helm.toolkit.fluxcd.io/name": "mine"}, RELEASE)],
)
async def test_chart_of_argo_cd_or_flux_is_changed_in_git(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    api = FakeApi()
    add_deployment(api, "ops", labels, annotations)
    installation = await find(api)
    assert (installation.tool, installation.release) == ("helm", "")
    command = installation.change_command("kubectl apply", "rbac.create=true")
    assert command == "# set rbac.create=true in the values of the chart, in your git repository"


async def test_lease_shows_the_tool_to_the_account_of_the_manager() -> None:
    api = FakeApi()
    forbidden = Forbidden("deployments.apps is forbidden")
    api.fail_next("GET", "deployments", forbidden, times=4)
    assert (await find(api)).tool == "kubectl"
    add_lease(api, "ops", HELM_LABELS)
    assert await find(api) == Installation(namespace="ops", tool="helm", release="mine")
    add_lease(api, "plain", {})
    assert await find(api, "plain") == Installation(namespace="plain")
    api.fail_next("GET", "leases", Forbidden("leases is forbidden"), times=2)
    assert await find(api) == Installation(namespace="ops", tool="unknown")


async def test_secret_is_the_one_that_the_pod_mounts() -> None:
    api = FakeApi()
    add_deployment(api, "ops", HELM_LABELS, RELEASE)
    mount = {"name": "vc-creds", "mountPath": "/etc/vc-creds"}
    spec = {
        "containers": [{"name": "manager", "image": "m", "volumeMounts": [mount]}],
        "volumes": [{"name": "vc-creds", "secret": {"secretName": "my-creds"}}],
    }
    body = {"metadata": {"name": "manager", "labels": SELECTED}, "spec": spec}
    api.create(ManagerPod.definition.path("ops"), body)
    command = (await find(api)).credentials_command("/etc/vc-creds", "VCENTER")
    assert command.startswith("kubectl -n ops create secret generic my-creds ")
    assert " --from-literal=GOVMOMI_URL=VCENTER " in command
    assert "create secret generic vc-creds " in Installation().credentials_command(
        "/etc/vc-creds", "VCENTER"
    )


@pytest.mark.parametrize(
    ("user", "tool", "expected"),
    [
        ("system:serviceaccount:ops:renamed", "helm", HELM_COMMAND),
        (
            "system:serviceaccount:ops:controller-manager",
            "unknown",
            "helm upgrade RELEASE CHART -n ops --reset-then-reuse-values --set rbac.create=true"
            "   # installed without Helm: kubectl apply --server-side -k config/rbac",
        ),
        (
            "ann",
            "helm",
            "kubectl create clusterrolebinding vsphere-operators-manager-role-ann "
            "--clusterrole=vsphere-operators-manager-role --user=ann"
            f"   # if the role does not exist, first: {HELM_COMMAND}",
        ),
    ],
)
def test_permissions_are_granted_by_the_tool(user: str, tool: str, expected: str) -> None:
    helm = Installation(namespace="ops", tool="helm", release="mine")
    unknown = Installation(namespace="ops", tool="unknown")
    assert _binding_command(user, GRANT, helm if tool == "helm" else unknown) == expected


async def test_kinds_of_kubernetes_are_not_counted_as_crds() -> None:
    helm = Installation(namespace="ops", tool="helm", release="mine")
    findings = [finding async for finding in crds.check(Client(FakeApi()), [HostInfo, Node], helm)]
    assert [finding.level for finding in findings] == ["problem"]
    assert findings[0].message.startswith("1 of 1 CRDs are not installed: hostinfoes.")
    assert findings[0].fix.endswith(" --set crds.install=true")
