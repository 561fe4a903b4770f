from __future__ import annotations

import asyncio
import builtins
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from kubewright import server as module
from kubewright.errors import ConfigError
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.server import Server
from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority
from kubewright.testing.ca import write_key_pair as write_files
from kubewright.tls import SelfSignedCertificate

from .support.fake_authorizer import FakeAuthorizer


@asynccontextmanager
async def run_server(server: Server) -> AsyncIterator[Server]:
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def http_get(
    port: int, path: str, *, tls: bool = False, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    address = f"{'https' if tls else 'http'}://127.0.0.1:{port}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(address, ssl=False, headers=headers) as response,
    ):
        return response.status, await response.text()


def make_local_server(**options: Any) -> Server:
    return Server(
        Metrics(),
        **{
            "metrics_bind_address": "127.0.0.1:0",
            "health_probe_bind_address": "127.0.0.1:0",
            **options,
        },
    )


async def test_metrics_are_served_on_their_path_only() -> None:
    async with run_server(make_local_server()) as server:
        server.metrics.lists.labels("pods").inc()
        status, text = await http_get(server.metrics_port, "/metrics")
        assert status == 200
        assert 'kubewright_lists_total{kind="pods"} 1.0\n' in text
        assert "\nprocess_resident_memory_bytes " in text
        assert (await http_get(server.metrics_port, "/else"))[0] == 404
        assert (await http_get(server.metrics_port, "/healthz"))[0] == 404


async def test_disabled_endpoints_do_not_listen() -> None:
    async with run_server(
        make_local_server(metrics_bind_address="0", health_probe_bind_address="")
    ) as server:
        assert (server.metrics_port, server.health_port) == (0, 0)


async def test_address_without_a_host_accepts_ipv4() -> None:
    async with run_server(make_local_server(health_probe_bind_address=":0")) as server:
        assert (await http_get(server.health_port, "/healthz"))[0] == 200


async def test_endpoint_without_checks_is_healthy() -> None:
    async with run_server(make_local_server()) as server:
        assert await http_get(server.health_port, "/healthz") == (200, "ok")
        assert await http_get(server.health_port, "/readyz?verbose") == (
            200,
            "[+]ping ok\nreadyz check passed\n",
        )


