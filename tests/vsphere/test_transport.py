"""Calls over the wire: what is sent, what comes back, and all that can go wrong in between."""

from __future__ import annotations

import asyncio
import time
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
def test_what_people_write_is_an_address(
    text: str, host: str, port: int, path: str, root: str
) -> None:
    address = parse_address(text, insecure=True)
    assert address == Address(host, port, path, insecure=True)
    assert address.base_url == root


@pytest.mark.parametrize(
    ("text", "words"),
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
def test_what_is_no_address_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
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
def test_a_password_in_an_address_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="it contains a user or password") as caught:
        parse_address(text)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


# Calls


async def test_a_call_of_pyvmomi_is_an_awaitable(
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


async def test_an_envelope_is_what_pyvmomi_would_send(session: Session, soap: SoapClient) -> None:
    manager = vim.SessionManager("SessionManager", soap.stub)
    body = soap.build_envelope(manager, "SessionIsActive", "a<b", "user")
    assert b">a&lt;b</sessionID>" in body
    answer = await soap.post(body, method="SessionIsActive", timeout_seconds=5)
    assert b"<returnval>false</returnval>" in answer


async def test_the_cookie_of_the_login_goes_with_each_call(
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
    assert len(list_open_connections(soap)) <= transport.MAX_CONNECTIONS


def list_open_connections(soap: SoapClient) -> list[Any]:
    """The connections that are open, in use or not."""
    assert soap.http is not None
    connector: Any = soap.http.connector
    return [*connector._acquired, *(each for group in connector._conns.values() for each in group)]


def count_used_connections(soap: SoapClient) -> int:
    assert soap.http is not None
    connector: Any = soap.http.connector
    return len(connector._acquired)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("ManagedObjectNotFound", NotFound),
        ("NoPermission", Denied),
        ("TaskInProgress", Busy),
        ("InvalidPowerState", Rejected),
    ],
)
async def test_a_fault_is_an_error_of_ours(
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


async def test_a_fault_with_a_type_of_tomorrow_is_still_an_error_of_ours(
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
    """A connection to a server that always says the same."""

    def __init__(self, folder: Path, meter: RecordingMetrics, answer: bytes) -> None:
        self.server, self.metrics, self.answer, self.requests = (
            run_canned_server(folder, self.reply),
            meter,
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
    ("answer", "words"),
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
async def test_what_is_no_answer_is_told(
    tmp_path: Path, metrics: RecordingMetrics, answer: bytes, words: str
) -> None:
    async with CannedConnection(tmp_path, metrics, answer) as soap:
        with pytest.raises(VCenterError) as caught:
            await call_current_time(soap)
        assert words in str(caught.value)


async def test_an_answer_that_stops_half_way_is_given_up_in_time(
    tmp_path: Path, metrics: RecordingMetrics
) -> None:
    async with CannedConnection(
        tmp_path, metrics, http_response(200, CURRENT_TIME_RESPONSE)[:-30]
    ) as soap:
        body = soap.build_envelope(vim.ServiceInstance("ServiceInstance", soap.stub), "CurrentTime")
        with pytest.raises(Unreachable, match="did not respond to CurrentTime in time"):
            await soap.post(body, method="CurrentTime", timeout_seconds=0.3)
        assert count_used_connections(soap) == 0


async def test_http_unauthorised_is_a_session_that_is_gone(
    tmp_path: Path, metrics: RecordingMetrics
) -> None:
    async with CannedConnection(tmp_path, metrics, http_response(401, "")) as soap:
        with pytest.raises(NotAuthenticated, match="HTTP 401"):
            await call_current_time(soap)


async def test_http_forbidden_is_no_session_that_is_gone(
    tmp_path: Path, metrics: RecordingMetrics
) -> None:
    async with CannedConnection(tmp_path, metrics, http_response(403, "")) as soap:
        with pytest.raises(Denied, match="HTTP 403") as caught:
            await call_current_time(soap)
        assert not isinstance(caught.value, NotAuthenticated)


async def test_a_huge_answer_is_not_held(
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
        assert list_open_connections(soap) == []


async def test_a_server_that_is_down_for_a_while(
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


async def test_a_server_that_hangs_is_given_up_in_time(
    simulator: SimulatedVCenter, session: Session, soap: SoapClient
) -> None:
    await simulator.set_outage("hang")
    started = time.monotonic()
    body = soap.build_envelope(vim.ServiceInstance("ServiceInstance", soap.stub), "CurrentTime")
    with pytest.raises(
        Unreachable, match=r"vCenter 127\.0\.0\.1 did not respond to CurrentTime in time"
    ):
        await soap.post(body, method="CurrentTime", timeout_seconds=0.3)
    assert time.monotonic() - started < 1.5
    assert count_used_connections(soap) == 0
    await simulator.set_outage("")


async def test_a_port_where_nobody_listens(metrics: RecordingMetrics) -> None:
    soap = SoapClient(Address("127.0.0.1", 1), metrics)
    with pytest.raises(Unreachable, match=r"vCenter 127\.0\.0\.1 cannot be reached at port 1: "):
        await call_current_time(soap)
    await soap.close()


async def test_a_name_that_nobody_knows(metrics: RecordingMetrics) -> None:
    soap = SoapClient(Address("no-such-vcenter.invalid"), metrics)
    with pytest.raises(Unreachable, match=r"no such host name\. Check the address"):
        await call_current_time(soap)
    await soap.close()


async def test_a_cancelled_call_leaves_no_connection(
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


async def test_what_is_closed_stays_closed(soap: SoapClient) -> None:
    await soap.close()
    with pytest.raises(Unreachable, match="this program is stopping"):
        await call_current_time(soap)


# REST


async def test_rest_goes_to_the_same_address(
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
async def test_rest_answers_are_status_and_json(
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


async def test_rest_that_hangs_is_given_up_in_time(
    simulator: SimulatedVCenter, soap: SoapClient, metrics: RecordingMetrics
) -> None:
    await simulator.set_outage("hang")
    with pytest.raises(Unreachable, match="did not respond to GET /rest/x in time"):
        await soap.request_json("GET", "/rest/x", timeout_seconds=0.3)
    assert metrics.calls == [("GET /rest/x", "TimedOut")]


def test_the_simulator_is_trusted_by_its_certificate(simulator: SimulatedVCenter) -> None:
    assert simulator_address(simulator).insecure is False
