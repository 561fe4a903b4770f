"""`kubewright build-installer`: all that is deployed, in one file, as kustomize renders config/default."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError
from ..project import Project

Document = dict[str, Any]
_KUSTOMIZE_TIMEOUT_SECONDS = 120
_TESTENV_KUBECTL = Path(".testenv/bin/kubectl")


def render_installer(
    project: Project, image: str = "", overlay: str = "config/default", kubectl: str = ""
) -> str:
    """The text of dist/install.yaml, with this image where one is named."""
    text = run_kustomize(project.root, project.root / overlay, kubectl)
    return replace_image(text, project.config.image, image) if image else text


def run_kustomize(root: Path, folder: Path, kubectl: str = "") -> str:
    """What `kubectl kustomize` makes of a folder."""
    if not (folder / "kustomization.yaml").is_file():
        raise ConfigError(
            f"{folder} has no kustomization.yaml; run `make manifests`, or name another folder with --overlay"
        )
    command = [_find_kubectl(root, kubectl), "kustomize", str(folder)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_KUSTOMIZE_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"`{' '.join(command)}` had not ended after {_KUSTOMIZE_TIMEOUT_SECONDS} s, and was stopped. It may wait for a server that a kustomization "
            "names. Run it by hand to see, or name another kubectl with --kubectl"
        ) from None
    if done.returncode:
        raise ConfigError(f"kustomize cannot render {folder}: {done.stderr.strip()}")
    return done.stdout


def _find_kubectl(root: Path, kubectl: str) -> str:
    """The kubectl to use: the named one, that of the test environment, the one on PATH."""
    near = str(root / _TESTENV_KUBECTL) if (root / _TESTENV_KUBECTL).exists() else None
    chosen = kubectl or near or shutil.which("kubectl")
    if not chosen or not shutil.which(chosen):
        raise ConfigError(
            "kubectl is needed, for its kustomize; `make testenv` brings one, or name one with --kubectl"
        )
    return chosen


def replace_image(text: str, old: str, new: str) -> str:
    """The documents with another image in every container that had the project's own."""
    documents = [document for document in yaml.safe_load_all(text) if document]
    ours = [
        each
        for document in documents
        for each in _find_containers(document)
        if each.get("image") == old
    ]
    if not ours:
        raise ConfigError(
            f"no container has the image {old}, so there is none to put {new} into: is another one set in config/?"
        )
    for container in ours:
        container["image"] = new
    return yaml.safe_dump_all(documents, sort_keys=False, width=160)


def _find_containers(document: Document) -> list[Document]:
    """The containers of a Deployment; other kinds have none."""
    if document.get("kind") != "Deployment":
        return []
    found: list[Document] = document["spec"]["template"]["spec"]["containers"]
    return found
