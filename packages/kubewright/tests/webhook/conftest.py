"""A manager with webhooks that the real API server calls."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubewright import Manager
from kubewright.client import Client
from kubewright.kubeconfig import Connection, load_config
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.transport import Transport

from .box_kind import (
    BoxConversion,
    BoxWebhook,
    box_manifests,
    make_options,
    run_kubectl,
    run_webhook_manager,
    wait_until_trusted,
    webhook_port,
)


@dataclass(frozen=True)
class BoxHarness:
    """A running manager, a client, and kubectl in one namespace."""

    control_plane: ControlPlane
    connection: Connection
    client: Client
    namespace: str
    name: str
    manager: Manager
    webhook: BoxWebhook

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return await run_kubectl(self.control_plane, "-n", self.namespace, *arguments, stdin=stdin)

    async def apply_box(
        self, name: str, spec: str = "", version: str = "v2", extra: str = ""
    ) -> str:
        """kubectl apply of one box."""
        head = (
            f"apiVersion: hooks.kubewright.test/{version}\nkind: Box\nmetadata: {{name: {name}}}\n"
        )
        return await self.kubectl(
            "apply", "-f", "-", stdin=head + (f"spec: {{{spec}}}\n" if spec else "") + extra
        )


def remove_webhooks(plane: ControlPlane, name: str) -> None:
    # The CRD stays without its conversion: the API server needs seconds to create it again.
    with plane.apiserver.admin_client() as https:
        for verb in ("mutating", "validating"):
            https.call(
                "DELETE",
                f"/apis/admissionregistration.k8s.io/v1/{verb}webhookconfigurations/"
                f"{name}-{verb}-webhook-configuration",
            )
        no_conversion = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        merge = {"Content-Type": "application/merge-patch+json"}
        https.call(
            "PATCH",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boxes.hooks.kubewright.test",
            no_conversion,
            merge,
        )


@pytest.fixture
async def connection(control_plane: ControlPlane) -> Connection:
    return await asyncio.to_thread(
        load_config, str(control_plane.admin_kubeconfig), environ={}, home=Path("/")
    )


@pytest.fixture
async def client(connection: Connection) -> AsyncIterator[Client]:
    transport = Transport(connection)
    yield Client(transport)
    await transport.close()


@pytest.fixture
async def box_harness(
    control_plane: ControlPlane, connection: Connection, client: Client, namespace: str
) -> AsyncIterator[BoxHarness]:
    """Boxes, and a manager with its own CA that serves their webhooks. The CRD stays at the end."""
    webhook, name = BoxWebhook(), f"boxes-{uuid.uuid4().hex[:6]}"
    async with run_webhook_manager(
        connection, make_options(name, namespace), webhook, BoxConversion()
    ) as manager:
        await asyncio.to_thread(
            control_plane.apply, box_manifests(webhook_port(manager), [webhook], name)
        )
        try:
            await asyncio.to_thread(control_plane.wait_for_crds, "boxes.hooks.kubewright.test")
            await wait_until_trusted(manager)
            harness = BoxHarness(
                control_plane, connection, client, namespace, name, manager, webhook
            )
            await eventually(lambda: harness.apply_box("first", "width: 1"), within=60, every=0.2)
            webhook.requests.clear()
            yield harness
        finally:
            await asyncio.to_thread(remove_webhooks, control_plane, name)
