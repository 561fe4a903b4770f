"""CRDs of other operators for the tests of a project, in which these operators do not run."""

from __future__ import annotations

from typing import Any

from ...yaml_text import dump_yaml
from .crd_modules import GENERATED_MARKER
from .crd_source import Crd

TEST_CRD_FOLDER = "tests/crds"
_HEADER = f"""\
{GENERATED_MARKER} from the CRD {{name}}.
# The tests install it in their API server. Do not edit; import the CRD again.
"""
# The API server rejects a CRD of a group *.k8s.io without it.
_APPROVAL = "api-approved.kubernetes.io"


def render_test_crd(crd: Crd) -> str:
    """The CRD as a manifest, without what belongs to one cluster."""
    metadata: dict[str, Any] = {"name": crd.name}
    annotations = (crd.document.get("metadata") or {}).get("annotations") or {}
    if _APPROVAL in annotations:
        metadata["annotations"] = {_APPROVAL: annotations[_APPROVAL]}
    # Without conversion: in tests there is no webhook that converts.
    spec = {key: value for key, value in crd.document["spec"].items() if key != "conversion"}
    document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }
    return _HEADER.format(name=crd.name) + dump_yaml(document)
