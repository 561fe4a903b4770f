"""The CRDs that users have: those of a commit, of a file, or, outside a git repository, on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...yaml_text import parse_documents
from ..changeset import read_text
from ..git import run_git

CRD_FOLDER = "config/crd/bases"
_FILE_SUFFIXES = (".yaml", ".yml", ".json")


def read_baseline(
    root: Path, against: str, new: Sequence[Mapping[str, Any]], *, fall_back_to_disk: bool
) -> tuple[list[dict[str, Any]], str]:
    """The CRDs to compare `new` with, and what they are called in messages.

    `against` is a commit or a file. The file may come from a cluster and list CRDs of other
    operators, which are ignored: only the groups of the project are compared.
    """
    if against.endswith(_FILE_SUFFIXES):
        groups = {crd["spec"]["group"] for crd in new}
        crds = parse_crds({against: read_text(root / against)})
        return [crd for crd in crds if crd["spec"]["group"] in groups], against
    committed = _read_committed_crds(root, against)
    if committed is not None:
        return committed, against
    # Without --check the files on disk are about to be overwritten: the user has seen them.
    return _read_crds_on_disk(root) if fall_back_to_disk else [], "the files on disk"


def _read_committed_crds(root: Path, commit: str) -> list[dict[str, Any]] | None:
    """The CRDs in that commit; None for HEAD if there is no repository or no commit yet."""
    if run_git(root, "rev-parse", "--verify", f"{commit}^{{commit}}") is None:
        if commit == "HEAD":
            return None
        raise ConfigError(
            f'"{commit}" is not a commit in {root}; fetch it, or name another with --against. '
            "A file must end in .yaml, .yml or .json"
        )
    listing = run_git(root, "ls-tree", "--name-only", "-z", commit, f"./{CRD_FOLDER}/") or ""
    return parse_crds(
        {
            f"{path} of {commit}": run_git(root, "show", f"{commit}:./{path}") or ""
            for path in listing.split("\0")
            if path.endswith(".yaml")
        }
    )


def _read_crds_on_disk(root: Path) -> list[dict[str, Any]]:
    paths = sorted((root / CRD_FOLDER).glob("*.yaml"))
    return parse_crds({str(path): read_text(path) for path in paths})


def parse_crds(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The CRDs in the documents, and in lists such as those that `kubectl get -o yaml` prints."""
    documents = [
        document
        for path, text in files.items()
        for document in parse_documents(text, path)
        if isinstance(document, dict)
    ]
    documents += [item for document in documents for item in document.get("items") or ()]
    return [
        document for document in documents if document.get("kind") == "CustomResourceDefinition"
    ]
