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

from kubewright.listen import Address
from kubewright.metrics import Metrics
from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority
from kubewright.tls import Certificate
from kubewright.webhook import server as module
from kubewright.webhook.admission import ReviewHandler, create_handlers
from kubewright.webhook.conversion import ConversionHandler
from kubewright.webhook.metrics import WebhookMetrics
from kubewright.webhook.server import WebhookServer

from .rig import HERE, BoxConversion, BoxWebhook
from .test_admission import box, review

VALIDATE = "/validate-hooks-kubewright-test-v2-box"
AUTHORITY = CertificateAuthority("test")


class Rig:
    """An endpoint with boxes on it."""

    def __init__(self) -> None:
        self.webhook, self.metrics, self.certificate = BoxWebhook(), Metrics(), Certificate()
        answering: list[ReviewHandler] = [
            *create_handlers(self.webhook),
            ConversionHandler([BoxConversion()]),
        ]
        gauge = WebhookMetrics(self.metrics, [each.path for each in answering])
        self.endpoint = WebhookServer(
            f"{HERE}:0", Address(HERE, 0), answering, self.certificate, gauge, stop_seconds=2
        )
        self.tls = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())

    async def post(
        self,
        body: Any,
        path: str = VALIDATE,
        content_type: str = "application/json",
        method: str = "POST",
    ) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method,
                f"https://{HERE}:{self.endpoint.port}{path}",
                data=body,
                ssl=self.tls,
                headers={"Content-Type": content_type},
            ) as answer,
        ):
            return answer.status, await answer.text()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HERE, self.endpoint.port, ssl=self.tls)

    def counted(self, name: str) -> list[str]:
        return [
            line
            for line in self.metrics.exposition()[0].decode().splitlines()
            if line.startswith(name)
        ]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    pair = AUTHORITY.issue_serving_certificate(HERE)
    await asyncio.to_thread(made.certificate.use, pair.certificate + pair.key)
    await made.endpoint.start()
    yield made
    await made.endpoint.stop()


async def fine(rig: Rig) -> None:
    status, text = await rig.post(review(box({"width": 1})))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)


async def test_a_review(rig: Rig) -> None:
    await fine(rig)
    assert rig.counted("controller_runtime_webhook_requests_total") == [
        'controller_runtime_webhook_requests_total{code="200",webhook="/mutate-hooks-kubewright-test-v2-box"} 0.0',
        'controller_runtime_webhook_requests_total{code="500",webhook="/mutate-hooks-kubewright-test-v2-box"} 0.0',
        f'controller_runtime_webhook_requests_total{{code="200",webhook="{VALIDATE}"}} 1.0',
        f'controller_runtime_webhook_requests_total{{code="500",webhook="{VALIDATE}"}} 0.0',
        'controller_runtime_webhook_requests_total{code="200",webhook="/convert"} 0.0',
        'controller_runtime_webhook_requests_total{code="500",webhook="/convert"} 0.0',
    ]
    assert (
        f'controller_runtime_webhook_requests_in_flight{{webhook="{VALIDATE}"}} 0.0'
        in rig.counted("controller_runtime_webhook")
    )
    assert (
        f'controller_runtime_webhook_latency_seconds_count{{webhook="{VALIDATE}"}} 1.0'
        in rig.counted("controller_runtime_webhook")
    )


async def chunked(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 100_000):
        yield b"x" * 100_000


async def test_what_cannot_be_answered_is_refused_in_words(rig: Rig) -> None:
    status, words = await rig.post(b"not json")
    assert status == 400
    assert words.startswith("this is no AdmissionReview of admission.k8s.io/v1")
    status, words = await rig.post(
        review(box(), kind={"group": "", "version": "v1", "kind": "Pod"})
    )
    assert status == 400
    assert words.startswith(f"{VALIDATE} is for hooks.kubewright.test/v2 Box, not for /v1 Pod")
    assert (await rig.post(b"not json", "/convert"))[0] == 400
    assert (await rig.post(b"a=b", content_type="text/plain"))[0] == 415
    assert (await rig.post(None, method="GET"))[0] == 405
    assert (await rig.post(b"{}", "/else"))[0] == 404
    await fine(rig)


