"""MyCustomResource as its users know it, run by the real manager under its own service account."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.proxy import HttpProxy

from .managing import (
    EVERYWHERE,
    SERVICE_ACCOUNT,
    SYSTEM,
    ManagerProcess,
    create_pod,
    delete_pod,
    in_short,
    mutations,
    ready_of,
    resource,
    started,
    status_of,
    working,
    write_resource,
)

JOE = "my-custom-resource-01"
BOB = "my-custom-resource-02"
STATUSES = "*/mycustomresources/*/status"
PODS = "/api/v1/pods"


@pytest.fixture
def elsewhere(control_plane: ControlPlane) -> Iterator[str]:
    """Another namespace than the resources'."""
    control_plane.create_namespace("elsewhere")
    yield "elsewhere"
    control_plane.remove_namespace("elsewhere")


def apply_samples(plane: ControlPlane, config: Path, namespace: str) -> None:
    plane.kubectl("-n", namespace, "apply", "-f", str(config / "samples"))


async def test_the_samples_follow_their_friends_in_any_namespace(
    installed: ControlPlane,
    config: Path,
    namespace: str,
    elsewhere: str,
    service_account: Path,
    log: Path,
) -> None:
    apply_samples(installed, config, namespace)
    async with working(log, service_account):
        assert (await status_of(installed, namespace, JOE, "NoFriend"))["Healthy"] is False
        create_pod(installed, elsewhere, "funny-joe")
        assert (await status_of(installed, namespace, JOE, "FriendFound"))["Healthy"] is True
        assert (await status_of(installed, namespace, BOB, "NoFriend"))["Healthy"] is False
        create_pod(installed, namespace, "funny-joe")
        delete_pod(installed, elsewhere, "funny-joe")
        create_pod(installed, elsewhere, "crazy-bob")
        assert (await status_of(installed, namespace, BOB, "FriendFound"))["Healthy"] is True
        assert (await status_of(installed, namespace, JOE, "FriendFound"))["Healthy"] is True
        delete_pod(installed, namespace, "funny-joe")
        assert (await status_of(installed, namespace, JOE, "NoFriend"))["Healthy"] is False


@pytest.mark.parametrize(
    "spec", [{}, {"spec": {}}, {"spec": {"name": ""}}], ids=["no spec", "empty spec", "empty name"]
)
async def test_a_resource_without_a_name_applies_and_says_what_is_missing(
    installed: ControlPlane,
    namespace: str,
    service_account: Path,
    log: Path,
    spec: dict[str, object],
) -> None:
    write_resource(installed, namespace, "nameless", **spec)
    async with working(log, service_account):
        status = await status_of(installed, namespace, "nameless", "NameMissing")
        ready = ready_of(resource(installed, namespace, "nameless"))
        assert (status["Healthy"], ready["status"]) == (False, "False")
        assert ready["message"] == "spec.name is empty; set it to the name of the Pod to look for"
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
        await status_of(installed, namespace, "nameless", "NoFriend")


async def test_a_pod_reconciles_exactly_the_resources_that_name_it(
    installed: ControlPlane, namespace: str, elsewhere: str, service_account: Path, log: Path
) -> None:
    for number in range(50):
        write_resource(installed, namespace, f"other-{number}", spec={"name": f"somebody-{number}"})
    for name in ("first", "second"):
        write_resource(installed, namespace, name, spec={"name": "the-one"})
    async with working(log, service_account) as manager:
        await status_of(installed, namespace, "first", "NoFriend")
        await eventually(lambda: did(manager, 52))
        create_pod(installed, elsewhere, "the-one")
        create_pod(installed, elsewhere, "nobodys-friend")
        for name in ("first", "second"):
            await status_of(installed, namespace, name, "FriendFound")
        installed.kubectl("-n", elsewhere, "label", "pod", "the-one", "looks=different")
        delete_pod(installed, elsewhere, "the-one")
        for name in ("first", "second"):
            await status_of(installed, namespace, name, "NoFriend")
        assert await manager.reconciles() == 52 + 2 + 2


async def did(manager: ManagerProcess, reconciles: int) -> bool:
    return await manager.reconciles() == reconciles


@pytest.mark.parametrize("refusal", [403, 500])
async def test_a_failed_pod_list_never_turns_healthy_to_false(
    installed: ControlPlane, namespace: str, elsewhere: str, tmp_path: Path, log: Path, refusal: int
) -> None:
    write_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
    create_pod(installed, elsewhere, "funny-joe")
    token = installed.create_service_account_token(SYSTEM, SERVICE_ACCOUNT)
    async with HttpProxy.in_front_of(installed) as proxy:
        kubeconfig = proxy.write_kubeconfig(tmp_path / "proxied", token=token)
        async with working(log, kubeconfig):
            await status_of(installed, namespace, "joe", "FriendFound")
            written = len(proxy.find_requests("PATCH", STATUSES))
            refused = proxy.fail_next("GET", PODS, refusal, times=1000)
            proxy.expire_next_watch(PODS)
            assert proxy.abort_watches(PODS) == 1
            await eventually(lambda: len(refused.matched_requests) >= 2)
            await touch(installed, namespace)
        flags = (f"--kubeconfig={kubeconfig}", *EVERYWHERE)
        async with started(tmp_path / "again.log", *flags) as manager:
            seen = len(refused.matched_requests)
            await eventually(lambda: len(refused.matched_requests) >= seen + 2)
            await touch(installed, namespace)
            code, words = await manager.get("/readyz")
            assert code == 500
            assert "pods: " in words
            assert resource(installed, namespace, "joe")["status"]["Healthy"] is True
            assert len(proxy.find_requests("PATCH", STATUSES)) == written
            delete_pod(installed, elsewhere, "funny-joe")
            refused.times = 0
            await status_of(installed, namespace, "joe", "NoFriend", within=20)
            await manager.becomes_ready()


async def touch(plane: ControlPlane, namespace: str) -> None:
    """A change that makes the manager look again, if it can."""
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


async def test_a_second_start_over_settled_objects_writes_nothing(
    installed: ControlPlane,
    config: Path,
    namespace: str,
    elsewhere: str,
    service_account: Path,
    tmp_path: Path,
) -> None:
    apply_samples(installed, config, namespace)
    write_resource(installed, namespace, "nameless")
    create_pod(installed, elsewhere, "funny-joe")
    settled = {JOE: "FriendFound", BOB: "NoFriend", "nameless": "NameMissing"}
    async with working(tmp_path / "first.log", service_account) as first:
        for name, reason in settled.items():
            await status_of(installed, namespace, name, reason)
    versions = {
        name: resource(installed, namespace, name)["metadata"]["resourceVersion"]
        for name in settled
    }
    async with working(tmp_path / "second.log", service_account) as second:
        await eventually(lambda: did(second, len(settled)))
    assert mutations(installed, first) != []
    # What other tests left behind is not settled.
    ours = [
        each
        for each in mutations(installed, second)
        if each["objectRef"].get("namespace") in (namespace, elsewhere)
    ]
    assert list(map(in_short, ours)) == []
    assert versions == {
        name: resource(installed, namespace, name)["metadata"]["resourceVersion"]
        for name in settled
    }
