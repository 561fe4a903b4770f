"""The endpoint and whoever can reach it: hostile, slow, and too many."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

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

VALIDATE_PATH = "/validate-hooks-kubewright-test-v2-box"
TEST_CA = CertificateAuthority("test")


class WebhookServerHarness:
    """An endpoint with boxes on it."""

    def __init__(self) -> None:
        self.webhook, self.metrics, self.certificate = BoxWebhook(), Metrics(), ServingCertificate()
        answering: list[ReviewHandler] = [
            *create_handlers(self.webhook),
            ConversionHandler([BoxConversion()]),
        ]
        gauge = WebhookMetrics(self.metrics, [each.path for each in answering])
        self.server = WebhookServer(
            f"{LOCALHOST}:0",
            ListenAddress(LOCALHOST, 0),
            answering,
            self.certificate,
            gauge,
            stop_seconds=2,
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
            ) as answer,
        ):
            return answer.status, await answer.text()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(LOCALHOST, self.server.port, ssl=self.tls)

    def metric_lines(self, name: str) -> list[str]:
        return [
            line
            for line in self.metrics.exposition()[0].decode().splitlines()
            if line.startswith(name)
        ]


@pytest.fixture
async def harness() -> AsyncIterator[WebhookServerHarness]:
    made = WebhookServerHarness()
    pair = TEST_CA.issue_serving_certificate(LOCALHOST)
    await asyncio.to_thread(made.certificate.load_pem, pair.certificate + pair.key)
    await made.server.start()
    yield made
    await made.server.stop()


async def check_answers(rig: WebhookServerHarness) -> None:
    status, text = await rig.post(make_review(make_box({"width": 1})))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)


async def test_a_review(harness: WebhookServerHarness) -> None:
    await check_answers(harness)
    assert harness.metric_lines("controller_runtime_webhook_requests_total") == [
        'controller_runtime_webhook_requests_total{code="200",webhook="/mutate-hooks-kubewright-test-v2-box"} 0.0',
        'controller_runtime_webhook_requests_total{code="500",webhook="/mutate-hooks-kubewright-test-v2-box"} 0.0',
        f'controller_runtime_webhook_requests_total{{code="200",webhook="{VALIDATE_PATH}"}} 1.0',
        f'controller_runtime_webhook_requests_total{{code="500",webhook="{VALIDATE_PATH}"}} 0.0',
        'controller_runtime_webhook_requests_total{code="200",webhook="/convert"} 0.0',
        'controller_runtime_webhook_requests_total{code="500",webhook="/convert"} 0.0',
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


async def test_what_cannot_be_answered_is_refused_in_words(harness: WebhookServerHarness) -> None:
    status, words = await harness.post(b"not json")
    assert status == 400
    assert words.startswith("this is no AdmissionReview of admission.k8s.io/v1")
    status, words = await harness.post(
        make_review(make_box(), kind={"group": "", "version": "v1", "kind": "Pod"})
    )
    assert status == 400
    assert words.startswith(f"{VALIDATE_PATH} is for hooks.kubewright.test/v2 Box, not for /v1 Pod")
    assert (await harness.post(b"not json", "/convert"))[0] == 400
    assert (await harness.post(b"a=b", content_type="text/plain"))[0] == 415
    assert (await harness.post(None, method="GET"))[0] == 405
    assert (await harness.post(b"{}", "/else"))[0] == 404
    await check_answers(harness)


async def test_too_large_a_body(harness: WebhookServerHarness) -> None:
    assert await harness.post(io.BytesIO(b"x" * 10_000_000)) == (
        413,
        "a review here has at most 7340032 bytes",
    )
    assert (await harness.post(chunked_body(10_000_000)))[0] == 413
    assert (await harness.post(chunked_body(10_000_000), "/convert"))[0] == 400
    assert harness.server.buffered_bytes == 0
    await check_answers(harness)


async def test_a_failure_is_a_500_and_counts(harness: WebhookServerHarness) -> None:
    status, words = await harness.post(make_review(make_box({"colour": "broken"})))
    assert (status, words) == (
        500,
        "BoxWebhook.validate failed: KeyError: 'no such colour, password=***'",
    )
    assert harness.metric_lines("controller_runtime_webhook_panics_total") == [
        "controller_runtime_webhook_panics_total 1.0"
    ]
    await check_answers(harness)


async def test_what_nobody_foresaw_is_a_500_without_details(
    harness: WebhookServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(body: bytes) -> bytes:
        raise RuntimeError("inside")

    monkeypatch.setattr(harness.server.handlers[VALIDATE_PATH], "handle", broken)
    assert await harness.post(make_review(make_box())) == (
        500,
        "the review could not be answered: RuntimeError; the manager's log says more",
    )


async def test_those_who_send_nothing_or_slowly_are_hung_up_on_and_hold_up_nobody(
    harness: WebhookServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HEADERS_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(module, "_BODY_TIMEOUT_SECONDS", 0.5)
    silent, halting, slow = [await harness.connect() for _ in range(3)]
    halting[1].write(b"POST /validate HTTP/1.1\r\nHost: a\r\nX-Slow: ")
    slow[1].write(
        f"POST {VALIDATE_PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode()
    )
    await check_answers(harness)
    assert await asyncio.wait_for(silent[0].read(), 5) == b""
    assert await asyncio.wait_for(halting[0].read(), 5) == b""
    answer = await asyncio.wait_for(slow[0].read(), 5)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"the body did not arrive within 0.5 s" in answer
    for _, writer in (silent, halting, slow):
        writer.close()
    await check_answers(harness)


async def test_a_handshake_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HEADERS_TIMEOUT_SECONDS", 0.3)
    rig = WebhookServerHarness()
    await rig.server.start()
    try:
        reader, writer = await asyncio.open_connection(LOCALHOST, rig.server.port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
    finally:
        await rig.server.stop()


async def test_of_too_many_that_are_silent_the_oldest_goes(
    harness: WebhookServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_CONNECTIONS_WITHOUT_REQUEST", 3)
    opened = [await harness.connect() for _ in range(4)]
    assert await asyncio.wait_for(opened[0][0].read(), 5) == b""
    assert not opened[1][0].at_eof()
    await check_answers(harness)
    for _, writer in opened:
        writer.close()


async def test_too_many_at_once(
    harness: WebhookServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_CONCURRENT_REQUESTS", 1)
    harness.webhook.gate.clear()
    waiting = asyncio.create_task(harness.post(make_review(make_box({"colour": "slow"}))))
    await eventually(lambda: harness.server.active_requests == 1)
    assert (await harness.post(make_review(make_box())))[0] == 503
    harness.webhook.gate.set()
    assert (await waiting)[0] == 200
    monkeypatch.setattr(module, "_MAX_BUFFERED_BYTES", 100)
    assert (await harness.post(make_review(make_box())))[0] == 503
    assert harness.server.buffered_bytes == 0


async def test_without_a_certificate_nobody_gets_in_and_with_one_they_do() -> None:
    rig = WebhookServerHarness()
    await rig.server.start()
    try:
        with pytest.raises(aiohttp.ClientConnectorError):
            await rig.post(b"{}")
        pair = TEST_CA.issue_serving_certificate(LOCALHOST)
        await asyncio.to_thread(rig.certificate.load_pem, pair.certificate + pair.key)
        await check_answers(rig)
    finally:
        await rig.server.stop()


async def test_stopping_lets_what_is_in_flight_end(harness: WebhookServerHarness) -> None:
    harness.webhook.gate.clear()
    waiting = asyncio.create_task(harness.post(make_review(make_box({"colour": "slow"}))))
    await eventually(lambda: harness.server.active_requests == 1)
    port = harness.server.port
    stopping = asyncio.create_task(harness.server.stop())
    await eventually(lambda: harness.server.listener is None)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(LOCALHOST, port)
    harness.webhook.gate.set()
    assert (await waiting)[0] == 200
    await stopping
