"""Webhooks of a manager: readiness, certificates from files, flags and shutdown."""

from __future__ import annotations

import asyncio
import builtins
import json
import socket
import ssl
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubewright import Manager, Options
from kubewright.client import Client
from kubewright.command import ManagerFlags
from kubewright.errors import ConfigError
from kubewright.flags import parse_command_line
from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority, write_key_pair
from kubewright.testing.fake import FakeApi
from kubewright.webhook.options import CertificateTimings, WebhookOptions
from kubewright.webhook.runner import _create_certificate

from ..support.api_harness import FAKE_CONNECTION
from .box_kind import LOCALHOST, BoxWebhook, webhook_port
from .test_admission import make_box, make_review

VALIDATE_PATH = "/validate-hooks-kubewright-test-v2-box"


class RunningManager:
    """A manager with a webhook, on a fake API server."""

    def __init__(self, webhooks: WebhookOptions, **options: Any) -> None:
        self.api, self.webhook = FakeApi(), BoxWebhook()
        self.api.objects["/version"] = {"gitVersion": "v1"}
        manager_options = Options(
            name="op",
            metrics_bind_address="0",
            health_probe_bind_address=f"{LOCALHOST}:0",
            leader_election_namespace="sys",
            graceful_shutdown_seconds=5,
            webhooks=webhooks,
            **options,
        )
        self.manager = Manager(FAKE_CONNECTION, manager_options, transport=self.api)
        self.stop = asyncio.Event()
        self.health_port = 0

    async def __aenter__(self) -> RunningManager:
        self.manager.add(self.webhook)
        original = self.manager._build_server

        def build_and_keep() -> Any:
            self.server = original()
            return self.server

        self.manager._build_server = build_and_keep  # type: ignore[method-assign]
        self.task = asyncio.create_task(self.manager.run(self.stop))
        await eventually(lambda: webhook_port(self.manager) or self.task.done())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        await self.task

    async def get_readyz(self) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"http://{LOCALHOST}:{self.server.health_port}/readyz/webhooks"
            ) as response,
        ):
            return response.status, await response.text()

    async def post_review(
        self, tls: ssl.SSLContext | bool, spec: dict[str, Any] | None = None
    ) -> bool:
        address = f"https://{LOCALHOST}:{webhook_port(self.manager)}{VALIDATE_PATH}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                address,
                data=make_review(make_box(spec)),
                ssl=tls,
                headers={"Content-Type": "application/json"},
            ) as response,
        ):
            return bool(json.loads(await response.text())["response"]["allowed"])


def create_tls_context(*authorities: CertificateAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata="".join(ca.certificate.decode() for ca in authorities))


def write_serving_certificate(authority: CertificateAuthority, folder: Path) -> None:
    pair = authority.issue_serving_certificate(LOCALHOST)
    write_key_pair(pair, folder / "tls.crt", folder / "tls.key")


async def test_certificate_files_may_appear_late_and_change(tmp_path: Path) -> None:
    options = WebhookOptions(
        host=LOCALHOST,
        port=0,
        certificate_dir=str(tmp_path),
        timings=CertificateTimings(check_interval_seconds=0.05),
        drain_seconds=0,
    )
    first, second = CertificateAuthority("first"), CertificateAuthority("second")
    async with RunningManager(options) as running:
        assert await running.get_readyz() == (
            500,
            f"internal server error: there is no certificate in {tmp_path} yet",
        )
        await asyncio.to_thread(write_serving_certificate, first, tmp_path)

        async def ready() -> bool:
            return (await running.get_readyz())[0] == 200

        await eventually(ready)
        assert await running.post_review(create_tls_context(first))
        await asyncio.to_thread((tmp_path / "tls.crt").write_bytes, b"half writ")
        assert await running.post_review(create_tls_context(first))
        await asyncio.to_thread(write_serving_certificate, second, tmp_path)
        await eventually(lambda: running.post_review(create_tls_context(second)))
        assert [request for request in running.api.writes() if "secrets" in request.path] == []


async def test_manager_with_its_own_ca() -> None:
    options = WebhookOptions(
        host=LOCALHOST,
        port=0,
        extra_hosts=(LOCALHOST,),
        timings=CertificateTimings(check_interval_seconds=0.05),
        drain_seconds=0,
    )
    async with RunningManager(options) as running:
        secret = await eventually(
            lambda: running.api.objects.get("/api/v1/namespaces/sys/secrets/op-webhook-ca")
        )
        assert secret is not None
        assert set(secret["data"]) == {"current.crt", "current.key"}
        assert running.manager.webhook_runner is not None
        rotator = running.manager.webhook_runner.cert_rotator
        assert rotator is not None
        await eventually(lambda: rotator.problem == "")
        assert rotator.hosts == (
            "op-webhook-service.sys.svc",
            "op-webhook-service.sys.svc.cluster.local",
            LOCALHOST,
        )
        assert await running.get_readyz() == (200, "ok")
        assert await running.post_review(
            ssl.create_default_context(cadata=rotator.issuer_certificate.decode())
        )
        assert any(
            line.startswith("kubewright_webhook_certificate_expiry_seconds 1.")
            for line in running.manager.metrics.exposition()[0].decode().splitlines()
        )


