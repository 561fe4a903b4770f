"""The manager's own CA on the real API server: rotated under load, shared by replicas, restored."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509

from kubewright import rbac
from kubewright.builtin import Secret
from kubewright.client import Client
from kubewright.errors import KubewrightError
from kubewright.kind import Key, ObjectMeta
from kubewright.kubeconfig import Connection, load_config
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.tcpproxy import TcpProxy
from kubewright.webhook.ca_bundle import (
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    ca_permissions,
)
from kubewright.webhook.options import CertificateTimings
from kubewright.webhook.server import WebhookServer
from kubewright.yaml_text import to_yaml

from .box_kind import (
    LOCALHOST,
    Box,
    BoxConversion,
    BoxSpec,
    BoxWebhook,
    OldBox,
    box_manifests,
    make_options,
    run_kubectl,
    run_webhook_manager,
    wait_until_trusted,
    webhook_port,
)
from .conftest import BoxHarness, remove_webhooks

ROTATION_COUNT = 3
# `make rotation` sets 60. The next CA is created when a third of the lifetime is left, which has to
# be enough time on a busy machine.
CA_LIFETIME_SECONDS = float(os.environ.get("KUBEWRIGHT_CA_SECONDS") or 16)
# `make rotation` also loads three times as fast, which is most of the CPU time of the test.
LOAD_PAUSE_SECONDS = 0.02 if "KUBEWRIGHT_CA_SECONDS" in os.environ else 0.06
SHORT_TIMINGS = CertificateTimings(
    ca_lifetime_seconds=CA_LIFETIME_SECONDS,
    serving_lifetime_seconds=CA_LIFETIME_SECONDS,
    propagation_seconds=CA_LIFETIME_SECONDS / 12,
    check_interval_seconds=0.5,
)


class RoundRobinProxy(TcpProxy):
    """Like a Service: one address, and each new connection goes to the next of several ports."""

    def __init__(self) -> None:
        super().__init__(LOCALHOST, 0)
        self.ports: list[int] = []

    async def handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.target = (LOCALHOST, self.ports[self.accepted_count % len(self.ports)])
        await super().handle_connection(reader, writer)


@dataclass
class RequestLoad:
    """Creates and converts objects, and verifies the served certificates with the caBundles."""

    client: Client
    namespace: str
    name: str
    ports: list[int]
    created_count: int = 0
    handshake_count: int = 0
    ca_bundles: set[str] = field(default_factory=set)
    ca_key_ids: set[int] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.repeat(self.create_and_convert))
            group.create_task(self.repeat(self.check_certificates))

    async def repeat(self, step: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await step()
            except (KubewrightError, ssl.SSLError) as error:
                self.failures.append(str(error))
            await asyncio.sleep(LOAD_PAUSE_SECONDS)

    async def create_and_convert(self) -> bool:
        name = ObjectMeta(name=f"box-{self.created_count}", namespace=self.namespace)
        await self.client.create(Box(metadata=name, spec=BoxSpec(width=1)))
        converted = await self.client.get(OldBox, name.key)
        assert converted.spec.size == 1
        self.created_count += 1
        return True

    async def check_certificates(self) -> None:
        # All three objects have the same one, except during a rotation.
        for bundle in set(await read_ca_bundles(self.client, self.name)):
            self.ca_bundles.add(bundle)
            for port in self.ports:
                self.ca_key_ids.add(await read_issuer_key_id(port, bundle))
                self.handshake_count += 1


def disable_keep_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    # An open connection never sees another certificate, so the API server must open a new one.
    original = WebhookServer.handle

    async def handle_and_close(self: WebhookServer, request: web.Request) -> web.Response:
        response = await original(self, request)
        response.force_close()
        return response

    monkeypatch.setattr(WebhookServer, "handle", handle_and_close)


async def read_ca_bundles(client: Client, name: str) -> list[str]:
    """The caBundles of all three objects, PEM."""
    mutating = await client.get(
        MutatingWebhookConfiguration, Key("", f"{name}-mutating-webhook-configuration")
    )
    validating = await client.get(
        ValidatingWebhookConfiguration, Key("", f"{name}-validating-webhook-configuration")
    )
    crd = await client.get(CustomResourceDefinition, Key("", "boxes.hooks.kubewright.test"))
    configs = [hook["clientConfig"] for obj in (mutating, validating) for hook in obj.webhooks]
    configs.append(crd.spec.conversion["webhook"]["clientConfig"])
    return [base64.b64decode(config.get("caBundle", "")).decode() for config in configs]


async def read_issuer_key_id(port: int, bundle: str) -> int:
    """Connect as the API server does; return the key id of the CA that signed the certificate."""
    context = ssl.create_default_context(cadata=bundle)
    _, writer = await asyncio.open_connection(LOCALHOST, port, ssl=context)
    certificate = x509.load_der_x509_certificate(
        writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    )
    writer.close()
    issuer = certificate.extensions.get_extension_for_class(
        x509.AuthorityKeyIdentifier
    ).value.key_identifier
    return int.from_bytes(issuer or b"")


async def connect_as_service_account(
    plane: ControlPlane, namespace: str, name: str, path: Path, webhook: BoxWebhook
) -> Connection:
    """A connection of a service account that has only the generated permissions."""
    options = make_options(name, namespace).webhooks
    cluster_rules, namespace_rules = (
        rbac.build_rules(permissions)
        for permissions in ca_permissions([webhook], [BoxConversion()], options, name=name)
    )
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]

    def role(kind: str, rules: list[Any]) -> dict[str, Any]:
        return {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "rules": rules,
        }

    def binding(kind: str) -> dict[str, Any]:
        reference = {"apiGroup": group, "kind": kind, "name": name}
        metadata = {"name": name, "namespace": namespace}
        return {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": subjects,
        }

    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    }
    documents = [
        account,
        role("ClusterRole", cluster_rules),
        role("Role", namespace_rules),
        binding("ClusterRole"),
        binding("Role"),
    ]
    await asyncio.to_thread(plane.apply, to_yaml(*documents))
    file = await asyncio.to_thread(plane.write_service_account_kubeconfig, namespace, name, path)
    return await asyncio.to_thread(load_config, str(file), environ={}, home=Path("/"))


async def test_three_rotations_of_two_replicas_under_load(
    control_plane: ControlPlane,
    client: Client,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disable_keep_alive(monkeypatch)
    webhook, name = BoxWebhook(), f"boxes-{uuid.uuid4().hex[:6]}"
    connection = await connect_as_service_account(
        control_plane, namespace, name, tmp_path / "kubeconfig", webhook
    )
    options = make_options(name, namespace, SHORT_TIMINGS)
    parts = (webhook, BoxConversion())
    async with (
        RoundRobinProxy() as front,
        run_webhook_manager(connection, options, *parts) as one,
        run_webhook_manager(connection, options, *parts) as two,
    ):
        front.ports = [webhook_port(one), webhook_port(two)]
        await asyncio.to_thread(control_plane.apply, box_manifests(front.port, [webhook], name))
        try:
            await asyncio.to_thread(control_plane.wait_for_crds, "boxes.hooks.kubewright.test")
            await asyncio.gather(wait_until_trusted(one), wait_until_trusted(two))
            load = RequestLoad(client, namespace, name, front.ports)
            await eventually(load.create_and_convert, within=60)
            task = asyncio.create_task(load.run())
            await eventually(
                lambda: len(load.ca_key_ids) > ROTATION_COUNT or task.done(),
                within=6 * CA_LIFETIME_SECONDS,
                every=0.2,
            )
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        finally:
            await asyncio.to_thread(remove_webhooks, control_plane, name)
            await run_kubectl(
                control_plane, "delete", f"clusterrole/{name}", f"clusterrolebinding/{name}"
            )
    print(
        f"{load.created_count} created, {front.accepted_count} connections of the API server, "
        f"{load.handshake_count} of the test, {len(load.ca_key_ids)} CAs of "
        f"{CA_LIFETIME_SECONDS:g} s, {len(load.failures)} failures"
    )
    assert load.failures == []
    assert len(load.ca_key_ids) == ROTATION_COUNT + 1
    # Each create is defaulted, validated and converted once, each time over a new connection.
    assert front.accepted_count >= 3 * load.created_count > 0
    assert any(bundle.count("BEGIN CERTIFICATE") > 1 for bundle in load.ca_bundles)


async def test_deleted_secret_and_bundles_are_restored(box_harness: BoxHarness) -> None:
    [before, *_] = await read_ca_bundles(box_harness.client, box_harness.name)
    assert before.startswith("-----BEGIN CERTIFICATE-----")
    for kind, path in (
        ("mutatingwebhookconfiguration", f"{box_harness.name}-mutating-webhook-configuration"),
        ("validatingwebhookconfiguration", f"{box_harness.name}-validating-webhook-configuration"),
    ):
        removal = json.dumps([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}])
        await box_harness.kubectl("patch", kind, path, "--type=json", "-p", removal)
    removal = json.dumps(
        [{"op": "remove", "path": "/spec/conversion/webhook/clientConfig/caBundle"}]
    )
    await box_harness.kubectl(
        "patch", "crd", "boxes.hooks.kubewright.test", "--type=json", "-p", removal
    )

    async def is_restored() -> bool:
        return await read_ca_bundles(box_harness.client, box_harness.name) == [before] * 3

    await eventually(is_restored, within=60)
    await box_harness.client.delete(
        Secret, Key(box_harness.namespace, f"{box_harness.name}-webhook-ca")
    )
    restored = await eventually(
        lambda: box_harness.client.get(
            Secret, Key(box_harness.namespace, f"{box_harness.name}-webhook-ca")
        ),
        within=60,
    )
    assert restored.data["current.crt"].decode() == before
    assert await read_ca_bundles(box_harness.client, box_harness.name) == [before] * 3


async def test_later_manager_uses_the_same_ca(box_harness: BoxHarness) -> None:
    async with run_webhook_manager(
        box_harness.connection,
        make_options(box_harness.name, box_harness.namespace),
        BoxWebhook(),
        BoxConversion(),
    ) as later:
        [bundle, *_] = await read_ca_bundles(box_harness.client, box_harness.name)
        one = await read_issuer_key_id(webhook_port(box_harness.manager), bundle)
        assert await eventually(lambda: read_issuer_key_id(webhook_port(later), bundle)) == one


async def test_only_one_of_several_replicas_creates_the_ca(
    connection: Connection, client: Client, namespace: str
) -> None:
    async with AsyncExitStack() as stack:
        managers = [
            await stack.enter_async_context(
                run_webhook_manager(connection, make_options("many", namespace), BoxWebhook())
            )
            for _ in range(6)
        ]
        rotators = [
            manager.webhook_runner.cert_rotator
            for manager in managers
            if manager.webhook_runner is not None
        ]
        await eventually(
            lambda: all(
                rotator is not None and rotator.issued_pair is not None for rotator in rotators
            )
        )
        secret = await client.get(Secret, Key(namespace, "many-webhook-ca"))
        assert {rotator.issuer_certificate for rotator in rotators if rotator is not None} == {
            secret.data["current.crt"]
        }
        assert set(secret.data) == {"current.crt", "current.key"}
