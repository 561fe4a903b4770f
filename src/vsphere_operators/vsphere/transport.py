"""HTTP to a vCenter: pyVmomi's types and serializer over our own aiohttp connections.

    await vim.SessionManager("SessionManager", soap.stub).Login(user, password)

Why not pyVmomi's own connection?  It blocks a thread per call, cannot be cancelled and has no
    deadline. Its types and methods work over any stub that has `InvokeMethod`.
What is the SDK tunnel?  Port 443 of a vCenter is a reverse proxy that ends TLS, so the service
    behind it never sees the certificate of a client. An HTTP proxy on port 80 connects clients to
    that service itself, under the name sdkTunnel:8089. A login with a certificate needs it; the
    session that it opens is valid everywhere.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from types import NoneType
from typing import Any, NamedTuple, Protocol
from xml.parsers.expat import ExpatError

import aiohttp
import msgspec
from pyVmomi import SoapAdapter, VmomiSupport, vim
from yarl import URL

from .address import Address, certificate_error, create_ssl_context
from .decode_errors import DecodeErrors, DecodeMetrics
from .faults import (
    CertificateRefused,
    Denied,
    NotAuthenticated,
    Rejected,
    TimedOut,
    Unreachable,
    VCenterError,
    error_from_fault,
    error_from_xml,
)
from .service_content import decode_service_content

# vSphere 7.0: older servers are out of support, and newer ones accept this version.
_API_VERSION = "vim.version.v7_0"
_SESSION_COOKIE = "vmware_soap_session"
CALL_TIMEOUT_SECONDS = 30.0
_CONNECT_TIMEOUT_SECONDS = 10.0
_TUNNEL_URL = "https://sdkTunnel:8089"
MAX_CONNECTIONS = 32
_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
# What pyVmomi's decoder raises for a response that is not of the vSphere API, or has unknown types.
_DECODE_ERRORS = (ExpatError, LookupError, TypeError, AttributeError, ValueError, RuntimeError)


class CallMetrics(DecodeMetrics, Protocol):
    def observe_call(self, method: str, outcome: str, seconds: float) -> None:
        """`outcome` is `ok` or the name of the VCenterError."""
        ...


class Response(NamedTuple):
    status: int
    cookies: list[str]
    body: bytes


class SoapClient:
    """Calls to one vCenter over a connection pool with one session cookie."""

    def __init__(
        self, address: Address, metrics: CallMetrics, *, uses_tunnel: bool = False
    ) -> None:
        self.address, self.metrics, self._uses_tunnel = address, metrics, uses_tunnel
        self._base_url = _TUNNEL_URL if uses_tunnel else address.base_url
        self._proxy_url = URL(address.tunnel_proxy_url) if uses_tunnel else None
        # VCenter replaces it by one with a log.
        self.decode_errors = DecodeErrors(metrics)
        self.cookie = ""
        self.last_response_at = 0.0
        """When the last SOAP call succeeded (time.monotonic): a session in use does not expire."""
        self.closed = False
        self.stub = SoapStub(self)
        self.http: aiohttp.ClientSession | None = None
        self._service_content: Any = None

    async def get_service_content(self) -> Any:
        """The managers of this vCenter. They do not change while it runs."""
        if self._service_content is None:
            service_instance = vim.ServiceInstance("ServiceInstance", self.stub)
            body = await self.stub.call_undecoded(service_instance, "RetrieveContent")
            content = decode_service_content(body, self.stub, self.decode_errors.report)
            if content is None:
                raise self.stub.not_vsphere_error("RetrieveServiceContent")
            self._service_content = content
        return self._service_content

    def clear_session(self) -> None:
        self.cookie, self._service_content = "", None

    async def post_through_tunnel(
        self, body: bytes, *, method: str, certificate_file: str, key_file: str
    ) -> bytes:
        """Send a login with a client certificate. This client then has its session."""
        address = replace(self.address, certificate_file=certificate_file, key_file=key_file)
        tunnel = SoapClient(address, self.metrics, uses_tunnel=True)
        try:
            response = await tunnel.post(body, method=method)
            self.cookie, self.last_response_at = tunnel.cookie, tunnel.last_response_at
            return response
        finally:
            await tunnel.close()

    def build_envelope(self, target: Any, method: str, *arguments: Any) -> bytes:
        """A serialized call; `method` is its name on the wire, such as WaitForUpdatesEx."""
        return bytes(self.stub.SerializeRequest(target, target._GetMethodInfo(method), arguments))

    async def post(
        self,
        body: bytes,
        *,
        method: str,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        path: str = "",
        action: str = "",
        send_within_seconds: float | None = None,
    ) -> bytes:
        """Send an envelope and return the response. A fault is raised as a VCenterError."""
        path, sent_cookie = path or self.address.path, self.cookie
        headers = {
            "Content-Type": "text/xml; charset=utf-8",
            "SOAPAction": action or self.stub.versionId,
        }
        if sent_cookie:
            headers["Cookie"] = f"{_SESSION_COOKIE}={sent_cookie}"
        started, outcome = time.monotonic(), "cancelled"
        try:
            response = await self.request(
                "POST", path, body, headers, timeout_seconds, method, send_within_seconds
            )
            # vCenter assigns a new key to every call without a live session: a late response must
            # not replace the key of a login.
            if path == self.address.path and (
                method.startswith("Login") or self.cookie == sent_cookie
            ):
                for header in response.cookies:
                    if match := re.match(rf'{_SESSION_COOKIE}="?([^";]+)', header):
                        self.cookie = match[1]
            if response.status != 200:
                raise self._error_from_response(response, method)
            outcome, self.last_response_at = "ok", time.monotonic()
            return response.body
        except VCenterError as error:
            outcome = type(error).__name__
            raise
        finally:
            self.metrics.observe_call(method, outcome, time.monotonic() - started)

    async def request(
        self,
        verb: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float,
        method: str,
        send_within_seconds: float | None = None,
    ) -> Response:
        """The response to one request, whatever its status. Raises Unreachable without one."""
        try:
            async with (await self._get_http_session()).request(
                verb,
                URL(self._base_url + path, encoded=True),
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(
                    timeout_seconds, send_within_seconds, sock_connect=_CONNECT_TIMEOUT_SECONDS
                ),
                allow_redirects=False,
                proxy=self._proxy_url,
                # The certificate behind the tunnel has the name of the vCenter too.
                server_hostname=self.address.host if self._uses_tunnel else None,
            ) as response:
                return Response(
                    response.status,
                    response.headers.getall("Set-Cookie", []),
                    await self._read_body(response, method),
                )
        except _CONNECTION_ERRORS as error:
            vcenter_error = self._error_from_exception(error, method)
            if isinstance(vcenter_error, CertificateRefused):
                # The next call reads the CA bundle again, since that is where it gets fixed.
                await self._disconnect()
            raise vcenter_error from error

    async def _read_body(self, response: aiohttp.ClientResponse, method: str) -> bytes:
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > _MAX_RESPONSE_BYTES:
                response.close()
                raise Rejected(
                    f"{method}: the response of {self.address.display_name} is larger than "
                    f"{_MAX_RESPONSE_BYTES} bytes; it was not read"
                )
            chunks.append(chunk)
        return b"".join(chunks)

    def _error_from_response(self, response: Response, method: str) -> VCenterError:
        """A SOAP fault, or the page of a proxy or of a vCenter that is starting."""
        call, (status, _, body) = f"{method} at {self.address.display_name}", response
        if status == 500 and b"Envelope" in body[:500]:
            try:
                fault = SoapAdapter.SoapResponseDeserializer(self.stub).Deserialize(body, object)
                return error_from_fault(fault, call)
            except _DECODE_ERRORS:
                return error_from_xml(body, call)
        if status == 401:
            return NotAuthenticated(f"{call}: HTTP 401")
        if status == 403:
            return Denied(f"{call}: HTTP 403; a proxy, or the vCenter itself, blocks this call")
        if status == 404:
            return Unreachable(
                f"{call}: HTTP 404; this address does not serve the vSphere API. Is it a vCenter?"
            )
        return Unreachable(
            f"{call}: HTTP {status}; a vCenter that is starting, or has too many sessions, "
            "responds like this. The call is retried."
        )

    async def request_json(
        self,
        verb: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> tuple[int, Any]:
        """Status and JSON of a call to the REST endpoint; a body that is not JSON is None."""
        data = None if body is None else msgspec.json.encode(body)
        all_headers = {
            "Accept": "application/json",
            **({"Content-Type": "application/json"} if data is not None else {}),
            **(headers or {}),
        }
        method, started, outcome = f"{verb} {path.partition('?')[0]}", time.monotonic(), "cancelled"
        try:
            response = await self.request(verb, path, data, all_headers, timeout_seconds, method)
            outcome = "ok" if response.status < 400 else f"HTTP {response.status}"
            return response.status, _decode_json(response.body)
        except VCenterError as error:
            outcome = type(error).__name__
            raise
        finally:
            self.metrics.observe_call(method, outcome, time.monotonic() - started)

    def _error_from_exception(self, error: Exception, method: str) -> VCenterError:
        """The meaning of a failure of aiohttp, the socket or TLS, and what to do."""
        vcenter = f"vCenter {self.address.display_name}"
        if isinstance(error, TimeoutError):
            return TimedOut(f"{vcenter} did not respond to {method} in time")
        if isinstance(
            error,
            aiohttp.ClientConnectorCertificateError
            | aiohttp.ClientConnectorSSLError
            | ssl.SSLError,
        ):
            return certificate_error(error, self.address)
        if isinstance(error, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
            return self._tunnel_error(error)
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return Unreachable(
                f"{vcenter}: no such host name. Check the address, and that this machine can "
                "resolve it."
            )
        if isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError):
            cause = getattr(error, "os_error", None) or error
            errno = getattr(cause, "errno", None)
            message = os.strerror(errno).lower() if errno else str(cause)
            return Unreachable(
                f"{vcenter} cannot be reached at port {self.address.port}: {message}. Check that "
                "it is running, and the address."
            )
        return Unreachable(
            f"{vcenter} closed the connection during {method}; it may be restarting, or a firewall "
            "or proxy blocks the connection"
        )

    def _tunnel_error(self, error: Exception) -> Unreachable:
        reason = (
            f"it responds HTTP {error.status}"
            if isinstance(error, aiohttp.ClientHttpProxyError)
            else "no connection"
        )
        return Unreachable(
            f"vCenter {self.address.display_name}: the SDK tunnel at port "
            f"{self.address.tunnel_port} cannot be used ({reason}). A login with a certificate "
            "needs it: open that port in firewalls between the manager and vCenter, or log in with "
            "a password or a SAML token."
        )

    async def _get_http_session(self) -> aiohttp.ClientSession:
        """The connection pool, created at the first call."""
        if self.http is None:
            # Reading certificates blocks, so it runs in a thread.
            context = await asyncio.to_thread(create_ssl_context, self.address)
            if self.closed:
                raise Unreachable(
                    f"the connections to vCenter {self.address.display_name} are closed: "
                    "this program is stopping"
                )
            # Of two concurrent first calls, the first to return from the thread wins.
            if self.http is None:
                self.http = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(
                        limit=MAX_CONNECTIONS, keepalive_timeout=60, ssl=context
                    ),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers={"User-Agent": "vsphere-operators"},
                    read_bufsize=256 * 1024,
                )
        return self.http

    async def close(self) -> None:
        self.closed = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        """Close all connections; the next call opens new ones."""
        if self.http is not None:
            http, self.http = self.http, None
            await http.close()


class SoapStub(SoapAdapter.SoapStubAdapterBase):  # type: ignore[misc]
    """The stub of pyVmomi's managed objects. Over it, their methods return awaitables."""

    def __init__(self, soap: SoapClient, version: str = _API_VERSION, path: str = "") -> None:
        super().__init__(version)
        self.soap, self.path = soap, path
        # If no connection is ready within this time, nothing is sent.
        self.send_within_seconds: float | None = None
        self.requestContext: dict[str, str] | None = None
        self.samlToken: str | None = None

    def InvokeMethod(  # noqa: N802  # pyVmomi's name
        self, target: Any, info: Any, arguments: Any, outer: Any = None
    ) -> Awaitable[Any]:
        # The name and the arguments are those that pyVmomi calls.
        return self._invoke(target, info, arguments)

    async def call_undecoded(self, target: Any, method: str, *arguments: Any) -> bytes:
        """Call a method by pyVmomi's name for it. pyVmomi rejects a response with any value that it
        does not know; with this the caller decodes what it needs.
        """
        return await self._send(target, target._GetMethodInfo(method), arguments)

    async def _send(self, target: Any, info: Any, arguments: Any) -> bytes:
        body = self.SerializeRequest(target, info, arguments)
        return await self.soap.post(
            body,
            method=info.wsdlName,
            path=self.path,
            action=self.versionId,
            send_within_seconds=self.send_within_seconds,
        )

    async def _invoke(self, target: Any, info: Any, arguments: Any) -> Any:
        response = await self._send(target, info, arguments)
        try:
            result = SoapAdapter.SoapResponseDeserializer(self).Deserialize(response, info.result)
        except _DECODE_ERRORS as error:
            raise self.not_vsphere_error(info.wsdlName) from error
        # pyVmomi returns None for any other document, or a truncated one, without an error.
        if result is None and not (
            info.result is NoneType
            or issubclass(info.result, list)
            or info.resultFlags & VmomiSupport.F_OPTIONAL
        ):
            raise self.not_vsphere_error(info.wsdlName)
        return result

    def not_vsphere_error(self, method: str) -> Unreachable:
        return Unreachable(
            f"{method} at {self.soap.address.display_name}: the response is not of the vSphere "
            "API. Is it a vCenter, or a proxy?"
        )


def _decode_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return None
