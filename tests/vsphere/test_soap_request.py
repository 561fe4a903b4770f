"""The requests of a start are those that pyVmomi would send, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from pyVmomi import SoapAdapter, VmomiSupport, vim, vmodl, vslm

from vsphere_operators.vsphere.property_collector import (
    build_filter_spec,
    build_object_spec,
    build_property_spec,
    build_traversal_spec,
)
from vsphere_operators.vsphere.soap_request import (
    VIM,
    ApiVersion,
    Argument,
    DataObject,
    encode_call,
    encode_session_header,
    encode_token_header,
)
from vsphere_operators.vsphere.updates import Ref

PropertyCollector = vmodl.query.PropertyCollector
VSLM = ApiVersion("urn:vslm", "7.0.0.0")
UNUSUAL_TEXT = "a<b>&amp;\"'\n\t\u00e9\U0001f600]]>"
FILTER = build_filter_spec(
    [
        build_object_spec(Ref("Folder", "group-d1")),
        build_traversal_spec(Ref("ContainerView", "view"), "ContainerView", "view"),
    ],
    [build_property_spec("Folder", ["parent", "name"]), build_property_spec("Task", ["info"])],
    report_missing=True,
)
PYVMOMI_FILTER = PropertyCollector.FilterSpec(
    objectSet=[
        PropertyCollector.ObjectSpec(obj=vim.Folder("group-d1"), skip=False),
        PropertyCollector.ObjectSpec(
            obj=vim.view.ContainerView("view"),
            skip=True,
            selectSet=[
                PropertyCollector.TraversalSpec(
                    name="view", type=vim.view.ContainerView, path="view", skip=False
                )
            ],
        ),
    ],
    propSet=[
        PropertyCollector.PropertySpec(type=vim.Folder, all=False, pathSet=["name", "parent"]),
        PropertyCollector.PropertySpec(type=vim.Task, all=False, pathSet=["info"]),
    ],
    reportMissingObjectsInResults=True,
)
CALLS: list[tuple[Ref, str, dict[str, Argument], list[Any]]] = [
    (Ref("ServiceInstance", "ServiceInstance"), "RetrieveServiceContent", {}, []),
    (Ref("ServiceInstance", "ServiceInstance"), "CurrentTime", {}, []),
    (
        Ref("SessionManager", "SessionManager"),
        "Login",
        {"userName": UNUSUAL_TEXT, "password": ""},
        [UNUSUAL_TEXT, ""],
    ),
    (
        Ref("SessionManager", "SessionManager"),
        "LoginExtensionByCertificate",
        {"extensionKey": "x"},
        ["x"],
    ),
    (Ref("SessionManager", "SessionManager"), "Logout", {}, []),
    (
        Ref("ViewManager", "ViewManager"),
        "CreateContainerView",
        {
            "container": Ref("Folder", "group-d1"),
            "type": ["Folder", "VirtualMachine", "ComputeResource"],
            "recursive": True,
        },
        [vim.Folder("group-d1"), [vim.Folder, vim.VirtualMachine, vim.ComputeResource], True],
    ),
    (Ref("ContainerView", "view"), "DestroyView", {}, []),
    (Ref("PropertyCollector", "c"), "CreatePropertyCollector", {}, []),
    (Ref("PropertyCollector", "c"), "DestroyPropertyCollector", {}, []),
    (
        Ref("PropertyCollector", "c"),
        "CreateFilter",
        {"spec": FILTER, "partialUpdates": False},
        [PYVMOMI_FILTER, False],
    ),
    (
        Ref("PropertyCollector", "c"),
        "WaitForUpdatesEx",
        {
            "version": "",
            "options": DataObject({"maxWaitSeconds": 15, "maxObjectUpdates": 100}),
        },
        ["", PropertyCollector.WaitOptions(maxWaitSeconds=15, maxObjectUpdates=100)],
    ),
    (
        Ref("PropertyCollector", "c"),
        "RetrievePropertiesEx",
        {"specSet": [FILTER, FILTER], "options": DataObject({"maxObjects": 100})},
        [[PYVMOMI_FILTER, PYVMOMI_FILTER], PropertyCollector.RetrieveOptions(maxObjects=100)],
    ),
    (Ref("PropertyCollector", "c"), "ContinueRetrievePropertiesEx", {"token": "t"}, ["t"]),
    (Ref("ScheduledTaskManager", "tasks"), "RetrieveEntityScheduledTask", {}, [None]),
    (Ref("HostAssignableHardwareManager", "hw"), "RetrieveDynamicPassthroughInfo", {}, []),
    (
        Ref("VcenterVStorageObjectManager", "disks"),
        "ListVStorageObject",
        {"datastore": Ref("Datastore", "ds-1")},
        [vim.Datastore("ds-1")],
    ),
    (
        Ref("VcenterVStorageObjectManager", "disks"),
        "RetrieveVStorageObject",
        {"id": DataObject({"id": "disk-1"}), "datastore": Ref("Datastore", "ds-1")},
        [vim.vslm.ID(id="disk-1"), vim.Datastore("ds-1")],
    ),
]
VSLM_ID = DataObject({"id": "disk-1"}, namespace=VIM.namespace)
VSLM_CALLS: list[tuple[str, dict[str, Argument], list[Any]]] = [
    ("VslmRetrieveVStorageObject", {"id": VSLM_ID}, [vim.vslm.ID(id="disk-1")]),
    (
        "VslmRetrieveVStorageObjectAssociations",
        {"ids": [VSLM_ID, VSLM_ID]},
        [[vim.vslm.ID(id="disk-1"), vim.vslm.ID(id="disk-1")]],
    ),
    ("VslmListVStorageObjectForSpec", {"query": [], "maxResult": 1000}, [[], 1000]),
    (
        "VslmListVStorageObjectForSpec",
        {
            "query": [
                DataObject(
                    {"queryField": "id", "queryOperator": "greaterThan", "queryValue": ["a"]}
                )
            ],
            "maxResult": 1000,
        },
        [
            [
                vslm.vso.VStorageObjectQuerySpec(
                    queryField="id", queryOperator="greaterThan", queryValue=["a"]
                )
            ],
            1000,
        ],
    ),
]


def encode_with_pyvmomi(
    target: Ref,
    method: str,
    arguments: list[Any],
    version: str = "vim.version.v7_0",
    *,
    namespace: str = VIM.namespace,
    session_key: str = "",
    saml_token: str | None = None,
) -> bytes:
    stub: Any = SoapAdapter.SoapStubAdapterBase(version)
    stub.requestContext = {"vcSessionCookie": session_key} if session_key else None
    stub.samlToken = saml_token
    managed = VmomiSupport.GetWsdlType(namespace, target.type)(target.value, stub)
    info = next(info for info in managed._GetMethodList() if info.wsdlName == method)
    return bytes(stub.SerializeRequest(managed, info, arguments))


@pytest.mark.parametrize(("target", "method", "arguments", "pyvmomi_arguments"), CALLS)
def test_request_equals_that_of_pyvmomi(
    target: Ref, method: str, arguments: dict[str, Argument], pyvmomi_arguments: list[Any]
) -> None:
    expected = encode_with_pyvmomi(target, method, pyvmomi_arguments)
    assert encode_call(target, method, arguments) == expected


@pytest.mark.parametrize(("method", "arguments", "pyvmomi_arguments"), VSLM_CALLS)
def test_request_to_the_disk_catalog_equals_that_of_pyvmomi(
    method: str, arguments: dict[str, Argument], pyvmomi_arguments: list[Any]
) -> None:
    target = Ref("VslmVStorageObjectManager", "VStorageObjectManager")
    header = encode_session_header(UNUSUAL_TEXT, VSLM)
    assert encode_call(target, method, arguments, api=VSLM, header=header) == encode_with_pyvmomi(
        target,
        method,
        pyvmomi_arguments,
        "vslm.version.v7_0",
        namespace=VSLM.namespace,
        session_key=UNUSUAL_TEXT,
    )


def test_login_by_token_equals_that_of_pyvmomi() -> None:
    target, token = Ref("SessionManager", "SessionManager"), "<saml:Assertion>x</saml:Assertion>"
    assert encode_call(
        target, "LoginByToken", {}, header=encode_token_header(token)
    ) == encode_with_pyvmomi(target, "LoginByToken", [], saml_token=token)


def test_request_of_a_newer_version_equals_that_of_pyvmomi() -> None:
    target, version = Ref("HostAssignableHardwareManager", "hw"), "vim.version.v8_0_0_1"
    api = ApiVersion("urn:vim25", "8.0.0.1")
    method = "RetrieveVendorDeviceGroupInfo"
    assert encode_call(target, method, {}, api=api) == encode_with_pyvmomi(
        target, method, [], version
    )


@pytest.mark.parametrize(
    ("api", "version"),
    [
        (VIM, "vim.version.v7_0"),
        (VSLM, "vslm.version.v7_0"),
        (ApiVersion("urn:vim25", "8.0.0.1"), "vim.version.v8_0_0_1"),
    ],
)
def test_action_equals_that_of_pyvmomi(api: ApiVersion, version: str) -> None:
    assert api.action == SoapAdapter.SoapStubAdapterBase(version).versionId
