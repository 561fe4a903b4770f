"""Everything that vCenter can answer but a result, as one tree by meaning. Catch the widest name that you can act on.

    VCenterError
    ├── NotFound                no such thing: the name is wrong, or it was deleted
    ├── Ambiguous               several things of that name; `paths` has all of them
    ├── Unreachable             no answer: down, no route, no such name, our deadline passed
    │   ├── TimedOut            our deadline for the call has passed
    │   └── CertificateRefused  TLS failed: the reason and the fix
    ├── Denied                  vCenter knows who we are and says no; a privilege is named where the fault names it
    │   ├── NotAuthenticated    the session is gone: log in again
    │   └── WrongLogin          user or password is wrong, or the account is locked; `again_in_seconds` until the next try
    ├── Busy                    will pass by itself: another operation, a limit, a host that is being changed
    └── Rejected                what was asked cannot be done: a name, a state, a resource; `fault` says which

Each keeps vCenter's own words. None ever holds what was sent, since that may be a password.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from lxml import etree
from pyVmomi import vim, vmodl

MAX_MESSAGE_LENGTH = 1000
XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"


class VCenterError(Exception):
    """The root; its text is for people: what happened, what it means, what to do."""

    expected: ClassVar[bool] = True
    """A log needs no stack trace of it."""

    def __init__(self, message: str, *, fault: str = "") -> None:
        super().__init__(
            message
            if len(message) <= MAX_MESSAGE_LENGTH
            else f"{message[:MAX_MESSAGE_LENGTH]}... (cut)"
        )
        self.fault = fault
        """The name of vCenter's fault, such as InvalidPowerState; "" where it was none."""


class NotFound(VCenterError):
    """No such thing, or no longer."""


class Ambiguous(VCenterError):
    """Several things of one name."""

    def __init__(self, message: str, paths: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(paths)


class Unreachable(VCenterError):
    """No answer: whether the call took effect is not known."""


class TimedOut(Unreachable):
    """Our own deadline for the call has passed."""


class CertificateRefused(Unreachable):
    """The TLS handshake failed; the message says which certificate, why, and how to mend it."""


class Denied(VCenterError):
    """vCenter says no to who we are."""


class NotAuthenticated(Denied):
    """The session is gone."""


class WrongLogin(Denied):
    """User or password is wrong, or the account is locked."""

    def __init__(self, message: str, *, fault: str = "", retry_after_seconds: float = 0.0) -> None:
        super().__init__(message, fault=fault)
        self.retry_after_seconds = retry_after_seconds


class Busy(VCenterError):
    """What was asked may work later."""


class Rejected(VCenterError):
    """What was asked cannot be done as it is."""


UNAVAILABLE_ERRORS = (Unreachable, NotAuthenticated, WrongLogin)
"""No word about what was asked: the vCenter or our session with it is away."""
RETRYABLE_ERRORS = (*UNAVAILABLE_ERRORS, Busy)
"""What the same question may get past later."""


class FaultMapping:
    """Which faults mean what, by the name on the wire; a fault that is not listed is judged by its base types."""

    ERROR_TYPES: ClassVar[dict[str, type[VCenterError]]] = {
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


def error_from_fault(fault: Any, doing: str) -> VCenterError:
    """The error for any fault object of pyVmomi, with vCenter's own words and the privilege or object that it names."""
    name = _fault_name(type(fault))
    said = _find_message(fault) or _split_camel_case(name)
    return _error_type_for(type(fault))(f"{doing}: {said}{_describe_detail(fault)}", fault=name)


def error_from_xml(answer: bytes, doing: str) -> VCenterError:
    """The error for a fault that pyVmomi cannot read, such as one that is newer than it: by its name and words alone."""
    try:
        body = etree.fromstring(answer, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError:
        return Rejected(f"{doing}: it answered with a fault that cannot be read")
    name = next((_fault_name_in(each) for detail in body.iter("{*}detail") for each in detail), "")
    said = (body.findtext(".//{*}faultstring") or "").strip().rstrip(".") or _split_camel_case(name)
    return error_type_for_name(name)(
        f"{doing}: {said or 'it answered with a fault without words'}", fault=name
    )


def error_type_for_name(name: str) -> type[VCenterError]:
    """What a fault means of which only the name is known, as in the end of a task."""
    return _error_type_for(
        getattr(vim.fault, name, None) or getattr(vmodl.fault, name, None) or object
    )


def _fault_name_in(fault: Any) -> str:
    """The fault's name in its element."""
    return str(fault.get(XSI_TYPE, "")).rpartition(":")[2] or str(
        etree.QName(fault).localname
    ).removesuffix("Fault")


def _fault_name(kind: type) -> str:
    """vim.fault.InvalidPowerState -> InvalidPowerState."""
    return kind.__name__.rpartition(".")[2]


def _error_type_for(kind: type) -> type[VCenterError]:
    """The nearest listed type, from the fault itself up its bases."""
    for base in kind.__mro__:
        if found := FaultMapping.ERROR_TYPES.get(_fault_name(base)):
            return found
    return Rejected


def _find_message(fault: Any) -> str:
    """The words of vCenter itself: of the fault, else of the first message behind it that has any."""
    if text := getattr(fault, "msg", None):
        return str(text).strip().rstrip(".")
    for message in getattr(fault, "faultMessage", None) or ():
        if message.message:
            return str(message.message).strip().rstrip(".")
    cause = getattr(fault, "faultCause", None)
    return _find_message(cause) if cause is not None else ""


def _split_camel_case(name: str) -> str:
    """`InvalidPowerState` as words, for a fault that came without any."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _describe_detail(fault: Any) -> str:
    """What the fault names beside its words: the privilege that is missing, the property that is wrong, the state that is in the way."""
    parts = []
    if isinstance(fault, vmodl.fault.SecurityError) and (
        privilege := getattr(fault, "privilegeId", None)
    ):
        parts.append(f'the privilege "{privilege}" is missing; give it to the role of this user')
    if argument := getattr(fault, "invalidProperty", None):
        parts.append(f"the property {argument} is wrong")
    if name := getattr(fault, "name", None):
        parts.append(f'the name is "{name}"')
    return f" ({'; '.join(parts)})" if parts else ""
