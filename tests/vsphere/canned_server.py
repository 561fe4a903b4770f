"""Shared by the tests of vsphere: addresses, recording metrics, a clock, and a canned server."""

from __future__ import annotations

import asyncio
import re
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kubewright.testing.ca import CertificateAuthority, write_key_pair
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials


class RecordingMetrics:
    """Records each call as (method, outcome), and undecodable values as (type, property)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.undecodable: list[tuple[str, str]] = []

    def observe_call(self, method: str, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.calls.append((method, outcome))

    def count_undecodable(self, type_name: str, path: str) -> None:
        self.undecodable.append((type_name, path))

    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        assert count > 0


def simulator_address(simulator: SimulatedVCenter) -> Address:
    """The address of the simulator, with its certificate trusted."""
    host, port = simulator.address
    _, tunnel_port = simulator.tunnel_address
    return Address(host, port, ca_file=str(simulator.certificate), tunnel_port=tunnel_port)


def simulator_credentials(simulator: SimulatedVCenter) -> FixedCredentials:
    """The account that the simulator was started with."""
    return FixedCredentials(Credentials(username=simulator.user, password=simulator.password))


class FakeClock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(frozen=True)
class ReceivedRequest:
    """A request that a canned server received."""

    head: str
    body: str

    @property
    def cookie(self) -> str:
        match = re.search(r"(?im)^cookie: vmware_soap_session=(\S*)", self.head)
        return match[1] if match else ""


def http_response(status: int, body: str, *headers: str) -> bytes:
    """A complete HTTP response."""
    lines = [
        f"HTTP/1.1 {status} Because",
        f"Content-Length: {len(body.encode())}",
        "Content-Type: text/xml",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def soap_fault(name: str, message: str = "", inside: str = "") -> str:
    """A SOAP fault as vCenter writes it."""
    detail = f'<{name}Fault xmlns="urn:vim25" xsi:type="{name}">{inside}</{name}Fault>'
    return soap_envelope(
        f"<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>{message}</faultstring>"
        f"<detail>{detail}</detail></soapenv:Fault>"
    )


def soap_envelope(body: str) -> str:
    names = (
        'xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope {names}>'
        f"<soapenv:Body>{body}</soapenv:Body></soapenv:Envelope>"
    )


@asynccontextmanager
async def run_canned_server(
    folder: Path, reply: Callable[[ReceivedRequest], Awaitable[bytes]]
) -> AsyncIterator[Address]:
    """A server that sends the bytes of `reply` for each request."""
    authority = CertificateAuthority("canned")
    ca, certificate, key = folder / "ca.pem", folder / "canned.pem", folder / "canned.key"
    ca.write_bytes(authority.certificate)
    write_key_pair(authority.issue_serving_certificate("127.0.0.1"), certificate, key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"(?im)^content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                writer.write(await reply(ReceivedRequest(head, body.decode())))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1], ca_file=str(ca))
    finally:
        server.close()


def render_error(error: BaseException) -> str:
    """All printable parts of an error and of its causes."""
    chain, link = list[str](), cast(BaseException | None, error)
    while link is not None:
        chain += [str(link), repr(link), repr(vars(link)), repr(link.args)]
        link = link.__cause__ or link.__context__
    return "\n".join([*chain, *traceback.format_exception(error)])


SERVICE_CONTENT_RESPONSE = soap_envelope(
    '<RetrieveServiceContentResponse xmlns="urn:vim25"><returnval>'
    '<rootFolder type="Folder">group-d1</rootFolder>'
    '<propertyCollector type="PropertyCollector">propertyCollector</propertyCollector><about>'
    "<name>v</name><fullName>v</fullName>"
    "<vendor>v</vendor><version>8</version><build>1</build><osType>l</osType>"
    "<productLineId>vpx</productLineId><apiType>VirtualCenter</apiType>"
    "<apiVersion>8</apiVersion></about><sessionManager "
    'type="SessionManager">SessionManager</sessionManager></returnval>'
    "</RetrieveServiceContentResponse>"
)
LOGIN_RESPONSE = soap_envelope(
    '<LoginResponse xmlns="urn:vim25"><returnval><key>k</key><userName>u</userName>'
    "<fullName>u</fullName><loginTime>2026-01-01T00:00:00Z"
    "</loginTime><lastActiveTime>2026-01-01T00:00:00Z</lastActiveTime><locale>en</locale>"
    "<messageLocale>en</messageLocale></returnval></LoginResponse>"
)
CURRENT_TIME_RESPONSE = soap_envelope(
    '<CurrentTimeResponse xmlns="urn:vim25"><returnval>2026-01-01T00:00:00Z</returnval>'
    "</CurrentTimeResponse>"
)
