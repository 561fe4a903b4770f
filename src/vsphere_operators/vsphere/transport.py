"""The one place that speaks HTTP to a vCenter: pyVmomi's types and serialiser, our own connections.

    vim.SessionManager("SessionManager", soap.stub).Login(user, password)          # returns an awaitable

Why not pyVmomi's own connection? It blocks a thread for each call, cannot be cancelled, and knows no deadline. What it does well, every
type and method of the API, works over any stub that has `InvokeMethod`.
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

from .address import Address, create_ssl_context, explain_certificate_error
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

# vSphere 7.0: older servers are out of support, and newer ones answer in this version's words.
_API_VERSION = "vim.version.v7_0"
_SESSION_COOKIE = "vmware_soap_session"
CALL_TIMEOUT_SECONDS = 30.0
_CONNECT_TIMEOUT_SECONDS = 10.0
MAX_CONNECTIONS = 32
_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
# What pyVmomi's reader raises for what is no answer of the vSphere API, or one with types that it does not know.
_DECODE_ERRORS = (ExpatError, LookupError, TypeError, AttributeError, ValueError, RuntimeError)


class Log(Protocol):
    """Where lines for people go; `kubewright.log.Log` is one."""

    def debug(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None: ...
    def info(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None: ...
    def warning(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None: ...
    def error(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None: ...


class CallMetrics(Protocol):
    """Who counts calls."""

    def observe_call(self, method: str, outcome: str, seconds: float) -> None:
        """A call ended: with `ok`, or with the name of our error for it."""
        ...


class Response(NamedTuple):
    """What came back for one request."""

    status: int
    cookies: list[str]
    body: bytes


class SoapClient:
    """Calls to one vCenter over a pool of connections that share one session cookie."""

    def __init__(self, address: Address, meter: CallMetrics) -> None:
        self.address, self.metrics = address, meter
        self.cookie = ""
        self.last_answer_at = 0.0
        """When the last SOAP call was answered, by time.monotonic: a session that is used stays alive."""
        self.closed = False
        self.client_certificate: tuple[str, str, bytes] = ("", "", b"")
        self.stub = SoapStub(self)
        self.http: aiohttp.ClientSession | None = None
        self._service_content: Any = None

    async def get_service_content(self) -> Any:
        """The ServiceInstance's content: which managers there are. It does not change while a vCenter runs."""
        if self._service_content is None:
            self._service_content = await vim.ServiceInstance(
                "ServiceInstance", self.stub
            ).RetrieveServiceContent()
        return self._service_content

    def clear_session(self) -> None:
        """Drop what belongs to a session that is gone."""
        self.cookie, self._service_content = "", None

    async def use_client_certificate(
        self, certificate_file: str, key_file: str, pem: bytes = b""
    ) -> None:
        """Show this client certificate from now on; connections made with another, or with what the files held before, are ended."""
        if (certificate_file, key_file, pem) != self.client_certificate:
            self.client_certificate = (certificate_file, key_file, pem)
            await self._disconnect()

    def build_envelope(self, target: Any, method: str, *arguments: Any) -> bytes:
        """A call as it goes over the wire; `method` is its name there, such as WaitForUpdatesEx."""
        return bytes(self.stub.SerializeRequest(target, target._GetMethodInfo(method), arguments))

    async def post(
        self,
        body: bytes,
        *,
        method: str,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        path: str = "",
        action: str = "",
    ) -> bytes:
        """Send an envelope; the answer's bytes, or what the fault in it means."""
        started, outcome = time.monotonic(), "cancelled"
        try:
            status, answer = await self.send(
                body,
                method,
                timeout_seconds,
                path or self.address.path,
                action or self.stub.versionId,
            )
            if status != 200:
                raise self._error_from_response(status, answer, method)
            outcome, self.last_answer_at = "ok", time.monotonic()
            return answer
        except VCenterError as error:
            outcome = type(error).__name__
            raise
        finally:
            self.metrics.observe_call(method, outcome, time.monotonic() - started)

    async def send(
        self, body: bytes, method: str, timeout_seconds: float, path: str, action: str
    ) -> tuple[int, bytes]:
        """One request and its whole answer; the cookie that comes with a login is kept."""
        sent = self.cookie
        headers = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": action}
        if sent:
            headers["Cookie"] = f"{_SESSION_COOKIE}={sent}"
        answer = await self.request("POST", path, body, headers, timeout_seconds, method)
        # To whoever comes without a live session vCenter gives a new key: an answer that was late must not replace that of a login.
        if path == self.address.path and (method.startswith("Login") or self.cookie == sent):
            self._store_cookie(answer.cookies)
        return answer.status, answer.body

    async def request(
        self,
        verb: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float,
        method: str,
    ) -> Response:
        """What the vCenter answers to one request, whatever its status; a failure is told as what it means."""
        try:
            async with (await self._get_http_session()).request(
                verb,
                URL(self.address.base_url + path, encoded=True),
                data=body,
                headers=headers,
                timeout=_create_timeout(timeout_seconds),
                allow_redirects=False,
            ) as response:
                return Response(
                    response.status,
                    response.headers.getall("Set-Cookie", []),
                    await self.read_body(response, method),
                )
        except _CONNECTION_ERRORS as error:
            raise await self._handle_connection_error(error, method) from error

    async def read_body(self, response: aiohttp.ClientResponse, method: str) -> bytes:
        """The body, unless it is larger than we are willing to hold."""
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > _MAX_RESPONSE_BYTES:
                response.close()
                raise Rejected(
                    f"{method}: the answer of {self.address.display_name} is larger than {_MAX_RESPONSE_BYTES} bytes; it was not read"
                )
            chunks.append(chunk)
        return b"".join(chunks)

    def _store_cookie(self, headers: list[str]) -> None:
        """Keep the session's key, which vCenter gives with the first answer, and again with the login."""
        for header in headers:
            if found := re.match(rf'{_SESSION_COOKIE}="?([^";]+)', header):
                self.cookie = found[1]

    def _error_from_response(self, status: int, answer: bytes, method: str) -> VCenterError:
        """What an answer other than 200 means: a SOAP fault, or the page of a proxy or of a vCenter that is starting."""
        doing = f"{method} at {self.address.display_name}"
        if status == 500 and b"Envelope" in answer[:500]:
            return self._error_from_fault_body(answer, doing)
        if status == 401:
            return NotAuthenticated(f"{doing}: HTTP 401")
        if status == 403:
            return Denied(
                f"{doing}: HTTP 403; something between here and the vCenter, or the vCenter itself, does not let this call pass"
            )
        said = f"it answered HTTP {status}"
        if status == 404:
            return Unreachable(
                f"{doing}: {said}: nothing at this address speaks the vSphere API; is it a vCenter?"
            )
        return Unreachable(
            f"{doing}: {said}; a vCenter that starts, or has too many sessions, does this. It is tried again."
        )

    def _error_from_fault_body(self, answer: bytes, doing: str) -> VCenterError:
        """What a SOAP fault means."""
        try:
            return error_from_fault(
                SoapAdapter.SoapResponseDeserializer(self.stub).Deserialize(answer, object), doing
            )
        except _DECODE_ERRORS:
            return error_from_xml(answer, doing)

    async def request_json(
        self,
        verb: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> tuple[int, Any]:
        """A call of the REST endpoint at the same address: its status and its JSON; other bodies are None."""
        data = None if body is None else msgspec.json.encode(body)
        given = {
            "Accept": "application/json",
            **({"Content-Type": "application/json"} if data is not None else {}),
            **(headers or {}),
        }
        method, started, outcome = f"{verb} {path.partition('?')[0]}", time.monotonic(), "cancelled"
        try:
            answer = await self.request(verb, path, data, given, timeout_seconds, method)
            outcome = "ok" if answer.status < 400 else f"HTTP {answer.status}"
            return answer.status, _decode_json(answer.body)
        except VCenterError as error:
            outcome = type(error).__name__
            raise
        finally:
            self.metrics.observe_call(method, outcome, time.monotonic() - started)

    async def _handle_connection_error(self, error: Exception, method: str) -> VCenterError:
        """What a failure means; after a refused certificate the CA bundle is read again, since that is where people mend it."""
        meant = self._error_from_exception(error, method)
        if isinstance(meant, CertificateRefused):
            await self._disconnect()
        return meant

    def _error_from_exception(self, error: Exception, method: str) -> VCenterError:
        """A failure of aiohttp, the socket or TLS as what it means and what to do."""
        where = f"vCenter {self.address.display_name}"
        if isinstance(error, TimeoutError):
            return TimedOut(f"{where} did not answer {method} in time")
        if isinstance(
            error,
            aiohttp.ClientConnectorCertificateError
            | aiohttp.ClientConnectorSSLError
            | ssl.SSLError,
        ):
            return CertificateRefused(
                f"{where}: its certificate is not accepted: {explain_certificate_error(error, self.address)}"
            )
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return Unreachable(
                f"{where}: no such host name; is the address right, and can this machine resolve it?"
            )
        if isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError):
            why = getattr(error, "os_error", None) or error
            number = getattr(why, "errno", None)
            words = os.strerror(number).lower() if number else str(why)
            return Unreachable(
                f"{where} cannot be reached at port {self.address.port}: {words}. Is it up, and is the address right?"
            )
        return Unreachable(
            f"{where} broke the connection during {method}; it may be restarting, or something on the way lets nothing pass"
        )

    async def _get_http_session(self) -> aiohttp.ClientSession:
        """The pool of connections, made at the first call; reading certificates is file work, so it is done in a thread."""
        if self.http is None:
            context = await asyncio.to_thread(create_ssl_context, self._address_with_certificate())
            if self.closed:
                raise Unreachable(
                    f"the connections to vCenter {self.address.display_name} have been closed: this program is stopping"
                )
            # Two first calls at once: the first to come back from the thread wins.
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

    def _address_with_certificate(self) -> Address:
        """The address with the client certificate that is to be shown there."""
        certificate_file, key_file, _ = self.client_certificate
        return (
            replace(self.address, certificate_file=certificate_file, key_file=key_file)
            if certificate_file
            else self.address
        )

    async def close(self) -> None:
        """End all connections, for good."""
        self.closed = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        """End all connections; the next call makes new ones."""
        if self.http is not None:
            http, self.http = self.http, None
            await http.close()