@pytest.mark.parametrize("secure", [False, True])
async def test_idle_connections_are_limited_per_endpoint(
    secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections without a request, or in a TLS handshake, would use up all file descriptors."""
    monkeypatch.setattr(module, "_MAX_METRICS_CONNECTIONS", 4)
    server = make_local_server(secure=secure, authorizer=FakeAuthorizer())
    async with run_server(server):
        probe = socket.create_connection(("127.0.0.1", server.health_port))
        idle = [await asyncio.open_connection("127.0.0.1", server.metrics_port) for _ in range(10)]
        async with asyncio.timeout(30):
            for reader, _ in idle[:6]:
                assert await reader.read() == b""
        assert [reader.at_eof() for reader, _ in idle[6:]] == [False] * 4
        assert await http_get(server.health_port, "/healthz") == (200, "ok")
        status, _ = await http_get(server.metrics_port, "/metrics", tls=secure)
        assert status == (401 if secure else 200)
        # The limit of one endpoint does not end connections of another.
        probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        response = await asyncio.to_thread(probe.recv, 1024)
        assert response.startswith(b"HTTP/1.1 200")
        probe.close()
        for _, writer in idle:
            writer.close()


async def hanging_check() -> str | None:
    await asyncio.Event().wait()
    return None


async def passing_check() -> str | None:
    return None


def raising_check() -> str | None:
    raise KeyError("x")


async def test_failed_check_fails_its_endpoint_only() -> None:
    server = make_local_server()
    server.add_readyz_check("leader", passing_check)
    server.add_readyz_check("cache", lambda: "pods: not listed yet,\n token=abcdefgh")
    async with run_server(server):
        status, text = await http_get(server.health_port, "/readyz")
        assert (status, text) == (
            500,
            "[-]cache failed: pods: not listed yet, token=***\n[+]leader ok\nreadyz check failed\n",
        )
        assert await http_get(server.health_port, "/readyz?exclude=cache") == (200, "ok")
        verbose = await http_get(
            server.health_port, "/readyz?verbose&exclude=cache&exclude=nothing"
        )
        assert verbose[0] == 200
        assert verbose[1].startswith(
            "[+]cache excluded: ok\n[+]leader ok\nwarn: some health checks cannot be excluded"
        )
        assert 'no matches for "nothing"\n' in verbose[1]
        assert await http_get(server.health_port, "/readyz/leader") == (200, "ok")
        assert (await http_get(server.health_port, "/readyz/cache"))[0] == 500
        assert (await http_get(server.health_port, "/readyz/else"))[0] == 404
        assert await http_get(server.health_port, "/healthz") == (200, "ok")


async def test_check_that_raises_or_hangs_counts_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CHECK_TIMEOUT_SECONDS", 0.01)
    server = make_local_server()
    server.add_healthz_check("slow", hanging_check)
    server.add_healthz_check("raising", raising_check)
    async with run_server(server):
        status, text = await http_get(server.health_port, "/healthz")
    assert status == 500
    assert (
        "[-]raising failed: KeyError: 'x'\n[-]slow failed: no result within 0.01 s\n"
        "healthz check failed\n" in text
    )


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("metrics_bind_address", r"-metrics-addr \(environment METRICS_ADDR\)"),
        ("health_probe_bind_address", r"-health-probe-bind-address \(environment"),
    ],
)
async def test_address_in_use_is_an_error_with_advice(option: str, advice: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = make_local_server(**{option: f"127.0.0.1:{taken.getsockname()[1]}"})
        with pytest.raises(
            ConfigError,
            match=f"another process, possibly another manager, already listens there.*{advice}",
        ):
            await server.start()
        assert (server.metrics_port, server.health_port) == (0, 0)


async def test_stop_works_before_start_and_twice() -> None:
    server = make_local_server()
    await server.stop()
    await server.start()
    port = server.health_port
    await server.stop()
    await server.stop()
    with pytest.raises(aiohttp.ClientConnectorError):
        await http_get(port, "/healthz")


async def test_stop_waits_for_a_response_in_progress() -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def gate() -> str | None:
        entered.set()
        await go.wait()
        return None

    server = make_local_server()
    server.add_healthz_check("gate", gate)
    await server.start()
    request = asyncio.create_task(http_get(server.health_port, "/healthz"))
    await entered.wait()
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    go.set()
    assert await request == (200, "ok")
    await stopping


async def test_too_many_concurrent_requests_get_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_IN_FLIGHT", 0)
    async with run_server(make_local_server()) as server:
        assert (await http_get(server.health_port, "/healthz"))[0] == 503


async def test_flood_of_invalid_tokens_affects_neither_probes_nor_cached_tokens() -> None:
    authorizer = FakeAuthorizer()
    async with run_server(make_local_server(secure=True, authorizer=authorizer)) as server:

        async def get_metrics(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return (await http_get(server.metrics_port, "/metrics", tls=True, headers=headers))[0]

        assert await get_metrics("good") == 200
        authorizer.gate.clear()
        flood = [asyncio.create_task(get_metrics(f"junk-{number}")) for number in range(200)]
        await eventually(lambda: len(authorizer.requests) > 1)
        for _ in range(20):
            for path in ("/healthz", "/readyz", "/readyz/"):
                assert await http_get(server.health_port, path) == (200, "ok")
        await eventually(lambda: sum(task.done() for task in flood) >= 100)
        assert await get_metrics("good") == 200
        authorizer.gate.set()
        assert set(await asyncio.gather(*flood)) == {401, 503}


async def test_requests_that_wait_for_one_review_do_not_occupy_the_probes() -> None:
    authorizer = FakeAuthorizer()
    async with run_server(make_local_server(secure=True, authorizer=authorizer)) as server:

        async def get_metrics() -> int:
            headers = {"Authorization": "Bearer junk"}
            return (await http_get(server.metrics_port, "/metrics", tls=True, headers=headers))[0]

        authorizer.gate.clear()
        waiting = [asyncio.create_task(get_metrics()) for _ in range(module._MAX_IN_FLIGHT + 10)]
        # Those beyond the limit of the endpoint are rejected; the others share one review.
        await eventually(lambda: sum(task.done() for task in waiting) == 10)
        for path in ("/healthz", "/readyz", "/readyz/"):
            assert await http_get(server.health_port, path) == (200, "ok")
        authorizer.gate.set()
        statuses = await asyncio.gather(*waiting)
    assert (statuses.count(401), statuses.count(503)) == (module._MAX_IN_FLIGHT, 10)


async def test_long_headers_get_400() -> None:
    async with run_server(make_local_server()) as server:
        assert (await http_get(server.metrics_port, "/metrics", headers={"X-Long": "x" * 20_000}))[
            0
        ] == 400


async def test_secure_metrics_require_an_authorized_token() -> None:
    authorizer = FakeAuthorizer()
    async with run_server(make_local_server(secure=True, authorizer=authorizer)) as server:

        async def get_metrics(authorization: str = "") -> tuple[int, str]:
            headers = {"Authorization": authorization} if authorization else {}
            return await http_get(server.metrics_port, "/metrics", tls=True, headers=headers)

        assert (await get_metrics())[0] == 401
        assert (await get_metrics("Basic good"))[0] == 401
        assert (await get_metrics("Bearer "))[0] == 401
        assert authorizer.requests == []
        assert (await get_metrics("Bearer unknown"))[0] == 401
        assert (await get_metrics("Bearer poor"))[0] == 403
        status, text = await get_metrics("Bearer good")
        assert (status, "python_info" in text) == (200, True)
        assert authorizer.requests[-1] == ("good", "get", "/metrics")
        status, text = await get_metrics("Bearer broken")
        assert status == 500
        assert "the review by the API server failed" in text
        assert "abcdefgh" not in text
        assert (await http_get(server.health_port, "/healthz"))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await http_get(server.metrics_port, "/metrics")


def test_secure_metrics_need_an_authorizer() -> None:
    with pytest.raises(ConfigError, match="need an authorizer"):
        make_local_server(secure=True)


def write_key_pair(directory: Path, host: str) -> None:
    pair = CertificateAuthority("test").issue_serving_certificate(host)
    write_files(pair, directory / "tls.crt", directory / "tls.key")


async def read_served_certificate(port: int, server_name: str = "127.0.0.1") -> x509.Certificate:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=server_name
    )
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(certificate)


async def read_served_name(port: int, server_name: str = "127.0.0.1") -> str:
    certificate = await read_served_certificate(port, server_name)
    return str(certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


async def wait_until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - a thread reads the files, and sets no event
            await asyncio.sleep(0.005)


async def test_renewed_certificate_is_presented(tmp_path: Path) -> None:
    await asyncio.to_thread(write_key_pair, tmp_path, "first.example")
    server = make_local_server(
        secure=True,
        authorizer=FakeAuthorizer(),
        certificate_dir=str(tmp_path),
        reload_seconds=0.005,
    )
    async with run_server(server):
        assert await read_served_name(server.metrics_port) == "first.example"
        assert server.certificate is not None
        before = server.certificate.current_context
        await asyncio.to_thread(write_key_pair, tmp_path, "second.example")
        renewed = await asyncio.to_thread((tmp_path / "tls.crt").read_bytes)
        certificate = server.certificate
        await wait_until(
            lambda: (
                certificate.current_context is not before
                and certificate.loaded_pem.startswith(renewed)
            )
        )
        assert await read_served_name(server.metrics_port) == "second.example"
        assert await read_served_name(server.metrics_port, "second.example") == "second.example"


async def test_metrics_show_when_the_served_certificate_expires() -> None:
    server = make_local_server(secure=True, authorizer=FakeAuthorizer())
    async with run_server(server):
        served = await read_served_certificate(server.metrics_port)
        expiry = server.metrics.registry.get_sample_value(
            "kubewright_certificate_expiry_seconds", {"server": "metrics"}
        )
    assert expiry == served.not_valid_after_utc.timestamp()


async def test_broken_renewal_keeps_the_old_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(write_key_pair, tmp_path, "first.example")
    server = make_local_server(
        secure=True,
        authorizer=FakeAuthorizer(),
        certificate_dir=str(tmp_path),
        reload_seconds=0.005,
    )
    async with run_server(server):
        await asyncio.to_thread((tmp_path / "tls.crt").write_bytes, b"half a certif")
        await wait_until(
            lambda: "cannot load the new certificate, keeping the old one" in caplog.text
        )
        assert await read_served_name(server.metrics_port) == "first.example"


async def test_missing_certificate_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it needs the files tls\.crt and tls\.key"):
        await make_local_server(
            secure=True, authorizer=FakeAuthorizer(), certificate_dir=str(tmp_path)
        ).start()


async def test_self_signed_certificate_is_renewed_in_a_running_server() -> None:
    server = make_local_server(secure=True, authorizer=FakeAuthorizer(), reload_seconds=0.005)
    certificate = server.certificate
    assert isinstance(certificate, SelfSignedCertificate)
    now = datetime.now(UTC)
    certificate._clock = lambda: now

    async def wait_for_another_than(pem: bytes) -> x509.Certificate:
        await wait_until(lambda: certificate.loaded_pem != pem)
        return await read_served_certificate(server.metrics_port)

    async with run_server(server):
        first = await read_served_certificate(server.metrics_port)
        now += timedelta(days=240)
        await asyncio.sleep(0.1)
        assert await read_served_certificate(server.metrics_port) == first
        for _ in range(3):
            pem, now = certificate.loaded_pem, now + timedelta(days=250)
            renewed = await wait_for_another_than(pem)
            assert renewed.not_valid_before_utc < now < renewed.not_valid_after_utc
        # The clock was wrong, and is corrected: the certificate is not valid yet.
        pem, now = certificate.loaded_pem, now - timedelta(days=900)
        assert (await wait_for_another_than(pem)).not_valid_before_utc < now


async def test_self_signed_certificate_is_renewed_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = make_local_server(secure=True, authorizer=FakeAuthorizer(), reload_seconds=0.005)
    certificate = server.certificate
    assert isinstance(certificate, SelfSignedCertificate)
    failures = []

    def fail(pem: bytes) -> None:
        failures.append(pem)
        raise OSError(24, "Too many open files")

    async with run_server(server):
        pem, now = certificate.loaded_pem, datetime.now(UTC) + timedelta(days=300)
        with monkeypatch.context() as patch:
            patch.setattr(certificate, "load_pem", fail)
            certificate._clock = lambda: now
            await wait_until(lambda: len(failures) > 1)
        await wait_until(lambda: certificate.loaded_pem != pem)


async def test_self_signed_certificate_needs_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "kubewright.x509", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"install kubewright\[tls\]"):
        SelfSignedCertificate("host", Log("test")).load()
