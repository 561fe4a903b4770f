"""HTTP to a vCenter: SOAP and REST calls over one connection pool with one session cookie.

    body = await soap.invoke(session_manager, "Login", {"userName": user, "password": password})

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
import sys
import time
import zlib
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from kubewright_http import (
    ConnectError,
    HostNotFound,
    HttpClient,
    HttpError,
    MalformedResponse,
    Origin,
    ProxyRejected,
    ProxyUnreachable,
    origin_of,
)
from kubewright_http import Response as HttpResponse

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
)
from .service_content import ServiceContent, decode_service_content
from .soap_request import VIM, ApiVersion, Argument, encode_call
from .updates import Ref

if TYPE_CHECKING:
    from .pyvmomi_stub import SoapStub

_SESSION_COOKIE = "vmware_soap_session"
CALL_TIMEOUT_SECONDS, _CONNECT_TIMEOUT_SECONDS = 30.0, 10.0
_TUNNEL_URL = "https://sdkTunnel:8089"
MAX_CONNECTIONS = 32
_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_CONNECTION_ERRORS = (HttpError, TimeoutError, OSError)
# Everything else is found by the service instance.
SERVICE_INSTANCE = Ref("ServiceInstance", "ServiceInstance")


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
        # VCenter replaces it by one with a log.
        self.decode_errors = DecodeErrors(metrics)
        self.cookie = ""
        self.last_response_at = 0.0
        """When the last SOAP call succeeded (time.monotonic): a session in use does not expire."""
        self.closed = False
        self._stub: SoapStub | None = None
        self.http: HttpClient | None = None
        self._origin: Origin | None = None
        self._service_content: ServiceContent | None = None

    @property
    def stub(self) -> SoapStub:
        """For pyVmomi's managed objects. Call `load_types` before, so that the loop is not
        blocked.
        """
        if self._stub is None:
            from .pyvmomi_stub import SoapStub

            self._stub = SoapStub(self)
        return self._stub

    async def get_service_content(self) -> ServiceContent:
        """The managers of this vCenter. They do not change while it runs."""
        content = self._service_content
        if content is None:
            method = "RetrieveServiceContent"
            body = await self.invoke(SERVICE_INSTANCE, method, {})
            content = decode_service_content(body, self.decode_errors.report)
            if content is None:
                raise self.not_vsphere_error(method)
            self._service_content = content
        return content

    async def invoke(
        self,
        target: Ref,
        method: str,
        arguments: Mapping[str, Argument],
        *,
        api: ApiVersion = VIM,
        header: str = "",
        path: str = "",
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> bytes:
        """Call a method by its name on the wire, and return the response. `encode_call` describes
        the arguments.
        """
        return await self.post(
            encode_call(target, method, arguments, api=api, header=header),
            method=method,
            path=path,
            action=api.action,
            timeout_seconds=timeout_seconds,
        )

    def not_vsphere_error(self, method: str) -> Unreachable:
        return Unreachable(
            f"{method} at {self.address.display_name}: the response is not of the vSphere API. Is "
            "it a vCenter, or a proxy?"
        )

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
        """A call serialized by pyVmomi; `target` is one of its managed objects."""
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
            "SOAPAction": action or VIM.action,
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
                raise await self._error_from_response(response, method)
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
            http, origin = await self._connect()
            response = await http.request(
                verb,
                origin,
                path,
                {"User-Agent": "vsphere-operators", "Accept-Encoding": "gzip", **headers},
                body,
                timeout_seconds=timeout_seconds,
                connect_seconds=_CONNECT_TIMEOUT_SECONDS,
                send_within_seconds=send_within_seconds,
            )
            try:
                response_body = await self._read_body(response, method)
            finally:
                response.close()
            return Response(
                response.status, response.head.header_values("set-cookie"), response_body
            )
        except _CONNECTION_ERRORS as error:
            vcenter_error = self._error_from_exception(error, method)
            if isinstance(vcenter_error, CertificateRefused):
                # The next call reads the CA bundle again, since that is where it gets fixed.
                await self._disconnect()
            raise vcenter_error from error

    async def _read_body(self, response: HttpResponse, method: str) -> bytes:
        body = await response.read(_MAX_RESPONSE_BYTES)
        if body is not None and response.header("content-encoding").lower() == "gzip":
            body = _decompress(body, _MAX_RESPONSE_BYTES)
        if body is None:
            raise Rejected(
                f"{method}: the response of {self.address.display_name} is larger than "
                f"{_MAX_RESPONSE_BYTES} bytes; it was not read"
            )
        return body

    async def _error_from_response(self, response: Response, method: str) -> VCenterError:
        """A SOAP fault, or the page of a proxy or of a vCenter that is starting."""
        call, (status, _, body) = f"{method} at {self.address.display_name}", response
        if status == 500 and b"Envelope" in body[:500]:
            await load_types()
            return self.stub.decode_fault(body, call)
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
        """The meaning of a failure of HTTP, the socket or TLS, and what to do."""
        vcenter = f"vCenter {self.address.display_name}"
        if isinstance(error, TimeoutError):
            return TimedOut(f"{vcenter} did not respond to {method} in time")
        if isinstance(error, ssl.SSLError):
            return certificate_error(error, self.address)
        if isinstance(error, ProxyRejected | ProxyUnreachable):
            return self._tunnel_error(error)
        if isinstance(error, HostNotFound):
            return Unreachable(
                f"{vcenter}: no such host name. Check the address, and that this machine can "
                "resolve it."
            )
        if isinstance(error, ConnectError):
            cause = error.os_error
            message = os.strerror(cause.errno).lower() if cause.errno else str(cause)
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
            if isinstance(error, ProxyRejected)
            else "no connection"
        )
        return Unreachable(
            f"vCenter {self.address.display_name}: the SDK tunnel at port "
            f"{self.address.tunnel_port} cannot be used ({reason}). A login with a certificate "
            "needs it: open that port in firewalls between the manager and vCenter, or log in with "
            "a password or a SAML token."
        )

    async def _connect(self) -> tuple[HttpClient, Origin]:
        """The connection pool, created at the first call."""
        if self.http is None or self._origin is None:
            # Reading certificates blocks, so it runs in a thread.
            context = await asyncio.to_thread(create_ssl_context, self.address)
            if self.closed:
                raise Unreachable(
                    f"the connections to vCenter {self.address.display_name} are closed: "
                    "this program is stopping"
                )
            # Of two concurrent first calls, the first to return from the thread wins.
            if self.http is None or self._origin is None:
                self.http = HttpClient(max_connections=MAX_CONNECTIONS)
                self._origin = origin_of(
                    self._base_url,
                    context,
                    # The certificate behind the tunnel has the name of the vCenter too.
                    server_hostname=self.address.host if self._uses_tunnel else "",
                    proxy_url=self.address.tunnel_proxy_url if self._uses_tunnel else "",
                )
        return self.http, self._origin

    async def close(self) -> None:
        self.closed = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        """Close all connections; the next call opens new ones."""
        if self.http is not None:
            http, self.http, self._origin = self.http, None, None
            await http.close()


async def load_types() -> None:
    """Import pyVmomi's types, in a thread: it takes 0.1 s."""
    if "pyVmomi" not in sys.modules:
        await asyncio.to_thread(import_module, ".pyvmomi_stub", __package__)


def _decompress(body: bytes, max_bytes: int) -> bytes | None:
    """The content of a gzip body; None if it is larger."""
    decoder = zlib.decompressobj(wbits=31)
    try:
        content = decoder.decompress(body, max_bytes)
    except zlib.error as error:
        raise MalformedResponse(f"the body is not gzip: {error}") from error
    if decoder.unconsumed_tail:
        return None
    if not decoder.eof:
        raise MalformedResponse("the body is truncated gzip")
    return content


def _decode_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return None
