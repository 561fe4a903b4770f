"""`kubewright build-installer`: everything that is deployed, in one file rendered by kustomize."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...yaml_text import parse_documents, to_yaml
from ..program import run_program
from ..project import Project

Object = dict[str, Any]

# A kustomization may refer to remote bases, which kustomize downloads.
_KUSTOMIZE_TIMEOUT_SECONDS = 120
_TESTENV_KUBECTL = Path(".testenv/bin/kubectl")
DEFAULT_OVERLAY = "config/default"
OVERLAY_ANNOTATION = "kubewright/overlay"
"""On the Deployment: the overlay that it was rendered from, unless that is the default."""


def render_installer(
    project: Project, image: str = "", overlay: str = DEFAULT_OVERLAY, kubectl: str = ""
) -> str:
    """The text of dist/install.yaml, with this image if one is given."""
    text = _run_kustomize(project.root, project.root / overlay, kubectl)
    if image:
        text = _replace_image(text, project.config.image, image)
    overlay = Path(overlay).as_posix()
    return text if overlay == DEFAULT_OVERLAY else _record_overlay(text, overlay)


def _run_kustomize(root: Path, folder: Path, kubectl: str = "") -> str:
    if not (folder / "kustomization.yaml").is_file():
        raise ConfigError(
            f"{folder} has no kustomization.yaml; run `make manifests`, "
            "or name another folder with --overlay"
        )
    command = [find_kubectl(root, kubectl), "kustomize", str(folder)]
    process = run_program(
        command,
        _KUSTOMIZE_TIMEOUT_SECONDS,
        advice="It may be waiting for a server that a kustomization refers to. "
        "Run it by hand to find out, or name another kubectl with --kubectl",
    )
    if process.returncode:
        raise ConfigError(f"kustomize cannot render {folder}: {process.stderr.strip()}")
    return process.stdout


def find_kubectl(root: Path, kubectl: str) -> str:
    testenv = root / _TESTENV_KUBECTL
    path = kubectl or (str(testenv) if testenv.exists() else shutil.which("kubectl"))
    if not path or not shutil.which(path):
        raise ConfigError(
            "kubectl is required to run kustomize: run `make testenv`, or name one with --kubectl"
        )
    return path


def _replace_image(text: str, old: str, new: str) -> str:
    """The documents with the new image in every container of a Deployment that has the old one."""
    documents = _read_documents(text)
    containers = [
        container
        for document in documents
        if document.get("kind") == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
        if container.get("image") == old
    ]
    if not containers:
        raise ConfigError(
            f"no container has the image {old}, so it cannot be replaced with {new}: "
            "check whether config/ sets another image"
        )
    for container in containers:
        container["image"] = new
    return to_yaml(*documents)


def _record_overlay(text: str, overlay: str) -> str:
    documents = _read_documents(text)
    for document in documents:
        if document.get("kind") == "Deployment":
            document["metadata"].setdefault("annotations", {})[OVERLAY_ANNOTATION] = overlay
    return to_yaml(*documents)


def find_deployment(text: str) -> Object:
    """The first Deployment of an installer: the manager."""
    for document in _read_documents(text):
        if document.get("kind") == "Deployment":
            return document
    raise ConfigError(
        f"the kustomization contains no Deployment: add {DEFAULT_OVERLAY} to its resources"
    )


def list_objects(text: str) -> list[tuple[str, str, str]]:
    """Kind, namespace and name of each object of an installer."""
    return [
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for item in _read_documents(text)
    ]


def split_installer(text: str) -> tuple[list[Object], list[Object], list[Object]]:
    """The CRDs of an installer, its namespaces, and its other objects."""
    documents = _read_documents(text)
    crds = [item for item in documents if item["kind"] == "CustomResourceDefinition"]
    namespaces = [item for item in documents if item["kind"] == "Namespace"]
    others = [item for item in documents if item not in crds and item not in namespaces]
    return crds, namespaces, others


def _read_documents(text: str) -> list[dict[str, Any]]:
    return [document for document in parse_documents(text, "the installer") if document]
