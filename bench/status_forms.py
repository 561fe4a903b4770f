"""The forms in which the status of a HostInfo can be sent, and the CRDs that validate it.

A form changes nothing that users read: after each write, `status` is the same in every form.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubewright.condition import Condition
from kubewright.crd import build_crds
from kubewright.nulls import drop_nulls
from kubewright.patch import Json, build_json_patch
from kubewright.status import build_merge_patch
from kubewright.transport import Request
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoStatus

_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_QUERY = "fieldManager=vsphere-operators"
_IGNORE = f"{_QUERY}&fieldValidation=Ignore"
_TIME = datetime(2026, 11, 18, 8, 30, tzinfo=UTC)


@dataclass(frozen=True)
class StatusWrite:
    """One write: the stored object without managedFields, and the status before and after."""

    path: str
    stored: Json
    old: Json
    new: Json


@dataclass(frozen=True)
class StatusForm:
    name: str
    build: Callable[[StatusWrite], Request]
    crd: str = "granular"
    watched: bool = True
    """Whether a watch receives the objects, as that of the manager does."""


def _send(
    method: str,
    write: StatusWrite,
    body: Any,
    content_type: str,
    query: str = _QUERY,
    accept: str = _JSON,
) -> Request:
    return Request(
        method,
        f"{write.path}/status",
        query=query,
        body=msgspec.json.encode(body),
        content_type=content_type,
        accept=accept,
        operation="write a status",
    )


def _merge_body(write: StatusWrite) -> Json:
    metadata = {"resourceVersion": write.stored["metadata"]["resourceVersion"]}
    return {"metadata": metadata, "status": build_merge_patch(write.old, write.new)}


def _merge_patch(write: StatusWrite) -> Request:
    return _send("PATCH", write, _merge_body(write), _MERGE_PATCH)


def _merge_patch_ignore(write: StatusWrite) -> Request:
    return _send("PATCH", write, _merge_body(write), _MERGE_PATCH, _IGNORE)


def _merge_patch_user_agent(write: StatusWrite) -> Request:
    return _send("PATCH", write, _merge_body(write), _MERGE_PATCH, "")


def _merge_patch_metadata(write: StatusWrite) -> Request:
    return _send("PATCH", write, _merge_body(write), _MERGE_PATCH, accept=_METADATA_ONLY)


def _json_patch(write: StatusWrite) -> Request:
    version = write.stored["metadata"]["resourceVersion"]
    # The status exists in every object: the CRD has a default for it.
    stored_status = write.old or {"observedGeneration": -1}
    operations = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        *build_json_patch(stored_status, write.new, "/status"),
    ]
    return _send("PATCH", write, operations, _JSON_PATCH)


def _apply(write: StatusWrite) -> Request:
    body = {
        "apiVersion": write.stored["apiVersion"],
        "kind": write.stored["kind"],
        "metadata": {"resourceVersion": write.stored["metadata"]["resourceVersion"]},
        "status": write.new,
    }
    return _send("PATCH", write, body, _APPLY, f"{_QUERY}&force=true")


def _replace(write: StatusWrite) -> Request:
    return _send("PUT", write, write.stored | {"status": write.new}, _JSON)


def _replace_ignore(write: StatusWrite) -> Request:
    return _send("PUT", write, write.stored | {"status": write.new}, _JSON, _IGNORE)


def _replace_status_alone(write: StatusWrite) -> Request:
    metadata = {name: write.stored["metadata"][name] for name in ("name", "resourceVersion")}
    body = {
        "apiVersion": write.stored["apiVersion"],
        "kind": write.stored["kind"],
        "metadata": metadata,
        "status": write.new,
    }
    return _send("PUT", write, body, _JSON, _IGNORE)


TODAY = StatusForm("merge patch", _merge_patch)
FORMS = (
    TODAY,
    StatusForm("merge patch, ignore", _merge_patch_ignore),
    StatusForm("merge patch, user agent", _merge_patch_user_agent),
    StatusForm("merge patch, metadata response", _merge_patch_metadata),
    StatusForm("merge patch, no watch", _merge_patch, watched=False),
    StatusForm("json patch", _json_patch),
    StatusForm("apply", _apply),
    StatusForm("replace", _replace),
    StatusForm("replace, ignore", _replace_ignore),
    StatusForm("replace, status alone", _replace_status_alone),
    StatusForm("atomic conditions", _merge_patch, "atomic conditions"),
    StatusForm("atomic status", _merge_patch, "atomic status"),
    StatusForm("atomic list of conditions", _merge_patch, "atomic list of conditions"),
    StatusForm("no limits", _merge_patch, "no limits"),
    StatusForm("no schema", _merge_patch, "no schema"),
    StatusForm("no columns", _merge_patch, "no columns"),
    StatusForm("merge patch, ignore, atomic conditions", _merge_patch_ignore, "atomic conditions"),
    StatusForm("replace, ignore, atomic conditions", _replace_ignore, "atomic conditions"),
    StatusForm("replace, ignore, atomic status", _replace_ignore, "atomic status"),
)


def _status_schema(crd: Json) -> Json:
    schema: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    return schema


def _with_atomic_conditions(crd: Json) -> None:
    conditions = _status_schema(crd)["properties"]["conditions"]
    conditions["items"]["x-kubernetes-map-type"] = "atomic"


def _with_atomic_status(crd: Json) -> None:
    _status_schema(crd)["x-kubernetes-map-type"] = "atomic"


def _with_atomic_list(crd: Json) -> None:
    conditions = _status_schema(crd)["properties"]["conditions"]
    conditions["x-kubernetes-list-type"] = "atomic"
    del conditions["x-kubernetes-list-map-keys"]


def _without_limits(crd: Json) -> None:
    _drop_keywords(_status_schema(crd))


def _drop_keywords(schema: Any) -> None:
    if isinstance(schema, dict):
        for keyword in ("maxLength", "minimum", "format", "enum", "required"):
            if not isinstance(schema.get(keyword), dict):
                schema.pop(keyword, None)
        schema.pop("x-kubernetes-list-type", None)
        schema.pop("x-kubernetes-list-map-keys", None)
        for child in schema.values():
            _drop_keywords(child)


def _without_schema(crd: Json) -> None:
    status = _status_schema(crd)
    del status["properties"]
    status["x-kubernetes-preserve-unknown-fields"] = True


def _without_columns(crd: Json) -> None:
    del crd["spec"]["versions"][0]["additionalPrinterColumns"]


def _with_granular_conditions(crd: Json) -> None:
    """As up to release 0.4: each field of a condition has an owner of its own."""
    conditions = _status_schema(crd)["properties"]["conditions"]
    conditions["items"].pop("x-kubernetes-map-type", None)


_CRD_CHANGES: dict[str, Callable[[Json], None]] = {
    "granular": lambda crd: None,
    "atomic conditions": _with_atomic_conditions,
    "atomic status": _with_atomic_status,
    "atomic list of conditions": _with_atomic_list,
    "no limits": _without_limits,
    "no schema": _without_schema,
    "no columns": _without_columns,
}


def build_crd(variant: str) -> Json:
    """The generated CRD of HostInfo with one change, in a group of its own."""
    [crd] = copy.deepcopy(build_crds([HostInfo]))
    _with_granular_conditions(crd)
    _CRD_CHANGES[variant](crd)
    group = group_of(variant)
    names: Json = crd["spec"]["names"]
    names.pop("shortNames", None)
    crd["spec"]["group"], crd["metadata"]["name"] = group, f"{names['plural']}.{group}"
    return crd


def group_of(variant: str) -> str:
    return f"{variant.replace(' ', '-')}.bench.kubewright.example"


def build_object(variant: str, number: int) -> Json:
    return {
        "apiVersion": f"{group_of(variant)}/v1",
        "kind": "HostInfo",
        "metadata": {"name": f"host-{number:05}"},
        "spec": {"hostname": f"esxi-{number:05}.example.com"},
    }


def build_status(number: int, moves: int) -> Json:
    """The status of a HostInfo as the controller writes it, after its usage moved that often."""
    status = HostInfoStatus(
        totalCPU=2 * 28 * 2400,
        freeCPU=100_000 - number - 1000 * moves,
        totalMemoryMB=786_432,
        freeMemoryMB=500_000 - number - 1000 * moves,
        vendor="Dell Inc.",
        model="PowerEdge R750",
        esxiVersion="8.0.3",
        esxiBuild="24022510",
        connectionState="connected",
        maintenanceMode=False,
        bootTime=_TIME,
        vms=number % 40,
        cluster=f"cluster-{number % 32}",
        datacenter="datacenter-1",
        inventoryPath=f"/datacenter-1/host/cluster-{number % 32}/esxi-{number:05}.example.com",
        vcenter="vcenter-1",
        conditions=[
            Condition(
                type="Ready",
                status="True",
                reason="Reconciled",
                lastTransitionTime=_TIME,
                observedGeneration=1,
            )
        ],
        observedGeneration=1,
    )
    encoded: Json = drop_nulls(msgspec.to_builtins(status))
    return encoded
