"""The CRDs that people have: those of a commit, or the files on disk where there is no git."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError
from ..changeset import read_text

CRD_FOLDER = "config/crd/bases"
_GIT_TIMEOUT_SECONDS = 60


def read_committed_crds(root: Path, commit: str) -> list[dict[str, Any]] | None:
    """The CRDs in that commit; None for HEAD where the project is in no repository, or nothing is committed yet."""
    if _run_git(root, "rev-parse", "--verify", f"{commit}^{{commit}}") is None:
        if commit == "HEAD":
            return None
        raise ConfigError(
            f'"{commit}" is no commit that git finds in {root}; fetch it, or name another with --against'
        )
    names = (
        _run_git(root, "ls-tree", "--name-only", "-z", commit, f"./{CRD_FOLDER}/") or ""
    ).split("\0")
    texts = {
        name: _run_git(root, "show", f"{commit}:./{name}") or ""
        for name in names
        if name.endswith(".yaml")
    }
    return parse_crds({f"{name} of {commit}": text for name, text in texts.items()})


def read_crds_on_disk(root: Path) -> list[dict[str, Any]]:
    """The CRDs as they are in the folder."""
    return parse_crds(
        {str(path): read_text(path) for path in sorted((root / CRD_FOLDER).glob("*.yaml"))}
    )


def parse_crds(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """The CRDs in these files."""
    documents = [
        document for path, text in texts.items() for document in parse_documents(text, path)
    ]
    return [
        each
        for each in documents
        if isinstance(each, dict) and each.get("kind") == "CustomResourceDefinition"
    ]


def parse_documents(text: str, path: str) -> list[Any]:
    """The documents of a file of YAML."""
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}. Mend it first") from None


def _run_git(root: Path, *arguments: str) -> str | None:
    """What git prints, None where it fails or is not installed."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT_SECONDS,
        )
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"`{' '.join(command)}` had not ended after {_GIT_TIMEOUT_SECONDS} s, and was stopped. It may wait for an answer, or for a "
            "server, as in a clone that has not all commits. Run it by hand to see, then run this again"
        ) from None
    return done.stdout if done.returncode == 0 else None
