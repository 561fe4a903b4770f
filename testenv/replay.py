"""A vCenter that answers from a recording of `manager doctor -record`, in place of the simulator.

    async with run_replay(read_recording(folder), certificates) as replay:
        ...connect to replay.address with any user and password...
    assert replay.unknown_requests == []

How is the response found?  The same request first, whatever the order of its parts; then one of
    the same method about the same objects, so that a later version may ask for more properties.
    The same request again gets the next response, and at the end the last one again.
And WaitForUpdatesEx?  After the recorded responses nothing changes any more, so it returns an
    empty response after the time that the request allows.
And a login?  Any account is accepted, also if the recording has another kind of login.
What if the recording has no such request?  The response is a fault that names it, and
    `unknown_requests` has it.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from lxml import etree

from kubewright.testing.ca import CertificateAuthority, write_key_pair
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.recording import Exchange
from vsphere_operators.vsphere.updates import parse_xml

HOST = "127.0.0.1"
# What differs from run to run: the account, and the session.
VOLATILE_FIELDS = ("userName", "password", "Header")
MAX_REQUEST_BYTES = 64 * 1024 * 1024
FAULT = """<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><soapenv:Fault>
<faultcode>ServerFaultCode</faultcode><faultstring>The recording has no request %s</faultstring>
<detail><NotSupportedFault xmlns="urn:vim25" xsi:type="NotSupported"/></detail>
</soapenv:Fault></soapenv:Body></soapenv:Envelope>"""
EMPTY_UPDATES = """<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body>
<WaitForUpdatesExResponse xmlns="urn:vim25"/></soapenv:Body></soapenv:Envelope>"""

LOGIN = Exchange(
    method="Login",
    verb="POST",
    path="/sdk",
    action="any",
    status=200,
    response=EMPTY_UPDATES.replace(
        '<WaitForUpdatesExResponse xmlns="urn:vim25"/>',
        '<LoginResponse xmlns="urn:vim25"><returnval><key>replay</key><userName>replay</userName>'
        "<fullName>replay</fullName><loginTime>2026-01-01T00:00:00Z</loginTime>"
        "<lastActiveTime>2026-01-01T00:00:00Z</lastActiveTime><locale>en</locale>"
        "<messageLocale>en</messageLocale></returnval></LoginResponse>",
    ).encode(),
)


class ReplayVCenter:
    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._by_request: dict[str, deque[Exchange]] = defaultdict(deque)
        self._by_objects: dict[str, deque[Exchange]] = defaultdict(deque)
        for exchange in exchanges:
            request = Request(exchange.verb, exchange.path, exchange.request)
            self._by_request[request.exact_key].append(exchange)
            self._by_objects[request.objects_key].append(exchange)
        self.unknown_requests: list[str] = []
        self.address = Address(HOST, 0)

    async def handle(self, received: web.Request) -> web.Response:
        request = Request(received.method, received.path_qs, await received.read())
        exchange = self.find(request)
        if exchange is None and request.method == "WaitForUpdatesEx":
            await asyncio.sleep(request.max_wait_seconds)
            return web.Response(text=EMPTY_UPDATES, content_type="text/xml")
        if exchange is None and request.method.startswith("Login"):
            exchange = LOGIN
        if exchange is None:
            self.unknown_requests.append(f"{request.method}: {request.body.decode()}")
            return web.Response(status=500, text=FAULT % request.method, content_type="text/xml")
        response = web.Response(
            status=exchange.status,
            body=exchange.response,
            content_type="text/xml" if exchange.action else "application/json",
        )
        if request.method.startswith("Login"):
            response.headers["Set-Cookie"] = 'vmware_soap_session="replay"; Path=/; Secure'
        return response

    def find(self, request: Request) -> Exchange | None:
        """The response to a request; None if it is not in the recording, or no longer."""
        candidates = self._by_request.get(request.exact_key)
        if not candidates and request.method != "WaitForUpdatesEx":
            candidates = self._by_objects.get(request.objects_key)
        if not candidates:
            return None
        # A version of the property collector is waited for once.
        if len(candidates) > 1 or request.method == "WaitForUpdatesEx":
            return candidates.popleft()
        return candidates[0]


class Request:
    """A request in the form in which it is compared."""

    def __init__(self, verb: str, path: str, body: bytes) -> None:
        self.verb, self.path, self.body = verb, path, body.strip()
        # Untrusted: others send recordings.
        self._root = parse_xml(self.body) if self.body.startswith(b"<") else None
        call = None if self._root is None else self._root.find("{*}Body/{*}*")
        self.method = f"{verb} {path}" if call is None else etree.QName(call).localname

    @property
    def exact_key(self) -> str:
        return f"{self.verb} {self.path} {self._canonical_body()}"

    @property
    def objects_key(self) -> str:
        """The method and the objects that it is about, without what is asked of them."""
        if self._root is None:
            return f"{self.verb} {self.path}"
        refs = [element.text or "" for element in self._root.iter("{*}_this", "{*}obj", "{*}id")]
        return f"{self.method} {self.path} {sorted(refs)}"

    @property
    def max_wait_seconds(self) -> float:
        match = re.search(rb"<maxWaitSeconds>(\d+)<", self.body)
        return float(match[1]) if match else 0.0

    def _canonical_body(self) -> str:
        if self._root is not None:
            return canonical_xml(self._root)
        return json.dumps(canonical_json(json.loads(self.body)) if self.body else None)


def canonical_xml(element: Any) -> str:
    """An element with its parts in order of their text, without namespaces."""
    name = etree.QName(element).localname
    if name in VOLATILE_FIELDS:
        return ""
    attributes = sorted(
        f"{etree.QName(key).localname}={value}" for key, value in element.attrib.items()
    )
    children = sorted(canonical_xml(child) for child in element)
    return f"<{name} {attributes}>{(element.text or '').strip()}{children}"


def canonical_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: canonical_json(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return sorted((canonical_json(item) for item in value), key=json.dumps)
    return value


@asynccontextmanager
async def run_replay(exchanges: Sequence[Exchange], folder: Path) -> AsyncIterator[ReplayVCenter]:
    """Serves a recording over TLS; its certificates are written to the folder."""
    replay = ReplayVCenter(exchanges)
    context, ca_file = await asyncio.to_thread(create_tls_context, folder)
    app = web.Application(client_max_size=MAX_REQUEST_BYTES)
    app.router.add_route("*", "/{path:.*}", replay.handle)
    # A call of WaitForUpdatesEx may be open at the end.
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
        replay.address = Address(HOST, runner.addresses[0][1], ca_file=str(ca_file))
        yield replay
    finally:
        await runner.cleanup()


def create_tls_context(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A serving certificate, and the file of the authority that signed it."""
    authority = CertificateAuthority("replay")
    folder.mkdir(parents=True, exist_ok=True)
    ca_file, certificate, key = folder / "ca.pem", folder / "replay.pem", folder / "replay.key"
    ca_file.write_bytes(authority.certificate)
    write_key_pair(authority.issue_serving_certificate(HOST), certificate, key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context, ca_file
