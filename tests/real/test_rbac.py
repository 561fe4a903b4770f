"""Least rights: the generated role is enough for everything the manager does, and for little else."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane, KubectlFailed

from .managing import SYSTEM, USER, create_pod, status_of, working, write_resource


async def test_the_generated_role_is_enough_and_everything_is_done_under_it(
    installed: ControlPlane, namespace: str, service_account: Path, log: Path
) -> None:
    write_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
    write_resource(installed, namespace, "nameless")
    installed.kubectl("-n", namespace, "create", "serviceaccount", "reader")
    flags = ("--leader-elect", f"--leader-election-namespace={SYSTEM}", "--metrics-secure")
    async with working(log, service_account, *flags) as manager:
        create_pod(installed, namespace, "funny-joe")
        await status_of(installed, namespace, "joe", "FriendFound")
        await status_of(installed, namespace, "nameless", "NameMissing")
        await manager.get("/metrics", token=installed.service_account_token(namespace, "reader"))
        await eventually(lambda: events(installed, namespace))
        manager.send(signal.SIGTERM)
        assert await manager.ended() == 0
    did = [event for event in installed.audit_events() if event.get("userAgent") == manager.agent]
    assert {event["user"]["username"] for event in did} == {USER}
    assert [event for event in did if event["responseStatus"]["code"] == 403] == []
    what = {
        (event["verb"], event["objectRef"]["resource"], event["objectRef"].get("subresource", "")) for event in did if "objectRef" in event
    }
    assert what == {
        *((verb, kind, "") for verb in ("list", "watch") for kind in FOLLOWED),
        ("patch", "mycustomresources", "status"),
        ("create", "events", ""),
        ("get", "leases", ""),
        ("patch", "leases", ""),
        ("create", "tokenreviews", ""),
        ("create", "subjectaccessreviews", ""),
    } | ({("create", "leases", "")} & what)


FOLLOWED = ("mycustomresources", "pods", "hostinfoes", "vminfoes", "fcdinfoes", "gpuinfoes", "vmgroups", "nodes", "persistentvolumes")


def events(plane: ControlPlane, namespace: str) -> list[str]:
    return plane.kubectl("-n", namespace, "get", "events", "-o", "name").split()


FORBIDDEN = [
    ("get", "secrets"),
    ("list", "secrets"),
    ("get", "configmaps"),
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


@pytest.mark.parametrize(("verb", "what"), FORBIDDEN)
async def test_the_manager_may_do_nothing_else(installed: ControlPlane, verb: str, what: str) -> None:
    with pytest.raises(KubectlFailed):
        await asyncio.to_thread(installed.kubectl, "auth", "can-i", verb, what, f"--as={USER}", "--all-namespaces")
