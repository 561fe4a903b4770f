"""Least rights: the generated role is enough for everything the manager does, and for little else."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.http import HttpClient
from simulator import SimulatedVCenter

from .auditing import Act, did, granted, refusals
from .gpunodes import GPUS, NODES, Cluster
from .groups import Groups
from .managing import (
    EVERYWHERE,
    SERVICE_ACCOUNT,
    SYSTEM,
    USER,
    create_pod,
    started,
    status_of,
    write_resource,
)
from .stage import simulated
from .vsphere import Infos, credentials_in

HOST, DISK, NODE = (
    "esxi-dell-e.rainpole.com",
    "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43",
    "worker-1",
)
UUID = NODES[NODE]
VCENTER_FLAGS = (
    f"--host-name={HOST}",
    f"--fcd={DISK}",
    f"--node={NODE}={UUID}",
    f"--gpu-vm={NODE}=vgpu",
)
CALENDAR = f"/api/v1/namespaces/{SYSTEM}/configmaps"
JUSTIFIED: dict[Act, str] = {}
"""Rights that nothing here uses, each with the reason why the manager has it all the same."""


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    async with simulated(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *VCENTER_FLAGS
    ) as vcenter:
        await vcenter.set_stats(NODE, overallCpuDemand=1000, guestMemoryUsage=512)
        yield vcenter


@pytest.fixture
async def everything(
    installed: ControlPlane, namespace: str, config: Path
) -> AsyncIterator[Cluster]:
    """All that the manager follows, with the rights for what is optional; nobody has led yet."""
    cluster = Cluster(installed, namespace)
    optional = ("apply", "-n", namespace, "-f", str(config / "optional/cloud-init-secrets.yaml"))
    files = [
        str(config / f"optional/{name}.yaml")
        for name in ("label-suitable-nodes", "maintenance-calendar")
    ]
    installed.kubectl(*optional)
    installed.kubectl("apply", "-f", files[0], "-f", files[1])
    installed.kubectl("-n", SYSTEM, "delete", "lease", "--all")
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
    await cluster.add_node(NODE, f"vsphere://{UUID}")
    await cluster.call(
        "POST", CALENDAR, {"metadata": {"name": "maintenance"}, "data": {"windows": ""}}
    )
    yield cluster
    await cluster.call("DELETE", f"{CALENDAR}/maintenance")
    await cluster.remove_nodes()
    installed.kubectl("delete", "-f", files[0], "-f", files[1])


def flags(vcenter: SimulatedVCenter, kubeconfig: Path, folder: Path) -> tuple[str, ...]:
    """Everything on that needs a right."""
    credentials, file = credentials_in(folder / "vc-creds", vcenter), folder / "vcenters.yaml"
    reached = f"server: '{vcenter.url}', credentials: {credentials}, ca: {vcenter.certificate}"
    file.write_text(
        f"vcenters:\n- {{name: west, {reached}, namespaces: {{labels: {{tier: gold}}}}}}\n"
    )
    return (
        f"--kubeconfig={kubeconfig}",
        *EVERYWHERE,
        f"--vcenters={file}",
        "--label-suitable-nodes",
        f"--maintenance-calendar={SYSTEM}/maintenance",
        "--leader-elect",
        f"--leader-election-namespace={SYSTEM}",
        "--metrics-secure",
    )


async def use_all_kinds(cluster: Cluster) -> None:
    """Objects of all six kinds: made, answered, changed and deleted."""
    plane, namespace = cluster.plane, cluster.namespace
    infos, groups = Infos(plane, namespace), Groups(plane, namespace)
    asked = {"HostInfo": HOST, "VMInfo": NODE, "FCDInfo": DISK}
    for kind, name in asked.items():
        await infos.create(kind, "x", name)
    await cluster.ask("gpu", 100, True)
    await groups.create("web", replicas=1, bootstrap={"cloudInit": {"secretName": "boot"}})
    write_resource(plane, namespace, "joe", spec={"name": "funny-joe"})
    create_pod(plane, namespace, "funny-joe")
    await status_of(plane, namespace, "joe", "FriendFound")
    for kind in asked:
        await infos.status(kind, "x")
    await cluster.answers("gpu", NODE)
    await groups.becomes("web", "RUNNING")
    await groups.change("web", replicas=2)
    await groups.becomes("web", "RUNNING", where=lambda status: status["currentReplicas"] == 2)
    await groups.delete("web")
    await groups.gone("web")
    await cluster.call("DELETE", f"{GPUS.format(namespace=namespace)}/gpu")


async def say_the_same_twice(plane: ControlPlane, namespace: str) -> None:
    """A complaint, its end, and the same complaint: its Event is counted up."""
    write_resource(plane, namespace, "nameless")
    for name, reason in (("", "NameMissing"), ("nobody", "NoFriend"), ("", "NameMissing")):
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
        await status_of(plane, namespace, "nameless", reason)
    await eventually(
        lambda: (
            "2"
            in plane.kubectl(
                "-n", namespace, "get", "events", "-o", "jsonpath={.items[*].count}"
            ).split()
        )
    )


async def test_all_six_kinds_are_served_under_the_generated_roles_and_use_all_of_them(
    everything: Cluster, vcenter: SimulatedVCenter, service_account: Path, log: Path, tmp_path: Path
) -> None:
    plane, namespace = everything.plane, everything.namespace
    given = await asyncio.to_thread(granted, plane, SYSTEM, SERVICE_ACCOUNT)
    async with started(log, *flags(vcenter, service_account, tmp_path)) as manager:
        await manager.says("Starting workers")
        await use_all_kinds(everything)
        await say_the_same_twice(plane, namespace)
        await manager.get("/metrics", token=plane.create_service_account_token(namespace, "reader"))
        manager.send_signal(signal.SIGTERM)
        assert await manager.ended() == 0
    lines = [
        event for event in plane.read_audit_events() if event.get("userAgent") == manager.agent
    ]
    used = did(lines)
    print(f"{len(lines)} requests, {len(used)} rights used of {len(given)} granted")
    assert {event["user"]["username"] for event in lines} == {USER}
    assert refusals(lines) == []
    assert used <= given
    assert given - used == JUSTIFIED.keys()


GROUPS = ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated"]
FORBIDDEN = [
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


def test_the_manager_may_do_nothing_else(installed: ControlPlane) -> None:
    with installed.apiserver.admin_client() as https:
        allowed = {(verb, what) for verb, what in FORBIDDEN if may(https, verb, what)}
        assert may(https, "list", "nodes"), "the question itself works"
    assert allowed == set()


def may(https: HttpClient, verb: str, what: str) -> bool:
    """Whether the manager may do this everywhere."""
    named, _, group = what.partition(".")
    resource, _, subresource = named.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": USER, "groups": GROUPS, "resourceAttributes": attributes},
    }
    return bool(
        https.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"][
            "allowed"
        ]
    )
