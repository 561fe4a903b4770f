"""`kubewright build-installer`: everything that is deployed, in one file rendered by kustomize."""

from __future__ import annotations

import shutil
from pathlib import Path

from ...errors import ConfigError
from ...yaml_text import parse_documents, to_yaml
from ..program import run_program
from ..project import Project

# A kustomization may refer to remote bases, which kustomize downloads.
_KUSTOMIZE_TIMEOUT_SECONDS = 120
_TESTENV_KUBECTL = Path(".testenv/bin/kubectl")


def render_installer(
    project: Project, image: str = "", overlay: str = "config/default", kubectl: str = ""
) -> str:
    """The text of dist/install.yaml, with this image if one is given."""
    text = _run_kustomize(project.root, project.root / overlay, kubectl)
    return _replace_image(text, project.config.image, image) if image else text


def _run_kustomize(root: Path, folder: Path, kubectl: str = "") -> str:
    if not (folder / "kustomization.yaml").is_file():
        raise ConfigError(
            f"{folder} has no kustomization.yaml; run `make manifests`, "
            "or name another folder with --overlay"
        )
    command = [_find_kubectl(root, kubectl), "kustomize", str(folder)]
    process = run_program(
        command,
        _KUSTOMIZE_TIMEOUT_SECONDS,
        advice="It may be waiting for a server that a kustomization refers to. "
        "Run it by hand to find out, or name another kubectl with --kubectl",
    )
    if process.returncode:
        raise ConfigError(f"kustomize cannot render {folder}: {process.stderr.strip()}")
    return process.stdout


def _find_kubectl(root: Path, kubectl: str) -> str:
    testenv = root / _TESTENV_KUBECTL
    path = kubectl or (str(testenv) if testenv.exists() else shutil.which("kubectl"))
    if not path or not shutil.which(path):
        raise ConfigError(
            "kubectl is required to run kustomize: run `make testenv`, or name one with --kubectl"
        )
    return path


def _replace_image(text: str, old: str, new: str) -> str:
    """The documents with the new image in every container of a Deployment that has the old one."""
    documents = [document for document in parse_documents(text, "the installer") if document]
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
