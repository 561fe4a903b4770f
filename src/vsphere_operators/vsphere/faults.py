"""All errors of vCenter calls as one tree. Catch the widest class that you can act on.

    VCenterError
    ├── NotFound                the name is wrong, or the object was deleted
    ├── Ambiguous               several objects have the name; the message lists them
    ├── Unreachable             no response: down, no route, no such host name, or a timeout
    │   ├── TimedOut            our own deadline for the call has passed
    │   └── CertificateRefused  TLS failed; the message has the reason and the fix
    ├── Denied                  the account lacks a privilege, which the message names if known
    │   ├── NotAuthenticated    the session ended: log in again
    │   ├── WrongLogin          wrong user or password, or a locked account
    │   └── ObjectForbidden     for one object; others may be readable
    ├── Busy                    temporary: another operation, a limit, a host in transition
    └── Rejected                invalid: a name, a state, a resource; `fault` has the type

Each keeps vCenter's own message. None contains the request, which may hold a password.
"""

from __future__ import annotations

from typing import Any, ClassVar

from lxml import etree

MAX_MESSAGE_LENGTH = 1000
XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"


class VCenterError(Exception):
    """The root. Its text is shown to users: what happened, why, and what to do."""

    # kubewright's log omits the stack trace of such errors.
    expected: ClassVar[bool] = True

    def __init__(self, message: str, *, fault: str = "") -> None:
        super().__init__(
            message
            if len(message) <= MAX_MESSAGE_LENGTH
            else f"{message[:MAX_MESSAGE_LENGTH]}... (cut)"
        )
        # The type of vCenter's fault, such as InvalidPowerState; "" if there was none.
        self.fault = fault


class NotFound(VCenterError):
    """The object does not exist, or no longer."""


class Ambiguous(VCenterError):
    """Several objects have the same name."""


class Unreachable(VCenterError):
    """No response: whether the call took effect is unknown."""


class TimedOut(Unreachable):
    """Our own deadline for the call has passed."""


class CertificateRefused(Unreachable):
    """The TLS handshake failed; the message has the certificate, the reason and the fix."""


class CertificateUntrusted(CertificateRefused):
    """The CA that signed the certificate is not trusted."""


class CertificateFileUnusable(CertificateRefused):
    """A file with our CAs or our own certificate is missing or invalid."""


class Denied(VCenterError):
    """vCenter does not allow the call to this account."""


class NotAuthenticated(Denied):
    """The session has ended on the server."""


class WrongLogin(Denied):
    """The user or password is wrong, or the account is locked; vCenter does not report which."""

    def __init__(
        self, message: str, *, fault: str = "", retry_after_seconds: float = 0.0, cause: str = ""
    ) -> None:
        super().__init__(message, fault=fault)
        self.retry_after_seconds = retry_after_seconds
        # The message without advice for the manager.
        self.cause = cause or message


class ObjectForbidden(Denied):
    """The account may not read one object; others may be readable."""


class Busy(VCenterError):
    """The same call may succeed later."""


class Rejected(VCenterError):
    """The same call would fail again."""


# vCenter or our session is unavailable; the call itself may be valid.
UNAVAILABLE_ERRORS = (Unreachable, NotAuthenticated, WrongLogin)
# The same call may succeed later.
RETRYABLE_ERRORS = (*UNAVAILABLE_ERRORS, Busy)
# By the fault's type on the wire. A fault that is not listed counts as its nearest listed base
# type.
_ERROR_TYPES: dict[str, type[VCenterError]] = {
    "ManagedObjectNotFound": NotFound,
    "NotFound": NotFound,
    "FileNotFound": NotFound,
    "NotAuthenticated": NotAuthenticated,
    "InvalidLogin": WrongLogin,
    "NoPermission": Denied,
    "SecurityError": Denied,
    "AuthMinimumAdminPermission": Denied,
    "NoClientCertificate": Denied,
    "HostNotConnected": Busy,
    "HostNotReachable": Busy,
    "HostCommunication": Busy,
    "HostConnectFault": Busy,
    "InvalidHostState": Busy,
    "TooManyConcurrentNativeClones": Busy,
    "VAppOperationInProgress": Busy,
    "ConcurrentAccess": Busy,
    "TaskInProgress": Busy,
    "ResourceInUse": Busy,
    "FileLocked": Busy,
    "Timedout": Busy,
    "RequestCanceled": Busy,
    "SystemError": Busy,
    "HostConfigFailed": Busy,
    "VmWwnConflict": Rejected,
    "ActiveDirectoryFault": Denied,
}


