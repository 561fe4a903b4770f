"""The webhook server and its clients: malformed, slow and too many requests."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest

from kubewright.listen import ListenAddress
from kubewright.metrics import Metrics
from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority
from kubewright.tls import ServingCertificate
from kubewright.webhook import server as module
from kubewright.webhook.admission import ReviewHandler, create_handlers
from kubewright.webhook.conversion import ConversionHandler
from kubewright.webhook.server import WebhookMetrics, WebhookServer

from .box_kind import LOCALHOST, BoxConversion, BoxWebhook
from .test_admission import make_box, make_review

MUTATE_PATH = "/mutate-hooks-kubewright-test-v2-box"
VALIDATE_PATH = "/validate-hooks-kubewright-test-v2-box"
TEST_CA = CertificateAuthority("test")


class WebhookServerHarness:
    """A webhook server with the webhook and the conversion of boxes."""

    def __init__(self, stop_seconds: float = 2) -> None:
        self.webhook, self.metrics, self.certificate = BoxWebhook(), Metrics(), ServingCertificate()
        handlers: list[ReviewHandler] = [
            *create_handlers(self.webhook),
            ConversionHandler([BoxConversion()]),
        ]
        self.server = WebhookServer(
            ListenAddress(LOCALHOST, 0),
            handlers,
            self.certificate,
            WebhookMetrics(self.metrics, [handler.path for handler in handlers]),
            stop_seconds=stop_seconds,
        )
        self.tls = ssl.create_default_context(cadata=TEST_CA.certificate.decode())

    async def post(
        self,
        body: Any,
        path: str = VALIDATE_PATH,
        content_type: str = "application/json",
        method: str = "POST",
    ) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method,
                f"https://{LOCALHOST}:{self.server.port}{path}",
                data=body,
                ssl=self.tls,
                headers={"Content-Type": content_type},
            ) as response,
        ):
            return response.status, await response.text()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(LOCALHOST, self.server.port, ssl=self.tls)

    def metric_lines(self, name: str) -> list[str]:
        return [
            line
            for line in self.metrics.exposition()[0].decode().splitlines()
            if line.startswith(name)
        ]


@pytest.fixture
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[WebhookServerHarness]:
    harness = WebhookServerHarness(getattr(request, "param", 2))
    pair = TEST_CA.issue_serving_certificate(LOCALHOST)
    await asyncio.to_thread(harness.certificate.load_pem, pair.certificate + pair.key)
    await harness.server.start()
    yield harness
    await harness.server.stop()


async def check_server_responds(harness: WebhookServerHarness) -> None:
    status, text = await harness.post(make_review(make_box({"width": 1})))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)


async def test_review_is_answered_and_counted(harness: WebhookServerHarness) -> None:
    await check_server_responds(harness)
    assert harness.metric_lines("controller_runtime_webhook_requests_total") == [
        f'controller_runtime_webhook_requests_total{{code="{code}",webhook="{path}"}} {count}'
        for path, code, count in (
            (MUTATE_PATH, 200, "0.0"),
            (MUTATE_PATH, 500, "0.0"),
            (VALIDATE_PATH, 200, "1.0"),
            (VALIDATE_PATH, 500, "0.0"),
            ("/convert", 200, "0.0"),
            ("/convert", 500, "0.0"),
        )
    ]
    assert (
        f'controller_runtime_webhook_requests_in_flight{{webhook="{VALIDATE_PATH}"}} 0.0'
        in harness.metric_lines("controller_runtime_webhook")
    )
    assert (
        f'controller_runtime_webhook_latency_seconds_count{{webhook="{VALIDATE_PATH}"}} 1.0'
        in harness.metric_lines("controller_runtime_webhook")
    )


async def chunked_body(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 100_000):
        yield b"x" * 100_000


async def test_invalid_requests_get_an_error_with_the_reason(harness: WebhookServerHarness) -> None:
    status, text = await harness.post(b"not json")
    assert status == 400
    assert text.startswith("invalid AdmissionReview of admission.k8s.io/v1")
    status, text = await harness.post(
        make_review(make_box(), kind={"group": "", "version": "v1", "kind": "Pod"})
    )
    assert status == 400
    assert text.startswith(f"{VALIDATE_PATH} is for hooks.kubewright.test/v2 Box, not for /v1 Pod")
    assert (await harness.post(b"not json", "/convert"))[0] == 400
    assert (await harness.post(b"a=b", content_type="text/plain"))[0] == 415
    assert (await harness.post(None, method="GET"))[0] == 405
    assert (await harness.post(b"{}", "/else"))[0] == 404
    await check_server_responds(harness)


async def test_body_that_is_too_large_gets_413(harness: WebhookServerHarness) -> None:
    assert await harness.post(io.BytesIO(b"x" * 10_000_000)) == (
        413,
        "a review must not be larger than 7340032 bytes",
    )
    assert (await harness.post(chunked_body(10_000_000)))[0] == 413
    assert (await harness.post(chunked_body(10_000_000), "/convert"))[0] == 400
    assert harness.server.buffered_bytes == 0
    await check_server_responds(harness)


async def test_failure_of_a_webhook_gets_500_and_counts(harness: WebhookServerHarness) -> None:
    status, text = await harness.post(make_review(make_box({"color": "broken"})))
    assert (status, text) == (
        500,
        "BoxWebhook.validate failed: KeyError: 'no such color, password=***'",
    )
    assert harness.metric_lines("controller_runtime_webhook_panics_total") == [
        "controller_runtime_webhook_panics_total 1.0"
    ]
    await check_server_responds(harness)


async def test_unexpected_failure_gets_500_without_details(
    harness: WebhookServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(body: bytes) -> bytes:
        raise RuntimeError("inside")

    monkeypatch.setattr(harness.server.handlers[VALIDATE_PATH], "handle", fail)
    assert await harness.post(make_review(make_box())) == (
        500,
        "the review failed: RuntimeError; see the log of the manager",
    )


async def test_silent_and_slow_clients_are_disconnected_and_block_no_other(
    harness: WebhookServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HEADERS_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(module, "_BODY_TIMEOUT_SECONDS", 0.5)
    silent, halting, slow = [await harness.connect() for _ in range(3)]
    halting[1].write(b"POST /validate HTTP/1.1\r\nHost: a\r\nX-Slow: ")
    slow[1].write(
        f"POST {VALIDATE_PATH} HTTP/1.1\r\nHost: a\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode()
    )
    await check_server_responds(harness)
    assert await asyncio.wait_for(silent[0].read(), 30) == b""
    assert await asyncio.wait_for(halting[0].read(), 30) == b""
    response = await asyncio.wait_for(slow[0].read(), 30)
    assert response.startswith(b"HTTP/1.1 408")
    assert b"the body did not arrive within 0.5 s" in response
    for _, writer in (silent, halting, slow):
        writer.close()
    await check_server_responds(harness)


async def test_connection_without_a_handshake_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HEADERS_TIMEOUT_SECONDS", 0.3)
    harness = WebhookServerHarness()
    await harness.server.start()
    try:
        reader, writer = await asyncio.open_connection(LOCALHOST, harness.server.port)
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
    finally:
        await harness.server.stop()


async def test_oldest_of_too_many_silent_connections_is_closed(
    harness: WebhookServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_CONNECTIONS_WITHOUT_REQUEST", 3)
    opened = [await harness.connect() for _ in range(4)]
    assert await asyncio.wait_for(opened[0][0].read(), 30) == b""
    assert not opened[1][0].at_eof()
    await check_server_responds(harness)
    for _, writer in opened:
        writer.close()


async def test_too_many_concurrent_reviews_get_503(
    harness: WebhookServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_CONCURRENT_REQUESTS", 1)
    harness.webhook.gate.clear()
    waiting = asyncio.create_task(harness.post(make_review(make_box({"color": "slow"}))))
    await eventually(lambda: harness.server.active_requests == 1)
    assert (await harness.post(make_review(make_box())))[0] == 503
    harness.webhook.gate.set()
    assert (await waiting)[0] == 200
    monkeypatch.setattr(module, "_MAX_BUFFERED_BYTES", 100)
    assert (await harness.post(make_review(make_box())))[0] == 503
    assert harness.server.buffered_bytes == 0


async def test_handshakes_fail_until_a_certificate_is_loaded() -> None:
    harness = WebhookServerHarness()
    await harness.server.start()
    try:
        with pytest.raises(aiohttp.ClientConnectorError):
            await harness.post(b"{}")
        pair = TEST_CA.issue_serving_certificate(LOCALHOST)
        await asyncio.to_thread(harness.certificate.load_pem, pair.certificate + pair.key)
        await check_server_responds(harness)
    finally:
        await harness.server.stop()


# As long as a busy machine may need for the review.
@pytest.mark.parametrize("harness", [60.0], indirect=True)
async def test_stop_waits_for_reviews_in_flight(harness: WebhookServerHarness) -> None:
    harness.webhook.gate.clear()
    waiting = asyncio.create_task(harness.post(make_review(make_box({"color": "slow"}))))
    await eventually(lambda: harness.server.active_requests == 1)
    port = harness.server.port
    stopping = asyncio.create_task(harness.server.stop())
    await eventually(lambda: harness.server.listener is None)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(LOCALHOST, port)
    harness.webhook.gate.set()
    assert (await waiting)[0] == 200
    await stopping


async def test_large_bodies_are_decoded_in_turns(
    harness: WebhookServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others, such as the renewal of the leader lease, run between two of them."""
    arrived, turn = asyncio.Event(), 0
    turns: list[int] = []

    @asynccontextmanager
    async def read_body(request: object, max_bytes: int) -> AsyncIterator[bytes]:
        await arrived.wait()
        yield bytes(max_bytes)

    async def handle(body: bytes) -> bytes:
        turns.append(turn)
        return b""

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    server = harness.server
    monkeypatch.setattr(server, "_read_body", read_body)
    monkeypatch.setattr(server.handlers[VALIDATE_PATH], "handle", handle)
    request = Mock(path=VALIDATE_PATH, content_type="application/json")
    counter = asyncio.create_task(count_turns())
    reviews = [asyncio.create_task(server._dispatch(request)) for _ in range(20)]
    await asyncio.sleep(0)
    arrived.set()
    await asyncio.gather(*reviews)
    counter.cancel()
    assert len(turns) == len(set(turns)) == 20
