"""The CRDs that users have: those of a commit, or the files on disk outside a git repository."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...yaml_text import parse_documents
from ..changeset import read_text
from ..git import run_git

CRD_FOLDER = "config/crd/bases"


def read_committed_crds(root: Path, commit: str) -> list[dict[str, Any]] | None:
    """The CRDs in that commit; None for HEAD if there is no repository or no commit yet."""
    if run_git(root, "rev-parse", "--verify", f"{commit}^{{commit}}") is None:
        if commit == "HEAD":
            return None
        raise ConfigError(
            f'"{commit}" is not a commit in {root}; fetch it, or name another with --against'
        )
    listing = run_git(root, "ls-tree", "--name-only", "-z", commit, f"./{CRD_FOLDER}/") or ""
    return parse_crds(
        {
            f"{path} of {commit}": run_git(root, "show", f"{commit}:./{path}") or ""
            for path in listing.split("\0")
            if path.endswith(".yaml")
        }
    )


def read_crds_on_disk(root: Path) -> list[dict[str, Any]]:
    paths = sorted((root / CRD_FOLDER).glob("*.yaml"))
    return parse_crds({str(path): read_text(path) for path in paths})


def parse_crds(files: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        document
        for path, text in files.items()
        for document in parse_documents(text, path)
        if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition"
    ]
