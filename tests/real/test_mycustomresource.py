"""MyCustomResource on a real API server, under the manager's service account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.proxy import HttpProxy
from support.manager_process import (
    FREE_PORT_FLAGS,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    create_pod,
    create_resource,
    delete_pod,
    format_audit_event,
    get_resource,
    list_mutations,
    ready_condition,
    run_manager,
    run_ready_manager,
    wait_for_mutations,
    wait_for_status,
)

JOE = "my-custom-resource-01"
BOB = "my-custom-resource-02"
STATUS_PATH = "*/mycustomresources/*/status"
PODS_PATH = "/api/v1/pods"


@pytest.fixture
def other_namespace(control_plane: ControlPlane) -> Iterator[str]:
    control_plane.create_namespace("elsewhere")
    yield "elsewhere"
    control_plane.remove_namespace("elsewhere")


def apply_samples(plane: ControlPlane, config: Path, namespace: str) -> None:
    plane.kubectl("-n", namespace, "apply", "-f", str(config / "samples"))


def have_samples_conditions(plane: ControlPlane, config: Path, namespace: str) -> bool:
    """Whether each sample, of all kinds, has a condition in its status."""
    output = plane.kubectl("-n", namespace, "get", "-f", str(config / "samples"), "-o", "json")
    samples = json.loads(output)["items"]
    assert samples
    return all(sample.get("status", {}).get("conditions") for sample in samples)


async def test_samples_follow_their_pods_in_any_namespace(
    installed: ControlPlane,
    config: Path,
    namespace: str,
    other_namespace: str,
    manager_kubeconfig: Path,
    log_file: Path,
) -> None:
    apply_samples(installed, config, namespace)
    async with run_ready_manager(log_file, manager_kubeconfig):
        assert (await wait_for_status(installed, namespace, JOE, "NoFriend"))["Healthy"] is False
        create_pod(installed, other_namespace, "funny-joe")
        assert (await wait_for_status(installed, namespace, JOE, "FriendFound"))["Healthy"] is True
        assert (await wait_for_status(installed, namespace, BOB, "NoFriend"))["Healthy"] is False
        create_pod(installed, namespace, "funny-joe")
        delete_pod(installed, other_namespace, "funny-joe")
        create_pod(installed, other_namespace, "crazy-bob")
        assert (await wait_for_status(installed, namespace, BOB, "FriendFound"))["Healthy"] is True
        assert (await wait_for_status(installed, namespace, JOE, "FriendFound"))["Healthy"] is True
        delete_pod(installed, namespace, "funny-joe")
        assert (await wait_for_status(installed, namespace, JOE, "NoFriend"))["Healthy"] is False


@pytest.mark.parametrize(
    "spec", [{}, {"spec": {}}, {"spec": {"name": ""}}], ids=["no spec", "empty spec", "empty name"]
)
async def test_empty_spec_applies_and_reports_the_missing_field(
    installed: ControlPlane,
    namespace: str,
    manager_kubeconfig: Path,
    log_file: Path,
    spec: dict[str, object],
) -> None:
    create_resource(installed, namespace, "nameless", **spec)
    async with run_ready_manager(log_file, manager_kubeconfig):
        status = await wait_for_status(installed, namespace, "nameless", "NameMissing")
        ready = ready_condition(get_resource(installed, namespace, "nameless"))
        assert (status["Healthy"], ready["status"]) == (False, "False")
        assert ready["message"] == "spec.name is empty. Set it to the name of the Pod to find."
        installed.kubectl(
            "-n",
            namespace,
            "patch",
            "mycustomresource",
            "nameless",
            "--type=merge",
            "-p",
            '{"spec":{"name":"funny-joe"}}',
        )
        await wait_for_status(installed, namespace, "nameless", "NoFriend")


async def test_pod_reconciles_exactly_the_resources_that_name_it(
    installed: ControlPlane,
    namespace: str,
    other_namespace: str,
    manager_kubeconfig: Path,
    log_file: Path,
) -> None:
    for number in range(50):
        create_resource(installed, namespace, f"other-{number}", spec={"name": f"friend-{number}"})
    for name in ("first", "second"):
        create_resource(installed, namespace, name, spec={"name": "the-one"})
    async with run_ready_manager(log_file, manager_kubeconfig) as manager:
        await wait_for_status(installed, namespace, "first", "NoFriend")
        await eventually(lambda: has_reconcile_count(manager, 52))
        create_pod(installed, other_namespace, "the-one")
        create_pod(installed, other_namespace, "unrelated")
        for name in ("first", "second"):
            await wait_for_status(installed, namespace, name, "FriendFound")
        installed.kubectl("-n", other_namespace, "label", "pod", "the-one", "changed=yes")
        delete_pod(installed, other_namespace, "the-one")
        for name in ("first", "second"):
            await wait_for_status(installed, namespace, name, "NoFriend")
        assert await manager.count_reconciles() == 52 + 2 + 2


async def has_reconcile_count(manager: ManagerProcess, reconciles: int) -> bool:
    return await manager.count_reconciles() == reconciles


@pytest.mark.parametrize("status_code", [403, 500])
async def test_failed_pod_list_never_changes_healthy(
    installed: ControlPlane,
    namespace: str,
    other_namespace: str,
    tmp_path: Path,
    log_file: Path,
    status_code: int,
) -> None:
    create_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
    create_pod(installed, other_namespace, "funny-joe")
    token = installed.create_service_account_token(SYSTEM_NAMESPACE, SERVICE_ACCOUNT)
    async with HttpProxy.in_front_of(installed) as proxy:
        kubeconfig = proxy.write_kubeconfig(tmp_path / "proxied", token=token)
        async with run_ready_manager(log_file, kubeconfig):
            await wait_for_status(installed, namespace, "joe", "FriendFound")
            written = len(proxy.find_requests("*", STATUS_PATH))
            failed = proxy.fail_next("GET", PODS_PATH, status_code, times=1000)
            proxy.expire_next_watch(PODS_PATH)
            assert proxy.abort_watches(PODS_PATH) == 1
            await eventually(lambda: len(failed.matched_requests) >= 2)
            await annotate_resource(installed, namespace)
        flags = (f"--kubeconfig={kubeconfig}", *FREE_PORT_FLAGS)
        async with run_manager(tmp_path / "again.log", *flags) as manager:
            seen = len(failed.matched_requests)
            await eventually(lambda: len(failed.matched_requests) >= seen + 2)
            await annotate_resource(installed, namespace)
            code, body = await manager.http_get("/readyz")
            assert code == 500
            assert "pods: " in body
            assert get_resource(installed, namespace, "joe")["status"]["Healthy"] is True
            assert len(proxy.find_requests("*", STATUS_PATH)) == written
            delete_pod(installed, other_namespace, "funny-joe")
            failed.times = 0
            await wait_for_status(installed, namespace, "joe", "NoFriend", within=60)
            await manager.wait_until_ready()


async def annotate_resource(plane: ControlPlane, namespace: str) -> None:
    """Change the resource, so that the manager reconciles it if it can."""
    await asyncio.to_thread(
        plane.kubectl,
        "-n",
        namespace,
        "annotate",
        "--overwrite",
        "mycustomresource",
        "joe",
        "touched=again",
    )


async def test_restart_without_changes_writes_nothing(
    installed: ControlPlane,
    config: Path,
    namespace: str,
    other_namespace: str,
    manager_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    apply_samples(installed, config, namespace)
    create_resource(installed, namespace, "nameless")
    create_pod(installed, other_namespace, "funny-joe")
    settled = {JOE: "FriendFound", BOB: "NoFriend", "nameless": "NameMissing"}
    async with run_ready_manager(tmp_path / "first.log", manager_kubeconfig) as first:
        for name, reason in settled.items():
            await wait_for_status(installed, namespace, name, reason)
        await eventually(
            lambda: have_samples_conditions(installed, config, namespace), within=30, every=0.5
        )
    versions = {
        name: get_resource(installed, namespace, name)["metadata"]["resourceVersion"]
        for name in settled
    }
    async with run_ready_manager(tmp_path / "second.log", manager_kubeconfig) as second:
        await eventually(lambda: has_reconcile_count(second, len(settled)))
    await wait_for_mutations(installed, first)
    # Objects of other tests may still change.
    mutations = [
        event
        for event in list_mutations(installed, second)
        if event["objectRef"].get("namespace") in (namespace, other_namespace)
    ]
    assert list(map(format_audit_event, mutations)) == []
    assert versions == {
        name: get_resource(installed, namespace, name)["metadata"]["resourceVersion"]
        for name in settled
    }