async def test_shutdown_fails_readiness_first_and_keeps_serving(tmp_path: Path) -> None:
    authority = CertificateAuthority("test")
    await asyncio.to_thread(write_serving_certificate, authority, tmp_path)
    options = WebhookOptions(host=LOCALHOST, port=0, certificate_dir=str(tmp_path), drain_seconds=1)
    async with RunningManager(options) as running:
        await eventually(lambda: running.post_review(create_tls_context(authority)))
        running.webhook.gate.clear()
        waiting = asyncio.create_task(
            running.post_review(create_tls_context(authority), {"color": "slow"})
        )
        await eventually(
            lambda: (
                running.webhook.requests[-1:]
                and running.manager.webhook_runner
                and running.manager.webhook_runner.server.active_requests
            )
        )
        running.stop.set()
        await eventually(
            lambda: running.manager.webhook_runner and running.manager.webhook_runner.is_stopping
        )
        assert await running.get_readyz() == (500, "internal server error: stopping")
        assert await running.post_review(create_tls_context(authority))
        running.webhook.gate.set()
        assert await waiting
        await running.task
    assert webhook_port(running.manager) == 0


async def test_manager_without_webhooks_does_not_listen() -> None:
    api = FakeApi()
    api.objects["/version"] = {"gitVersion": "v1"}
    manager = Manager(FAKE_CONNECTION, Options(metrics_bind_address="0"), transport=api)
    stop = asyncio.Event()
    stop.set()
    await manager.run(stop)
    assert manager.webhook_runner is None
    assert b"webhook" not in manager.metrics.exposition()[0]


async def test_standby_serves_webhooks(tmp_path: Path) -> None:
    authority = CertificateAuthority("test")
    await asyncio.to_thread(write_serving_certificate, authority, tmp_path)
    options = WebhookOptions(host=LOCALHOST, port=0, certificate_dir=str(tmp_path), drain_seconds=0)
    standby = RunningManager(options, leader_election=True)
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 3600}
    standby.api.create(
        "/apis/coordination.k8s.io/v1/namespaces/sys/leases",
        {"metadata": {"name": "op-leader"}, "spec": spec},
    )
    async with standby:
        assert await eventually(lambda: standby.post_review(create_tls_context(authority)))
        assert not standby.manager.leader.guard.holds_lease()


def test_flags_set_the_webhook_options() -> None:
    flags = parse_command_line(
        ManagerFlags,
        [
            "-webhook-port=8443",
            "--webhook-cert-path",
            "/certs",
            "-webhook-hosts=a, b",
            "-webhook-service=s",
        ],
        {},
    )
    assert flags.to_options("op").webhooks == WebhookOptions(
        port=8443, certificate_dir="/certs", extra_hosts=("a", "b"), service="s"
    )
    assert parse_command_line(ManagerFlags, [], {}).to_options("op").webhooks == WebhookOptions(
        port=9443
    )
    assert replace(WebhookOptions(), secret="x").secret_name("op") == "x"


def test_invalid_port_is_an_error() -> None:
    with pytest.raises(ConfigError, match="invalid webhook port 70000"):
        parse_command_line(ManagerFlags, ["-webhook-port=70000"], {}).to_options("op")


async def test_port_in_use_is_an_error_with_advice() -> None:
    with socket.create_server((LOCALHOST, 0)) as taken:
        running = RunningManager(
            WebhookOptions(host=LOCALHOST, port=taken.getsockname()[1], certificate_dir="/none")
        )
        running.manager.add(running.webhook)
        with pytest.raises(
            ConfigError,
            match=r"for webhooks: another process.*Choose another port with -webhook-port",
        ):
            await running.manager.run(running.stop)


def test_own_ca_needs_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return original(name, *rest)

    for module in [
        name
        for name in sys.modules
        if name in ("kubewright.webhook.cert_rotation", "kubewright.webhook.ca", "kubewright.x509")
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"install kubewright\[tls\]"):
        _create_certificate(WebhookOptions(), Client(FakeApi()), "op", "sys", [])
