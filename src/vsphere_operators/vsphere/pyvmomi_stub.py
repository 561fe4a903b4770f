"""pyVmomi's managed objects over our own connections: their methods return awaitables.

    await vim.SessionManager("SessionManager", soap.stub).Login(user, password)

Import it by SoapClient.stub, in a thread the first time (`load_types`): its types take 0.1 s.

Why not pyVmomi's own connection?  It blocks a thread per call, cannot be cancelled and has no
    deadline. Its types and methods work over any stub that has `InvokeMethod`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from types import NoneType
from typing import Any, Protocol
from xml.parsers.expat import ExpatError

from pyVmomi import SoapAdapter, VmomiSupport

from .faults import Unreachable, VCenterError, error_from_fault, error_from_xml

# vSphere 7.0, as in soap_request.py.
_API_VERSION = "vim.version.v7_0"
# What pyVmomi's decoder raises for a response that is not of the vSphere API, or has unknown types.
_DECODE_ERRORS = (ExpatError, LookupError, TypeError, AttributeError, ValueError, RuntimeError)


class Sender(Protocol):
    async def post(
        self,
        body: bytes,
        *,
        method: str,
        action: str = "",
        send_within_seconds: float | None = None,
    ) -> bytes: ...

    def not_vsphere_error(self, method: str) -> Unreachable: ...


class SoapStub(SoapAdapter.SoapStubAdapterBase):  # type: ignore[misc]
    """The stub of pyVmomi's managed objects. Over it, their methods return awaitables."""

    def __init__(self, soap: Sender) -> None:
        super().__init__(_API_VERSION)
        self.soap = soap
        # If no connection is ready within this time, nothing is sent.
        self.send_within_seconds: float | None = None
        # What pyVmomi's serializer reads.
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
        return await self.soap.post(
            self.SerializeRequest(target, info, arguments),
            method=info.wsdlName,
            action=self.versionId,
            send_within_seconds=self.send_within_seconds,
        )

    async def _invoke(self, target: Any, info: Any, arguments: Any) -> Any:
        response = await self._send(target, info, arguments)
        try:
            result = SoapAdapter.SoapResponseDeserializer(self).Deserialize(response, info.result)
        except _DECODE_ERRORS as error:
            raise self.soap.not_vsphere_error(info.wsdlName) from error
        # pyVmomi returns None for any other document, or a truncated one, without an error.
        if result is None and not (
            info.result is NoneType
            or issubclass(info.result, list)
            or info.resultFlags & VmomiSupport.F_OPTIONAL
        ):
            raise self.soap.not_vsphere_error(info.wsdlName)
        return result

    def decode_fault(self, body: bytes, call: str) -> VCenterError:
        try:
            fault = SoapAdapter.SoapResponseDeserializer(self).Deserialize(body, object)
            return error_from_fault(fault, call)
        except _DECODE_ERRORS:
            return error_from_xml(body, call)
