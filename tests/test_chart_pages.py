"""Values of the chart in the pages about GitOps and TLS, rendered by the real helm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hack.docgen.markdown import fenced_blocks
from kubewright.yaml_text import parse_documents
from support.helm import Helm, Objects

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts/vsphere-operators"
NAMESPACE = "vsphere-operators-system"
DEPLOYMENT = ("Deployment", NAMESPACE, "vsphere-operators-controller-manager")
BUDGET = ("PodDisruptionBudget", NAMESPACE, "vsphere-operators-controller-manager")
Json = dict[str, Any]


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(tmp_path)


def read_objects(page: str) -> dict[str, Json]:
    """The objects in the YAML blocks of a page by their kind."""
    text = (ROOT / f"docs/howto/{page}.md").read_text()
    blocks = [block.text for block in fenced_blocks(text) if block.language == "yaml"]
    documents = (document for block in blocks for document in parse_documents(block, page))
    return {document["kind"]: document for document in documents if "kind" in document}


def check_release(objects: Objects, image: str) -> None:
    (container,) = objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    assert objects[DEPLOYMENT]["spec"]["replicas"] == 2
    assert BUDGET in objects


def test_values_of_the_helm_release_are_valid(helm: Helm) -> None:
    objects = read_objects("gitops")
    release, source = objects["HelmRelease"], objects["OCIRepository"]
    assert release["spec"]["chartRef"] == {
        "kind": source["kind"],
        "name": source["metadata"]["name"],
    }
    assert {release["metadata"]["namespace"], source["metadata"]["namespace"]} == {NAMESPACE}
    assert objects["Namespace"]["metadata"]["name"] == NAMESPACE
    version = source["spec"]["ref"]["tag"]
    assert f"\nversion: {version}\n" in (CHART / "Chart.yaml").read_text()
    rendered = helm.template(CHART, NAMESPACE, release["spec"]["values"])
    check_release(rendered, f"registry.example/vsphere-operators:{version}")
    assert not any(kind == "Namespace" for kind, _, _ in rendered)


def test_values_of_the_application_are_valid(helm: Helm) -> None:
    spec = read_objects("gitops")["Application"]["spec"]
    assert spec["destination"]["namespace"] == NAMESPACE
    source = spec["source"]
    version = source["targetRevision"]
    assert f"\nversion: {version}\n" in (CHART / "Chart.yaml").read_text()
    rendered = helm.template(CHART, NAMESPACE, source["helm"]["valuesObject"])
    check_release(rendered, f"registry.example/vsphere-operators:{version}")
    labels = rendered["Namespace", "", NAMESPACE]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_crds_are_kept_templates_as_the_page_states(helm: Helm) -> None:
    rendered = helm.template(CHART, NAMESPACE, {"image": {"repository": "operators"}})
    crds = [item for (kind, _, _), item in rendered.items() if kind == "CustomResourceDefinition"]
    assert len(crds) == 8
    for crd in crds:
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not (CHART / "crds").exists()


def test_ca_of_the_vcenter_is_a_flag_of_the_manager(helm: Helm) -> None:
    text = (ROOT / "docs/howto/tls.md").read_text()
    match = re.search(r"```yaml values-ca.yaml\n(.*?)```", text, re.DOTALL)
    assert match is not None
    (values,) = parse_documents(match[1], "tls.md")
    values["image"] = {"repository": "operators"}
    (container,) = helm.template(CHART, NAMESPACE, values)[DEPLOYMENT]["spec"]["template"]["spec"][
        "containers"
    ]
    assert "-vcenter-ca-file=/etc/vc-creds/ca.crt" in container["args"]
