"""Addresses, SOAP and REST calls, and the errors of the connection."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyVmomi import vim

from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.vsphere import transport
from vsphere_operators.vsphere.address import Address, parse_address
from vsphere_operators.vsphere.faults import (
    Busy,
    Denied,
    NotAuthenticated,
    NotFound,
    Rejected,
    Unreachable,
    VCenterError,
)
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import SoapClient

from .canned_server import (
    CURRENT_TIME_RESPONSE,
    ReceivedRequest,
    RecordingMetrics,
    http_response,
    run_canned_server,
    simulator_address,
    soap_envelope,
    soap_fault,
)


def call_current_time(soap: SoapClient) -> Any:
    return vim.ServiceInstance("ServiceInstance", soap.stub).CurrentTime()


# Addresses


@pytest.mark.parametrize(
    ("text", "host", "port", "path", "root"),
    [
        ("vc.example.com", "vc.example.com", 443, "/sdk", "https://vc.example.com"),
        (" vc.example.com\n", "vc.example.com", 443, "/sdk", "https://vc.example.com"),
        ("vc:8989", "vc", 8989, "/sdk", "https://vc:8989"),
        ("vc/sdk", "vc", 443, "/sdk", "https://vc"),
        ("10.0.0.7", "10.0.0.7", 443, "/sdk", "https://10.0.0.7"),
        ("10.0.0.7:444", "10.0.0.7", 444, "/sdk", "https://10.0.0.7:444"),
        ("fd00::7", "fd00::7", 443, "/sdk", "https://[fd00::7]"),
        ("[fd00::7]", "fd00::7", 443, "/sdk", "https://[fd00::7]"),
        ("[fd00::7]:444", "fd00::7", 444, "/sdk", "https://[fd00::7]:444"),
        ("https://vc.example.com", "vc.example.com", 443, "/sdk", "https://vc.example.com"),
        (
            "HTTPS://VC.example.com:443/sdk/",
            "vc.example.com",
            443,
            "/sdk",
            "https://vc.example.com",
        ),
        (
            "https://proxy.example.com/vc1/sdk",
            "proxy.example.com",
            443,
            "/vc1/sdk",
            "https://proxy.example.com",
        ),
        ("https://[fd00::7]:444/sdk", "fd00::7", 444, "/sdk", "https://[fd00::7]:444"),
    ],
)
def test_accepted_addresses(text: str, host: str, port: int, path: str, root: str) -> None:
    address = parse_address(text, insecure=True)
    assert address == Address(host, port, path, insecure=True)
    assert address.base_url == root


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://vc", 'must be https, not "http"'),
        ("ftp://vc", 'must be https, not "ftp"'),
        ("", "no host name"),
        ("https://", "no host name"),
        ("https:///sdk", "no host name"),
        ("vc enter", "no host name, or an invalid one"),
        ("vc:port", "it is not an address"),
        ("vc:99999", "it is not an address"),
        ("[fd00::7", "it is not an address"),
    ],
)
def test_invalid_address_is_reported(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://me:canary@vc/sdk",
        "me:canary@vc",
        "https://me:can/canary@vc",
        "https://me:canary#@vc",
        "http://me:canary@vc",
        "https://:canary@vc:x",
    ],
)
def test_password_in_an_address_is_rejected_and_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="it contains a user or password") as caught:
        parse_address(text)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


# Calls


async def test_pyvmomi_call_is_awaitable(
    session: Session, soap: SoapClient, metrics: RecordingMetrics
) -> None:
    assert isinstance(await call_current_time(soap), datetime)
    assert metrics.calls == [
        ("RetrieveServiceContent", "ok"),
        ("Login", "ok"),
        ("CurrentTime", "ok"),
    ]
    content = await soap.get_service_content()
    assert content.about.apiType == "VirtualCenter"
    assert content is await soap.get_service_content()
    assert metrics.calls.count(("RetrieveServiceContent", "ok")) == 1


async def test_envelope_equals_that_of_pyvmomi(session: Session, soap: SoapClient) -> None:
    manager = vim.SessionManager("SessionManager", soap.stub)
    body = soap.build_envelope(manager, "SessionIsActive", "a<b", "user")
    assert b">a&lt;b</sessionID>" in body
    answer = await soap.post(body, method="SessionIsActive", timeout_seconds=5)
    assert b"<returnval>false</returnval>" in answer


async def test_login_cookie_is_sent_with_each_call(
    simulator: SimulatedVCenter, session: Session, soap: SoapClient
) -> None:
    [seen] = await simulator.sessions()
    assert soap.cookie == seen["key"]
    await call_current_time(soap)
    soap.clear_session()
    with pytest.raises(NotAuthenticated, match=r"CurrentTime at 127\.0\.0\.1: "):
        await call_current_time(soap)


async def test_many_calls_share_few_connections(session: Session, soap: SoapClient) -> None:
    await asyncio.gather(*(call_current_time(soap) for _ in range(200)))
    assert count_open_connections(soap) <= transport.MAX_CONNECTIONS


def count_open_connections(soap: SoapClient) -> int:
    """All open connections, in use or idle."""
    assert soap.http is not None
    return soap.http.used_count + soap.http.idle_count


def count_used_connections(soap: SoapClient) -> int:
    assert soap.http is not None
    return soap.http.used_count


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("ManagedObjectNotFound", NotFound),
        ("NoPermission", Denied),
        ("TaskInProgress", Busy),
        ("InvalidPowerState", Rejected),
    ],
)
async def test_fault_becomes_a_vcenter_error(
    simulator: SimulatedVCenter,
    session: Session,
    soap: SoapClient,
    metrics: RecordingMetrics,
    name: str,
    meaning: type[VCenterError],
) -> None:
    await simulator.fail_calls("CurrentTime", name)
    with pytest.raises(meaning, match=r"^CurrentTime at 127\.0\.0\.1: ") as caught:
        await call_current_time(soap)
    assert caught.value.fault == name
    assert metrics.calls[-1] == ("CurrentTime", meaning.__name__)


async def test_unknown_fault_type_becomes_a_vcenter_error(
    tmp_path: Path, metrics: RecordingMetrics
) -> None:
    async with CannedConnection(
        tmp_path, metrics, http_response(500, soap_fault("QuantumFlux", "The flux is off."))
    ) as soap:
        with pytest.raises(
            VCenterError, match=r"^CurrentTime at 127\.0\.0\.1: The flux is off$"
        ) as caught:
            await call_current_time(soap)
        assert (type(caught.value), caught.value.fault) == (Rejected, "QuantumFlux")


class CannedConnection:
    """A client of a server that always sends the same response."""

    def __init__(self, folder: Path, metrics: RecordingMetrics, answer: bytes) -> None:
        self.server, self.metrics, self.answer, self.requests = (
            run_canned_server(folder, self.reply),
            metrics,
            answer,
            list[ReceivedRequest](),
        )

    async def reply(self, request: ReceivedRequest) -> bytes:
        self.requests.append(request)
        return self.answer

    async def __aenter__(self) -> SoapClient:
        self.soap = SoapClient(await self.server.__aenter__(), self.metrics)
        return self.soap

    async def __aexit__(self, *error: Any) -> None:
        await self.soap.close()
        await self.server.__aexit__(*error)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            http_response(200, "<html><body>Welcome<br></body>"),
            "the response is not of the vSphere API. Is it a vCenter, or a proxy?",
        ),
        (http_response(200, ""), "the response is not of the vSphere API"),
        (http_response(200, '{"json": true}'), "the response is not of the vSphere API"),
        (
            http_response(200, CURRENT_TIME_RESPONSE[: CURRENT_TIME_RESPONSE.index("2026")]),
            "the response is not of the vSphere API",
        ),
        (
            http_response(500, soap_envelope("<soapenv:Fault><faultcode>x")),
            "a fault that cannot be parsed",
        ),
        (http_response(500, "<html>oops</html>"), "HTTP 500; a vCenter that is starting"),
        (
            http_response(503, "busy"),
            "HTTP 503; a vCenter that is starting, or has too many sessions, responds like this.",
        ),
        (
            http_response(404, "nothing"),
            "HTTP 404; this address does not serve the vSphere API. Is it a vCenter?",
        ),
        (http_response(301, "", "Location: https://127.0.0.1:1/"), "HTTP 301"),
        (b"SSH-2.0-OpenSSH_9\r\n", "closed the connection during CurrentTime"),
    ],
)
async def test_invalid_response_is_reported(
    tmp_path: Path, metrics: RecordingMetrics, answer: bytes, message: str
) -> None:
    async with CannedConnection(tmp_path, metrics, answer) as soap:
        with pytest.raises(VCenterError) as caught:
            await call_current_time(soap)
        assert message in str(caught.value)


async def test_truncated_response_times_out(tmp_path: Path, metrics: RecordingMetrics) -> None:
    async with CannedConnection(
        tmp_path, metrics, http_response(200, CURRENT_TIME_RESPONSE)[:-30]
    ) as soap:
        body = soap.build_envelope(vim.ServiceInstance("ServiceInstance", soap.stub), "CurrentTime")
        with pytest.raises(Unreachable, match="did not respond to CurrentTime in time"):
            await soap.post(body, method="CurrentTime", timeout_seconds=0.3)
        assert count_used_connections(soap) == 0


async def test_http_401_is_an_ended_session(tmp_path: Path, metrics: RecordingMetrics) -> None:
    async with CannedConnection(tmp_path, metrics, http_response(401, "")) as soap:
        with pytest.raises(NotAuthenticated, match="HTTP 401"):
            await call_current_time(soap)


async def test_http_403_is_not_an_ended_session(tmp_path: Path, metrics: RecordingMetrics) -> None:
    async with CannedConnection(tmp_path, metrics, http_response(403, "")) as soap:
        with pytest.raises(Denied, match="HTTP 403") as caught:
            await call_current_time(soap)
        assert not isinstance(caught.value, NotAuthenticated)


async def test_huge_response_is_not_read(
    tmp_path: Path, metrics: RecordingMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_MAX_RESPONSE_BYTES", 1_000_000)
    async with CannedConnection(tmp_path, metrics, http_response(200, "x" * 5_000_000)) as soap:
        with pytest.raises(Rejected, match="is larger than 1000000 bytes"):
            await call_current_time(soap)
        with pytest.raises(Rejected, match="is larger than 1000000 bytes"):
            await soap.request_json("GET", "/rest/x")
        assert metrics.calls == [("CurrentTime", "Rejected"), ("GET /rest/x", "Rejected")]
        assert count_used_connections(soap) == 0
        assert count_open_connections(soap) == 0


async def test_unreachable_server_is_reached_again(
    simulator: SimulatedVCenter, session: Session, soap: SoapClient, metrics: RecordingMetrics
) -> None:
    await simulator.set_outage("503")
    with pytest.raises(Unreachable, match="HTTP 503"):
        await call_current_time(soap)
    await simulator.set_outage("reset")
    with pytest.raises(Unreachable, match="closed the connection during CurrentTime"):
        await call_current_time(soap)
    await simulator.set_outage("")
    await call_current_time(soap)
    assert [outcome for method, outcome in metrics.calls if method == "CurrentTime"] == [
        "Unreachable",
        "Unreachable",
        "ok",
    ]


async def test_hanging_server_times_out(
    simulator: SimulatedVCenter, session: Session, soap: SoapClient
) -> None:
    await simulator.set_outage("hang")
    body = soap.build_envelope(vim.ServiceInstance("ServiceInstance", soap.stub), "CurrentTime")
    with pytest.raises(
        Unreachable, match=r"vCenter 127\.0\.0\.1 did not respond to CurrentTime in time"
    ):
        async with asyncio.timeout(transport.CALL_TIMEOUT_SECONDS / 2):
            await soap.post(body, method="CurrentTime", timeout_seconds=0.3)
    assert count_used_connections(soap) == 0
    await simulator.set_outage("")


async def test_refused_connection_is_reported(metrics: RecordingMetrics) -> None:
    soap = SoapClient(Address("127.0.0.1", 1), metrics)
    with pytest.raises(Unreachable, match=r"vCenter 127\.0\.0\.1 cannot be reached at port 1: "):
        await call_current_time(soap)
    await soap.close()


async def test_unknown_host_name_is_reported(metrics: RecordingMetrics) -> None:
    soap = SoapClient(Address("no-such-vcenter.invalid"), metrics)
    with pytest.raises(Unreachable, match=r"no such host name\. Check the address"):
        await call_current_time(soap)
    await soap.close()


async def test_cancelled_call_leaves_no_connection(
    simulator: SimulatedVCenter, session: Session, soap: SoapClient, metrics: RecordingMetrics
) -> None:
    await simulator.set_outage("hang")
    calls = [asyncio.ensure_future(call_current_time(soap)) for _ in range(10)]
    await eventually(lambda: count_used_connections(soap) == 10)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert all(call.cancelled() for call in calls)
    assert count_used_connections(soap) == 0
    assert metrics.calls.count(("CurrentTime", "cancelled")) == 10
    await simulator.set_outage("")
    await call_current_time(soap)


async def test_closed_client_stays_closed(soap: SoapClient) -> None:
    await soap.close()
    with pytest.raises(Unreachable, match="this program is stopping"):
        await call_current_time(soap)


# REST


async def test_rest_uses_the_same_address(
    simulator: SimulatedVCenter, soap: SoapClient, metrics: RecordingMetrics
) -> None:
    assert (await soap.request_json("GET", "/rest/com/vmware/cis/tagging/tag?x=1"))[0] == 401
    assert metrics.calls == [("GET /rest/com/vmware/cis/tagging/tag", "HTTP 401")]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http_response(200, '{"value": [1]}'), (200, {"value": [1]})),
        (http_response(200, "<html>"), (200, None)),
        (http_response(404, ""), (404, None)),
        (http_response(503, "busy"), (503, None)),
    ],
)
async def test_rest_returns_status_and_json(
    tmp_path: Path, metrics: RecordingMetrics, answer: bytes, expected: tuple[int, Any]
) -> None:
    server = CannedConnection(tmp_path, metrics, answer)
    async with server as soap:
        assert (
            await soap.request_json("POST", "/rest/x", {"a": 1}, {"vmware-api-session-id": "k"})
            == expected
        )
    assert server.requests[0].body == '{"a":1}'
    assert "vmware-api-session-id: k" in server.requests[0].head


async def test_hanging_rest_call_times_out(
    simulator: SimulatedVCenter, soap: SoapClient, metrics: RecordingMetrics
) -> None:
    await simulator.set_outage("hang")
    with pytest.raises(Unreachable, match="did not respond to GET /rest/x in time"):
        await soap.request_json("GET", "/rest/x", timeout_seconds=0.3)
    assert metrics.calls == [("GET /rest/x", "TimedOut")]


def test_simulator_certificate_is_trusted(simulator: SimulatedVCenter) -> None:
    assert simulator_address(simulator).insecure is False
