"""Least privilege: the generated role allows what the manager does, and little else."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.cluster_access import HttpClient
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import SPEC_FIELDS, InfoClient, write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    MANAGER_USER,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    create_pod,
    create_resource,
    ready_condition,
    run_manager,
    wait_for_status,
)
from support.vmgroup_client import VmGroupClient

from .audit_log import Permission, list_forbidden_messages, list_granted, list_used
from .crash_run import run_simulator
from .gpu_cluster import GPUINFOS_PATH, NODE_UUIDS, GpuCluster
from .test_topology import PageReader, read_address

HOST_NAME, DISK_NAME, NODE_NAME = (
    "esxi-dell-e.rainpole.com",
    "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43",
    "worker-1",
)
NODE_UUID = NODE_UUIDS[NODE_NAME]
VCENTER_FLAGS = (
    f"--host-name={HOST_NAME}",
    f"--fcd={DISK_NAME}",
    f"--node={NODE_NAME}={NODE_UUID}",
    f"--gpu-vm={NODE_NAME}=vgpu",
)
CONFIGMAPS_PATH = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
# Permissions that this test does not use, with the reason why the manager has them.
JUSTIFIED_PERMISSIONS: dict[Permission, str] = {
    Permission("list", "coordination.k8s.io", "leases"): "replicas with -shards list all Leases",
}


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *VCENTER_FLAGS
    ) as simulator:
        await simulator.set_stats(NODE_NAME, overallCpuDemand=1000, guestMemoryUsage=512)
        yield simulator


@pytest.fixture
async def prepared_cluster(
    installed: ControlPlane, namespace: str, config: Path
) -> AsyncIterator[GpuCluster]:
    """A cluster with all kinds and optional roles, before the first leader."""
    cluster = GpuCluster(installed, namespace)
    optional = ("apply", "-n", namespace, "-f", str(config / "optional/cloud-init-secrets.yaml"))
    names = (
        "optional/label-suitable-nodes.yaml",
        "optional/maintenance-calendar.yaml",
        "components/label-nodes/role.yaml",
        "components/page/role.yaml",
    )
    files = [argument for name in names for argument in ("-f", str(config / name))]
    installed.kubectl(*optional)
    installed.kubectl("apply", *files)
    installed.kubectl("-n", SYSTEM_NAMESPACE, "delete", "lease", "--all")
    installed.kubectl("label", "namespace", namespace, "tier=gold")
    installed.kubectl(
        "-n",
        namespace,
        "create",
        "secret",
        "generic",
        "boot",
        "--from-literal=user-data=#cloud-config",
    )
    installed.kubectl("-n", namespace, "create", "serviceaccount", "reader")
    await cluster.add_node(NODE_NAME, f"vsphere://{NODE_UUID}")
    await cluster.call(
        "POST", CONFIGMAPS_PATH, {"metadata": {"name": "maintenance"}, "data": {"windows": ""}}
    )
    yield cluster
    await cluster.call("DELETE", f"{CONFIGMAPS_PATH}/maintenance")
    await cluster.remove_nodes()
    installed.kubectl("delete", *files)


def make_flags(vcenter: SimulatedVCenter, kubeconfig: Path, folder: Path) -> tuple[str, ...]:
    """The flags that turn on everything that needs a permission."""
    credentials, file = write_credentials(folder / "vc-creds", vcenter), folder / "vcenters.yaml"
    connection = f"server: '{vcenter.url}', credentials: {credentials}, ca: {vcenter.certificate}"
    file.write_text(
        f"vcenters:\n- {{name: west, {connection}, namespaces: {{labels: {{tier: gold}}}}}}\n"
    )
    return (
        f"--kubeconfig={kubeconfig}",
        *FREE_PORT_FLAGS,
        f"--vcenters={file}",
        "--label-suitable-nodes",
        "--label-nodes",
        "-ui-bind-address=127.0.0.1:0",
        f"--maintenance-calendar={SYSTEM_NAMESPACE}/maintenance",
        "--leader-elect",
        f"--leader-election-namespace={SYSTEM_NAMESPACE}",
        "--metrics-secure",
    )


async def use_all_kinds(cluster: GpuCluster) -> None:
    """Creates, changes and deletes objects of all kinds."""
    plane, namespace = cluster.control_plane, cluster.namespace
    infos, groups = InfoClient(plane, namespace), VmGroupClient(plane, namespace)
    asked = {
        "HostInfo": HOST_NAME,
        "VMInfo": NODE_NAME,
        "FCDInfo": DISK_NAME,
        "DatastoreInfo": "LocalDS_0",
        "ClusterInfo": "DC0_C0",
    }
    for kind, name in asked.items():
        await infos.create(kind, "x", name)
    await cluster.create_gpuinfo("gpu", 100, True)
    await groups.create("web", replicas=1, bootstrap={"cloudInit": {"secretName": "boot"}})
    create_resource(plane, namespace, "joe", spec={"name": "funny-joe"})
    create_pod(plane, namespace, "funny-joe")
    await wait_for_status(plane, namespace, "joe", "FriendFound")
    # The first status is an update, a change is a patch.
    for kind in asked:
        await infos.wait_for_status(kind, "x")
        await infos.patch(kind, "x", {"spec": {SPEC_FIELDS[kind]: "unknown"}})
        await wait_until_not_ready(infos, kind)
    await cluster.wait_for_node("gpu", NODE_NAME)
    patch = '{"spec": {"desAccTime": 1000000}}'
    plane.kubectl("-n", namespace, "patch", "gpuinfo", "gpu", "--type=merge", "-p", patch)
    await cluster.wait_for_node("gpu", "None available")
    await groups.wait_for_phase("web", "RUNNING")
    await groups.patch_spec("web", replicas=2)
    await groups.wait_for_phase(
        "web", "RUNNING", predicate=lambda status: status["currentReplicas"] == 2
    )
    await groups.delete("web")
    await groups.wait_until_deleted("web")
    await cluster.call("DELETE", f"{GPUINFOS_PATH.format(namespace=namespace)}/gpu")


async def wait_until_not_ready(infos: InfoClient, kind: str) -> None:
    async def is_not_ready() -> bool:
        return ready_condition(await infos.get(kind, "x")).get("status") == "False"

    await eventually(is_not_ready, within=60)


async def use_page(manager: ManagerProcess, cluster: GpuCluster) -> None:
    """Reads everything that the page shows."""
    page = PageReader(await read_address(manager))
    vm = await page.wait_for("vms", node=NODE_NAME)
    await page.wait_for("nodes", id=NODE_NAME, pods=0)
    assert not (await page.get(f"/topology/what-if/hosts/{vm['host']}")).get("problems")
    assert (await page.get(f"/topology/nodes/{NODE_NAME}/pods"))["pods"] == []
    namespace = cluster.namespace
    paths = (
        f"hostinfoes/{namespace}/x",
        f"mycustomresources/{namespace}/joe",
        f"pods/{namespace}/funny-joe",
        f"nodes/{NODE_NAME}",
    )
    for path in paths:
        details = await page.get(f"/topology/objects/{path}")
        assert details["yaml"]
        assert not details.get("problems")


async def wait_for_node_labels(cluster: GpuCluster) -> None:
    plane = cluster.control_plane

    def is_labeled() -> bool:
        node = plane.kubectl("get", "node", NODE_NAME, "-o", "json")
        return "topology.corinternal.com/host" in node and "VSphereHostPressure" in node

    await eventually(is_labeled, within=30)


async def repeat_event(plane: ControlPlane, namespace: str) -> None:
    """Causes the same Event twice, so that its count is increased."""
    create_resource(plane, namespace, "nameless")
    for name, reason in (("", "NameMissing"), ("unknown", "NoFriend"), ("", "NameMissing")):
        plane.kubectl(
            "-n",
            namespace,
            "patch",
            "mycustomresource",
            "nameless",
            "--type=merge",
            "-p",
            f'{{"spec": {{"name": "{name}"}}}}',
        )
        await wait_for_status(plane, namespace, "nameless", reason)
    await eventually(
        lambda: (
            "2"
            in plane.kubectl(
                "-n", namespace, "get", "events", "-o", "jsonpath={.items[*].count}"
            ).split()
        )
    )


async def test_manager_uses_exactly_the_generated_roles(
    prepared_cluster: GpuCluster,
    simulator: SimulatedVCenter,
    manager_kubeconfig: Path,
    log_file: Path,
    tmp_path: Path,
) -> None:
    plane, namespace = prepared_cluster.control_plane, prepared_cluster.namespace
    given = await asyncio.to_thread(list_granted, plane, SYSTEM_NAMESPACE, SERVICE_ACCOUNT)
    async with run_manager(
        log_file, *make_flags(simulator, manager_kubeconfig, tmp_path)
    ) as manager:
        await manager.wait_for_log("Starting workers")
        await use_all_kinds(prepared_cluster)
        await wait_for_node_labels(prepared_cluster)
        await use_page(manager, prepared_cluster)
        await repeat_event(plane, namespace)
        await manager.http_get(
            "/metrics", token=plane.create_service_account_token(namespace, "reader")
        )
        manager.send_signal(signal.SIGTERM)
        assert await manager.wait_for_exit() == 0
    lines = [
        event
        for event in plane.read_audit_events(manager.user_agent)
        if event.get("userAgent") == manager.user_agent
    ]
    used = list_used(lines)
    print(f"{len(lines)} requests, {len(used)} permissions used of {len(given)} granted")
    assert {event["user"]["username"] for event in lines} == {MANAGER_USER}
    assert list_forbidden_messages(lines) == []
    assert used <= given
    assert given - used == JUSTIFIED_PERMISSIONS.keys()


MANAGER_GROUPS = [
    "system:serviceaccounts",
    f"system:serviceaccounts:{SYSTEM_NAMESPACE}",
    "system:authenticated",
]
FORBIDDEN_ACTIONS = [
    ("get", "secrets"),
    ("list", "secrets"),
    ("get", "configmaps"),
    ("get", "namespaces"),
    ("patch", "nodes"),
    ("update", "nodes"),
    ("patch", "nodes/status"),
    ("delete", "nodes"),
    ("create", "pods"),
    ("delete", "pods"),
    ("create", "pods/exec"),
    ("patch", "mycustomresources.poc.test.domain"),
    ("delete", "mycustomresources.poc.test.domain"),
    ("patch", "customresourcedefinitions.apiextensions.k8s.io"),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("escalate", "clusterroles.rbac.authorization.k8s.io"),
    ("impersonate", "serviceaccounts"),
    ("patch", "leases.coordination.k8s.io"),
    ("*", "*"),
]


def test_manager_has_no_other_permissions(installed: ControlPlane) -> None:
    with installed.apiserver.admin_client() as https:
        allowed = {
            (verb, what) for verb, what in FORBIDDEN_ACTIONS if is_allowed(https, verb, what)
        }
        assert is_allowed(https, "list", "nodes"), "the question itself works"
    assert allowed == set()


def is_allowed(https: HttpClient, verb: str, what: str) -> bool:
    named, _, group = what.partition(".")
    resource, _, subresource = named.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": MANAGER_USER, "groups": MANAGER_GROUPS, "resourceAttributes": attributes},
    }
    return bool(
        https.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"][
            "allowed"
        ]
    )
