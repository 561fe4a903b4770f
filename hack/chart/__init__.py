"""What the Helm chart of vsphere-operators has in addition to that of every operator.

The schemas of vCenters and limits are those of the files that the manager reads. The templates are
in this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kubewright.builder.chart.model import (
    STRING,
    STRINGS,
    ChartExtension,
    Check,
    EgressRule,
    Json,
    Value,
)
from vsphere_operators.kinds.vmgroup.limits import LimitsEntry
from vsphere_operators.vcenters.config import VCenterEntry

_FOLDER = Path(__file__).parent


def _build_schema(entry: type[msgspec.Struct]) -> Json:
    """The JSON Schema of a type, with the types that it refers to inlined."""
    (reference,), definitions = msgspec.json.schema_components([entry])

    def inline(value: Any) -> Any:
        if isinstance(value, list):
            return [inline(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            others = {key: item for key, item in value.items() if key != "$ref"}
            return inline(definitions[value["$ref"].rpartition("/")[2]]) | others
        # The class name is of no use to a user of the chart.
        return {key: inline(item) for key, item in value.items() if key != "title"}

    schema: Json = inline(reference)
    return schema


def _build_vcenter_schema() -> Json:
    schema = _build_schema(VCenterEntry)
    properties: Json = schema["properties"]
    # The chart mounts the credentials and the CA, and sets the paths.
    del properties["credentials"]
    properties["name"] |= {"pattern": "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"}
    properties["ca"] = STRING | {"description": "CA bundle to verify its certificate, PEM."}
    secret = "Secret with the credentials; docs/reference/settings.md lists its keys."
    properties["existingSecret"] = STRING | {"description": secret}
    properties["username"] = STRING | {"description": "User, instead of existingSecret."}
    properties["password"] = STRING | {"description": "Password, instead of existingSecret."}
    return schema | {"required": ["name", "server"]}


_VCENTER_EXAMPLE = {
    "name": "west",
    "server": "vc-west.example.com",
    "existingSecret": "vc-west",
    "ca": "-----BEGIN CERTIFICATE-----\n...\n-----END CERTIFICATE-----\n",
    "insecure": True,
    "defaults": {
        "datacenter": "DC0",
        "cluster": "C0",
        "resourcePool": "operators",
        "folder": "operators",
        "datastore": "fast",
    },
    "namespaces": {"names": ["west", "team-a-*"], "labels": {"vcenter": "west"}},
}
_LIMITS_EXAMPLE = {
    "namespaces": ["team-a", "team-a-*"],
    "templateFolders": ["/DC0/vm/vm-operator/team-a"],
    "places": {"cluster": ["C0"]},
    "quota": {"vms": 20, "cpus": 40, "memoryGB": 64},
}
_ACCOUNT = {
    "vcenter.server": "vc.example.com",
    "vcenter.username": "operators@vsphere.local",
    "vcenter.password": "changeme",
}


def _build_account_value(key: str, description: str, example: str) -> Value:
    context = {path: value for path, value in _ACCOUNT.items() if path != f"vcenter.{key}"}
    return Value(f"vcenter.{key}", "", description, STRING, example, context)


_VALUES = (
    _build_account_value(
        "server",
        "Address of the vCenter for all namespaces. If set, the chart creates the Secret that "
        "secrets.vc-creds names; otherwise create it yourself.",
        "vc2.example.com",
    ),
    _build_account_value("username", "User of this vCenter.", "ops@vsphere.local"),
    _build_account_value(
        "password",
        "Password of this vCenter. Helm stores it in the Secret of the release.",
        "changed",
    ),
    Value(
        "vcenters",
        [],
        "vCenters and the namespaces that they serve, as in docs/howto/several-vcenters.md, each "
        "with existingSecret, or with username and password.",
        {"type": "array", "items": _build_vcenter_schema()},
        [_VCENTER_EXAMPLE],
    ),
    Value(
        "vmGroups.limits",
        [],
        "Templates, placements and quotas for each namespace, as in docs/howto/vmgroup.md.",
        {"type": "array", "items": _build_schema(LimitsEntry)},
        [_LIMITS_EXAMPLE],
    ),
    Value(
        "vmGroups.existingLimitsSecret",
        "",
        "Secret with the limits in the key limits.yaml, instead of vmGroups.limits.",
        STRING,
        "limits",
    ),
    Value(
        "vmGroups.allowedTemplates",
        [],
        "Inventory paths of templates or their folders. If set, VmGroups can use only these.",
        STRINGS,
        ["/DC0/vm/templates"],
    ),
)
_CHECKS = (
    Check(
        "and (or .Values.vcenter.server .Values.vcenter.username .Values.vcenter.password) "
        "(not (and .Values.vcenter.server .Values.vcenter.username .Values.vcenter.password))",
        "only some of vcenter.server, vcenter.username and vcenter.password are set. Set all "
        "three, or none of them and create the Secret yourself",
    ),
    Check(
        "and .Values.vmGroups.limits .Values.vmGroups.existingLimitsSecret",
        "vmGroups.limits and vmGroups.existingLimitsSecret are both set. Unset one of them",
    ),
)

CHART = ChartExtension(
    values=_VALUES,
    checks=_CHECKS,
    egress=(EgressRule("vcenters", (443,), "vCenters"),),
    args=(_FOLDER / "args.tpl").read_text(),
    volumes=(_FOLDER / "volumes.tpl").read_text(),
    volume_mounts=(_FOLDER / "volume-mounts.tpl").read_text(),
    templates={path.stem: path.read_text() for path in sorted(_FOLDER.glob("templates/*.yaml"))},
    notes=(_FOLDER / "notes.txt").read_text(),
    removal_notes=(_FOLDER / "removal-notes.txt").read_text(),
    preparation=(_FOLDER / "preparation.sh").read_text(),
    annotations={
        "artifacthub.io/category": "integration-delivery",
        "artifacthub.io/operatorCapabilities": "Auto Pilot",
    },
)
