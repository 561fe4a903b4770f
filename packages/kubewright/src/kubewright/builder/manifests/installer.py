"""`kubewright build-installer`: everything that is deployed, in one file rendered by kustomize."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...yaml_text import parse_documents
from ..program import run_program
from ..project import Project
from .deployment import build_metadata, manager_labels

Object = dict[str, Any]

# A kustomization may refer to remote bases, which kustomize downloads.
_KUSTOMIZE_TIMEOUT_SECONDS = 120
_TESTENV_KUBECTL = Path(".testenv/bin/kubectl")
DEFAULT_OVERLAY = "config/default"
_KUSTOMIZATION_NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")


def render_installer(
    project: Project, image: str = "", overlay: str = DEFAULT_OVERLAY, kubectl: str = ""
) -> list[Object]:
    """The objects of dist/install.yaml, with this image if one is given."""
    text = _run_kustomize(project.root, project.root / overlay, kubectl)
    documents = [document for document in parse_documents(text, "the installer") if document]
    if image:
        replace_image(documents, project.config.image, image)
    return documents


def is_kustomization(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _KUSTOMIZATION_NAMES)


def _run_kustomize(root: Path, folder: Path, kubectl: str = "") -> str:
    if not is_kustomization(folder):
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


def replace_image(documents: list[Object], old: str, new: str) -> None:
    """Set the new image in every container of a Deployment that has the old one."""
    containers = list_containers(documents, old)
    if not containers:
        raise ConfigError(
            f"no container has the image {old}, so it cannot be replaced with {new}: "
            "check whether config/ sets another image"
        )
    for container in containers:
        container["image"] = new


def list_containers(documents: list[Object], image: str) -> list[Object]:
    """The containers of Deployments with this image."""
    return [
        container
        for document in documents
        if document.get("kind") == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
        if container.get("image") == image
    ]


def manager_name(project: Project) -> str:
    """The name of the Deployment in config/manager."""
    return str(build_metadata(project, "controller-manager")["name"])


def _is_manager(project: Project, item: Object) -> bool:
    """Whether this is the project's Deployment: an overlay may change its name or its labels."""
    metadata = item["metadata"]
    return item.get("kind") == "Deployment" and (
        metadata["name"] == manager_name(project)
        or manager_labels(project).items() <= (metadata.get("labels") or {}).items()
    )


def find_manager(project: Project, documents: list[Object]) -> Object:
    """The manager's Deployment in an installer."""
    managers = [item for item in documents if _is_manager(project, item)]
    if len(managers) == 1:
        return managers[0]
    labels = ", ".join(f"{key}={value}" for key, value in manager_labels(project).items())
    description = f"with the name {manager_name(project)} or the labels {labels}"
    if not managers:
        raise ConfigError(
            f"the kustomization contains no Deployment {description}: add {DEFAULT_OVERLAY} to its "
            "resources"
        )
    names = ", ".join(item["metadata"]["name"] for item in managers)
    raise ConfigError(
        f"the kustomization contains several Deployments {description}: {names}. Give only the "
        "manager this name or these labels"
    )


def split_installer(documents: list[Object]) -> tuple[list[Object], list[Object], list[Object]]:
    """The CRDs of an installer, its namespaces, and its other objects."""
    crds = [item for item in documents if item["kind"] == "CustomResourceDefinition"]
    namespaces = [item for item in documents if item["kind"] == "Namespace"]
    others = [item for item in documents if item not in crds and item not in namespaces]
    return crds, namespaces, others