class SoapStub(SoapAdapter.SoapStubAdapterBase):  # type: ignore[misc]
    """What pyVmomi's managed objects call: every method of theirs returns an awaitable."""

    def __init__(self, soap: SoapClient, version: str = _API_VERSION, path: str = "") -> None:
        super().__init__(version)
        self.soap, self.path = soap, path
        self.requestContext: dict[str, str] | None = None
        self.samlToken: str | None = None

    def InvokeMethod(  # noqa: N802  # pyVmomi's name
        self, target: Any, info: Any, arguments: Any, outer: Any = None
    ) -> Awaitable[Any]:
        """Start the call; what it returns is decoded by pyVmomi."""
        return self._invoke(target, info, arguments)

    async def _invoke(self, target: Any, info: Any, arguments: Any) -> Any:
        """One call."""
        body = self.SerializeRequest(target, info, arguments)
        return self.decode_result(
            await self.soap.post(body, method=info.wsdlName, path=self.path, action=self.versionId),
            info,
        )

    def decode_result(self, answer: bytes, info: Any) -> Any:
        """What the method returned."""
        words = f"{info.wsdlName} at {self.soap.address.display_name}: the answer is none of the vSphere API; is it a vCenter, or a proxy?"
        try:
            result = SoapAdapter.SoapResponseDeserializer(self).Deserialize(answer, info.result)
        except _DECODE_ERRORS as error:
            raise Unreachable(words) from error
        # pyVmomi finds nothing in a document that is another one, or only its beginning, and does not complain.
        if result is None and not (
            info.result is NoneType
            or issubclass(info.result, list)
            or info.resultFlags & VmomiSupport.F_OPTIONAL
        ):
            raise Unreachable(words)
        return result


def _create_timeout(seconds: float) -> aiohttp.ClientTimeout:
    """Our deadline in aiohttp's form."""
    return aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_TIMEOUT_SECONDS)


def _decode_json(answer: bytes) -> Any:
    """JSON, or None for what is not."""
    try:
        return msgspec.json.decode(answer) if answer else None
    except msgspec.DecodeError:
        return None
