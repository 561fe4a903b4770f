from __future__ import annotations

import asyncio
import builtins
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from kubewright import server as module
from kubewright.errors import ConfigError
from kubewright.listen import ListenAddress, parse_address
from kubewright.metrics import Metrics
from kubewright.server import CachingAuthorizer, Decision, Server
from kubewright.tls import generate_self_signed_pem


class FakeReviewer:
    """A reviewer that knows three tokens, and counts how often it is asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        self.requests.append((token, verb, path))
        if token == "broken":
            raise ConnectionError("no API server, token=abcdefgh")
        known: dict[str, Decision] = {"good": "allowed", "poor": "forbidden"}
        return known.get(token, "unauthenticated")


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
        session.get(address, ssl=False, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


def make_local_server(**options: Any) -> Server:
    return Server(
        Metrics(),
        **{
            "metrics_bind_address": "127.0.0.1:0",
            "health_probe_bind_address": "127.0.0.1:0",
            **options,
        },
    )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", ListenAddress("", 8080)),
        ("127.0.0.1:0", ListenAddress("127.0.0.1", 0)),
        ("localhost:65535", ListenAddress("localhost", 65535)),
        ("[::1]:8443", ListenAddress("::1", 8443)),
        ("0", None),
        ("", None),
    ],
)
def test_addresses(text: str, address: ListenAddress | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["8080", ":65536", "a:b", "::1:80", "[::1]", "[::1:80", ":", "host:", ":80x"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="no address to listen on"):
        parse_address(text)


async def test_metrics() -> None:
    async with run_server(make_local_server()) as server:
        server.metrics.count_list("pods")
        status, text = await http_get(server.metrics_port, "/metrics")
        assert status == 200
        assert 'kubewright_lists_total{kind="pods"} 1.0\n' in text
        assert "\nprocess_resident_memory_bytes " in text
        assert (await http_get(server.metrics_port, "/else"))[0] == 404
        assert (await http_get(server.metrics_port, "/healthz"))[0] == 404


async def test_what_is_off_is_off() -> None:
    async with run_server(
        make_local_server(metrics_bind_address="0", health_probe_bind_address="")
    ) as server:
        assert (server.metrics_port, server.health_port) == (0, 0)
        assert server.runners == []


async def test_every_interface_by_both_protocols() -> None:
    async with run_server(make_local_server(health_probe_bind_address=":0")) as server:
        assert (await http_get(server.health_port, "/healthz"))[0] == 200


async def test_without_checks_all_is_well() -> None:
    async with run_server(make_local_server()) as server:
        assert await http_get(server.health_port, "/healthz") == (200, "ok")
        assert await http_get(server.health_port, "/readyz?verbose") == (
            200,
            "[+]ping ok\nreadyz check passed\n",
        )


async def hanging_check() -> str | None:
    await asyncio.Event().wait()
    return None


async def passing_check() -> str | None:
    return None


def raising_check() -> str | None:
    raise KeyError("x")


async def test_checks() -> None:
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


async def test_a_check_that_fails_or_hangs_is_a_failed_check(
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
        "[-]raising failed: KeyError: 'x'\n[-]slow failed: no answer in 0.01 s\nhealthz check failed\n"
        in text
    )


@pytest.mark.parametrize(
    ("which", "advice"),
    [
        ("metrics_bind_address", r"-metrics-addr \(environment METRICS_ADDR\)"),
        ("health_probe_bind_address", r"-health-probe-bind-address \(environment"),
    ],
)
async def test_an_address_in_use_is_said_plainly(which: str, advice: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = make_local_server(**{which: f"127.0.0.1:{taken.getsockname()[1]}"})
        with pytest.raises(
            ConfigError,
            match=f"another process, perhaps another manager, listens there already.*{advice}",
        ):
            await server.start()
        assert server.runners == []


async def test_stop_without_start_and_twice() -> None:
    server = make_local_server()
    await server.stop()
    await server.start()
    port = server.health_port
    await server.stop()
    await server.stop()
    with pytest.raises(aiohttp.ClientConnectorError):
        await http_get(port, "/healthz")


async def test_stop_lets_an_answer_end() -> None:
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


async def test_too_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_IN_FLIGHT", 0)
    async with run_server(make_local_server()) as server:
        assert (await http_get(server.health_port, "/healthz"))[0] == 503


async def test_long_headers_are_refused() -> None:
    async with run_server(make_local_server()) as server:
        assert (await http_get(server.metrics_port, "/metrics", headers={"X-Long": "x" * 20_000}))[
            0
        ] == 400


async def test_secure_metrics() -> None:
    doorman = FakeReviewer()
    async with run_server(make_local_server(secure=True, authorizer=doorman)) as server:

        async def ask(authorization: str = "") -> tuple[int, str]:
            headers = {"Authorization": authorization} if authorization else {}
            return await http_get(server.metrics_port, "/metrics", tls=True, headers=headers)

        assert (await ask())[0] == 401
        assert (await ask("Basic good"))[0] == 401
        assert (await ask("Bearer "))[0] == 401
        assert doorman.requests == []
        assert (await ask("Bearer unknown"))[0] == 401
        assert (await ask("Bearer poor"))[0] == 403
        status, text = await ask("Bearer good")
        assert (status, "python_info" in text) == (200, True)
        assert doorman.requests[-1] == ("good", "get", "/metrics")
        status, text = await ask("Bearer broken")
        assert status == 500
        assert "could not be asked" in text
        assert "abcdefgh" not in text
        assert (await http_get(server.health_port, "/healthz"))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await http_get(server.metrics_port, "/metrics")


def test_secure_needs_a_reviewer() -> None:
    with pytest.raises(ConfigError, match="reviewer"):
        make_local_server(secure=True)


async def test_verdicts_are_remembered_for_a_while() -> None:
    doorman, moments = FakeReviewer(), [0.0]
    reviews = CachingAuthorizer(doorman, clock=lambda: moments[-1])

    async def asked_at(seconds: float, token: str, path: str = "/metrics") -> tuple[Decision, int]:
        moments.append(seconds)
        return await reviews.authorize(token, "get", path), len(doorman.requests)

    assert await asked_at(0, "good") == ("allowed", 1)
    assert await asked_at(59, "good") == ("allowed", 1)
    assert await asked_at(61, "good") == ("allowed", 2)
    assert await asked_at(61, "good", "/else") == ("allowed", 3)
    assert await asked_at(100, "poor") == ("forbidden", 4)
    assert await asked_at(109, "poor") == ("forbidden", 4)
    assert await asked_at(111, "poor") == ("forbidden", 5)
    assert not any("good" in str(key) for key in reviews.cached_decisions)


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CACHED_DECISIONS", 3)
    reviews = CachingAuthorizer(FakeReviewer(), clock=lambda: 0.0)
    for number in range(10):
        await reviews.authorize(str(number), "get", "/metrics")
    assert len(reviews.cached_decisions) == 3


async def test_a_failed_review_is_not_remembered() -> None:
    doorman = FakeReviewer()
    reviews = CachingAuthorizer(doorman)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await reviews.authorize("broken", "get", "/metrics")
    assert len(doorman.requests) == 2


def write_key_pair(directory: Path, host: str) -> None:
    pem = generate_self_signed_pem(host)
    start = pem.index(b"-----BEGIN PRIVATE")
    (directory / "tls.crt").write_bytes(pem[:start])
    (directory / "tls.key").write_bytes(pem[start:])


async def read_served_name(port: int, server_name: str = "127.0.0.1") -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=server_name
    )
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return str(
        x509.load_der_x509_certificate(found)
        .subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0]
        .value
    )


async def wait_until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - the files are looked at by a thread, which sets no event
            await asyncio.sleep(0.005)


async def test_a_renewed_certificate_is_used(tmp_path: Path) -> None:
    await asyncio.to_thread(write_key_pair, tmp_path, "first.example")
    server = make_local_server(
        secure=True, authorizer=FakeReviewer(), certificate_dir=str(tmp_path), reload_seconds=0.005
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


async def test_a_broken_renewal_leaves_the_old_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(write_key_pair, tmp_path, "first.example")
    server = make_local_server(
        secure=True, authorizer=FakeReviewer(), certificate_dir=str(tmp_path), reload_seconds=0.005
    )
    async with run_server(server):
        await asyncio.to_thread((tmp_path / "tls.crt").write_bytes, b"half a certif")
        await wait_until(lambda: "the old certificate stays in use" in caplog.text)
        assert await read_served_name(server.metrics_port) == "first.example"


async def test_a_missing_certificate_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.crt and tls\.key are needed"):
        await make_local_server(
            secure=True, authorizer=FakeReviewer(), certificate_dir=str(tmp_path)
        ).start()


async def test_self_signed_needs_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"install kubewright\[tls\]"):
        generate_self_signed_pem("host")