async def test_too_large_a_body(rig: Rig) -> None:
    assert await rig.post(io.BytesIO(b"x" * 10_000_000)) == (
        413,
        "a review here has at most 7340032 bytes",
    )
    assert (await rig.post(chunked(10_000_000)))[0] == 413
    assert (await rig.post(chunked(10_000_000), "/convert"))[0] == 400
    assert rig.endpoint.buffered_bytes == 0
    await fine(rig)


async def test_a_failure_is_a_500_and_counts(rig: Rig) -> None:
    status, words = await rig.post(review(box({"colour": "broken"})))
    assert (status, words) == (
        500,
        "BoxWebhook.validate failed: KeyError: 'no such colour, password=***'",
    )
    assert rig.counted("controller_runtime_webhook_panics_total") == [
        "controller_runtime_webhook_panics_total 1.0"
    ]
    await fine(rig)


async def test_what_nobody_foresaw_is_a_500_without_details(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(body: bytes) -> bytes:
        raise RuntimeError("inside")

    monkeypatch.setattr(rig.endpoint.handlers[VALIDATE], "answer", broken)
    assert await rig.post(review(box())) == (
        500,
        "the review could not be answered: RuntimeError; the manager's log says more",
    )


async def test_those_who_send_nothing_or_slowly_are_hung_up_on_and_hold_up_nobody(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(module, "BODY_SECONDS", 0.5)
    silent, halting, slow = [await rig.connect() for _ in range(3)]
    halting[1].write(b"POST /validate HTTP/1.1\r\nHost: a\r\nX-Slow: ")
    slow[1].write(
        f"POST {VALIDATE} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode()
    )
    await fine(rig)
    assert await asyncio.wait_for(silent[0].read(), 5) == b""
    assert await asyncio.wait_for(halting[0].read(), 5) == b""
    answer = await asyncio.wait_for(slow[0].read(), 5)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"the body did not arrive within 0.5 s" in answer
    for _, writer in (silent, halting, slow):
        writer.close()
    await fine(rig)


async def test_a_handshake_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.3)
    rig = Rig()
    await rig.endpoint.start()
    try:
        reader, writer = await asyncio.open_connection(HERE, rig.endpoint.port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
    finally:
        await rig.endpoint.stop()


async def test_of_too_many_that_are_silent_the_oldest_goes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SILENT", 3)
    opened = [await rig.connect() for _ in range(4)]
    assert await asyncio.wait_for(opened[0][0].read(), 5) == b""
    assert not opened[1][0].at_eof()
    await fine(rig)
    for _, writer in opened:
        writer.close()


async def test_too_many_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 1)
    rig.webhook.gate.clear()
    waiting = asyncio.create_task(rig.post(review(box({"colour": "slow"}))))
    await eventually(lambda: rig.endpoint.active_requests == 1)
    assert (await rig.post(review(box())))[0] == 503
    rig.webhook.gate.set()
    assert (await waiting)[0] == 200
    monkeypatch.setattr(module, "MOST_HELD_BYTES", 100)
    assert (await rig.post(review(box())))[0] == 503
    assert rig.endpoint.buffered_bytes == 0


async def test_without_a_certificate_nobody_gets_in_and_with_one_they_do() -> None:
    rig = Rig()
    await rig.endpoint.start()
    try:
        with pytest.raises(aiohttp.ClientConnectorError):
            await rig.post(b"{}")
        pair = AUTHORITY.issue_serving_certificate(HERE)
        await asyncio.to_thread(rig.certificate.use, pair.certificate + pair.key)
        await fine(rig)
    finally:
        await rig.endpoint.stop()


async def test_stopping_lets_what_is_in_flight_end(rig: Rig) -> None:
    rig.webhook.gate.clear()
    waiting = asyncio.create_task(rig.post(review(box({"colour": "slow"}))))
    await eventually(lambda: rig.endpoint.active_requests == 1)
    port = rig.endpoint.port
    stopping = asyncio.create_task(rig.endpoint.stop())
    await eventually(lambda: rig.endpoint.listener is None)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HERE, port)
    rig.webhook.gate.set()
    assert (await waiting)[0] == 200
    await stopping
