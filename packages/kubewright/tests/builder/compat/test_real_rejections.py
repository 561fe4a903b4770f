"""Changes that the real API server rejects, as the messages of our check claim."""

from __future__ import annotations

import copy
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.compat import rules
from kubewright.builder.compat.crd_diff import compare_crds
from kubewright.testing.controlplane import ControlPlane, KubectlFailed

Json = dict[str, Any]


def build_crd(group: str) -> Json:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"lamps.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": "Lamp",
                "listKind": "LampList",
                "plural": "lamps",
                "singular": "lamp",
            },
            "versions": [version],
        },
    }


def change_scope(crd: Json) -> None:
    crd["spec"]["scope"] = "Cluster"


def rename_kind(crd: Json) -> None:
    crd["spec"]["names"]["kind"] = "Light"


def replace_stored_version(crd: Json) -> None:
    crd["spec"]["versions"][0]["name"] = "v2"


@pytest.mark.parametrize(
    ("edit", "rule", "field"),
    [
        (change_scope, rules.IMMUTABLE, "spec.scope"),
        (rename_kind, rules.IMMUTABLE, "spec.names.kind"),
        (replace_stored_version, rules.STORED_VERSION_REMOVED, "status.storedVersions"),
    ],
)
def test_api_server_rejects_the_change(
    control_plane: ControlPlane, tmp_path: Path, edit: Any, rule: rules.Rule, field: str
) -> None:
    old = build_crd(f"g{uuid.uuid4().hex[:8]}.example.com")
    new = copy.deepcopy(old)
    edit(new)
    assert rule in [item.change.rule for item in compare_crds([old], [new])]
    files = [tmp_path / "old.yaml", tmp_path / "new.yaml"]
    for file, crd in zip(files, (old, new), strict=True):
        file.write_text(yaml.safe_dump(crd))
    name = f"crd/{old['metadata']['name']}"
    control_plane.apply(files[0])
    control_plane.wait_for_crds(old["metadata"]["name"])
    try:
        with pytest.raises(KubectlFailed, match=re.escape(field)):
            control_plane.kubectl("apply", "-f", str(files[1]))
    finally:
        control_plane.kubectl("delete", name)