def error_from_fault(fault: Any, call: str) -> VCenterError:
    """The error for a fault object of pyVmomi, with vCenter's message."""
    name = _fault_name(type(fault))
    message = _find_message(fault) or _split_camel_case(name)
    return _error_type_for(type(fault))(f"{call}: {message}{_describe_detail(fault)}", fault=name)


def error_from_xml(body: bytes, call: str) -> VCenterError:
    """The error for a fault that pyVmomi cannot decode, such as one that is newer than it."""
    try:
        root = etree.fromstring(body, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError:
        return Rejected(f"{call}: the response is a fault that cannot be parsed")
    name = next((_fault_name_in(item) for detail in root.iter("{*}detail") for item in detail), "")
    message = (root.findtext(".//{*}faultstring") or "").strip().rstrip(".")
    message = message or _split_camel_case(name) or "the response is a fault without a message"
    return error_type_for_name(name)(f"{call}: {message}", fault=name)


def error_type_for_name(name: str) -> type[VCenterError]:
    """The error class for a fault of which only the type name is known, as at a task's end."""
    if error_type := _ERROR_TYPES.get(name):
        return error_type
    # Imported here: its types take 0.1 s, and most managers receive no such fault.
    from pyVmomi import vim, vmodl

    return _error_type_for(
        getattr(vim.fault, name, None) or getattr(vmodl.fault, name, None) or object
    )


def _fault_name_in(fault: Any) -> str:
    return str(fault.get(XSI_TYPE, "")).rpartition(":")[2] or str(
        etree.QName(fault).localname
    ).removesuffix("Fault")


def _fault_name(fault_type: type) -> str:
    # pyVmomi's class names contain dots: vim.fault.InvalidPowerState.
    return fault_type.__name__.rpartition(".")[2]


def _error_type_for(fault_type: type) -> type[VCenterError]:
    for base in fault_type.__mro__:
        if error_type := _ERROR_TYPES.get(_fault_name(base)):
            return error_type
    return Rejected


def _find_message(fault: Any) -> str:
    """The message of vCenter: of the fault, else the first of its causes that has one."""
    if text := getattr(fault, "msg", None):
        return str(text).strip().rstrip(".")
    for message in getattr(fault, "faultMessage", None) or ():
        if message.message:
            return str(message.message).strip().rstrip(".")
    cause = getattr(fault, "faultCause", None)
    return _find_message(cause) if cause is not None else ""


def _split_camel_case(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _describe_detail(fault: Any) -> str:
    """What the fault names in addition to its message."""
    from pyVmomi import vim, vmodl

    parts = []
    # NotAuthenticated extends NoPermission, but a privilege would not help.
    is_denied = isinstance(fault, vmodl.fault.SecurityError) and not isinstance(
        fault, vim.fault.NotAuthenticated
    )
    if is_denied and (privilege := getattr(fault, "privilegeId", None)):
        parts.append(
            f'the privilege "{privilege}" is missing{_describe_object(fault)}; '
            "add it to the role of this user"
        )
    if argument := getattr(fault, "invalidProperty", None):
        parts.append(f"the property {argument} is invalid")
    if name := getattr(fault, "name", None):
        parts.append(f'the name is "{name}"')
    return f" ({'; '.join(parts)})" if parts else ""


def _describe_object(fault: Any) -> str:
    """The object of a NoPermission fault, as ` on Network network-7`."""
    reference = getattr(fault, "object", None)
    if reference is None:
        return ""
    return f" on {_fault_name(type(reference))} {reference._moId}"
