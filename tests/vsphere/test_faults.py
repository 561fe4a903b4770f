"""The error class and the message of each fault."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyVmomi import vim, vmodl
from pyVmomi.VmomiSupport import GetVmodlType, _dataDefMap

from vsphere_operators.vsphere.faults import (
    _ERROR_TYPES,
    MAX_MESSAGE_LENGTH,
    Ambiguous,
    Busy,
    CertificateRefused,
    Denied,
    NotAuthenticated,
    NotFound,
    Rejected,
    Unreachable,
    VCenterError,
    WrongLogin,
    error_from_fault,
)

FAULTS_BY_ERROR = {
    NotFound: "ManagedObjectNotFound NotFound FileNotFound",
    NotAuthenticated: "NotAuthenticated",
    WrongLogin: "InvalidLogin",
    Denied: "NoPermission SecurityError AuthMinimumAdminPermission NoClientCertificate "
    "ActiveDirectoryFault",
    Busy: "HostNotConnected HostNotReachable HostCommunication HostConnectFault InvalidHostState "
    "TooManyConcurrentNativeClones "
    "VAppOperationInProgress ConcurrentAccess TaskInProgress ResourceInUse FileLocked Timedout "
    "RequestCanceled SystemError "
    "HostConfigFailed",
    Rejected: "VmWwnConflict",
}
SUBTYPE_FAULTS_BY_ERROR = {
    WrongLogin: "PasswordExpired InvalidClientCertificate",
    Denied: "RestrictedVersion NoPermissionOnAD",
    Busy: "PowerOnFtSecondaryTimedout VAppTaskInProgress FilterInUse InvalidHostConnectionState",
    Rejected: "InvalidPowerState InvalidName DuplicateName InsufficientCpuResourcesFault "
    "NoDiskSpace InvalidArgument NotSupported",
}


def make_fault(name: str, **fields: Any) -> Any:
    return (getattr(vim.fault, name, None) or getattr(vmodl.fault, name))(**fields)


def make_method_fault(**fields: Any) -> Any:
    kind: Any = vmodl.MethodFault
    return kind(**fields)


def list_cases(table: dict[type[VCenterError], str]) -> list[tuple[str, type[VCenterError]]]:
    return [(name, meaning) for meaning, names in table.items() for name in names.split()]


def test_all_listed_faults_are_tested() -> None:
    assert dict(list_cases(FAULTS_BY_ERROR)) == _ERROR_TYPES


@pytest.mark.parametrize(
    ("name", "meaning"), list_cases(FAULTS_BY_ERROR) + list_cases(SUBTYPE_FAULTS_BY_ERROR)
)
def test_error_of_each_fault(name: str, meaning: type[VCenterError]) -> None:
    error = error_from_fault(make_fault(name, msg="vCenter's own message."), "PowerOnVM_Task at vc")
    assert type(error) is meaning
    assert (str(error), error.fault) == ("PowerOnVM_Task at vc: vCenter's own message", name)


def test_every_fault_of_pyvmomi_has_an_error() -> None:
    kinds = [
        GetVmodlType(name) for name in _dataDefMap if re.fullmatch(r"(vim|vmodl)\.fault\.\w+", name)
    ]
    assert len(kinds) > 500
    for kind in kinds:
        error = error_from_fault(kind(), "doing")
        assert isinstance(error, VCenterError)
        assert len(str(error)) > len("doing: ")


def test_missing_privilege_is_named() -> None:
    error = error_from_fault(
        vim.fault.NoPermission(
            msg="Permission was denied.", privilegeId="VirtualMachine.Interact.PowerOn"
        ),
        "PowerOn",
    )
    assert str(error) == (
        'PowerOn: Permission was denied (the privilege "VirtualMachine.Interact.PowerOn" is '
        "missing; add it to the role of this user)"
    )


def test_object_without_the_privilege_is_named() -> None:
    fault = vim.fault.NoPermission(
        msg="Permission was denied.", privilegeId="Network.Assign", object=vim.Network("network-7")
    )
    assert 'the privilege "Network.Assign" is missing on Network network-7; add it' in str(
        error_from_fault(fault, "CloneVM_Task")
    )


def test_ended_session_does_not_ask_for_a_privilege() -> None:
    fault = vim.fault.NotAuthenticated(msg="Not authenticated.", privilegeId="System.View")
    assert str(error_from_fault(fault, "CurrentTime")) == "CurrentTime: Not authenticated"


def test_details_of_a_fault_are_in_the_message() -> None:
    assert (
        str(error_from_fault(vim.fault.InvalidName(msg="Bad.", name="a/b"), "Rename"))
        == 'Rename: Bad (the name is "a/b")'
    )
    assert (
        str(
            error_from_fault(
                vmodl.fault.InvalidArgument(msg="Bad.", invalidProperty="spec.cpu"), "Clone"
            )
        )
        == "Clone: Bad (the property spec.cpu is invalid)"
    )


def test_message_comes_from_fault_messages_cause_or_name() -> None:
    message = vmodl.LocalizableMessage(key="k", message="From a message.")
    assert (
        str(error_from_fault(vim.fault.InvalidState(faultMessage=[message]), "Do"))
        == "Do: From a message"
    )
    cause = make_method_fault(msg="From the cause.")
    assert (
        str(error_from_fault(vim.fault.InvalidState(faultCause=cause), "Do"))
        == "Do: From the cause"
    )
    assert str(error_from_fault(vim.fault.InvalidPowerState(), "Do")) == "Do: invalid power state"


def test_error_tree() -> None:
    assert [
        kind.__mro__[1] for kind in (NotFound, Ambiguous, Unreachable, Denied, Busy, Rejected)
    ] == [VCenterError] * 6
    assert issubclass(CertificateRefused, Unreachable)
    assert issubclass(NotAuthenticated, Denied)
    assert issubclass(WrongLogin, Denied)
    assert WrongLogin("no", retry_after_seconds=7).retry_after_seconds == 7


def test_long_message_is_truncated() -> None:
    assert len(
        str(error_from_fault(make_method_fault(msg="x" * 1_000_000), "Do"))
    ) == MAX_MESSAGE_LENGTH + len("... (cut)")
