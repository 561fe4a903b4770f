"""What the builder asks git: the CRDs of a commit, and which files of the user have changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .program import run_program

# Local commands take milliseconds; a partial clone may fetch missing objects from its server.
_GIT_TIMEOUT_SECONDS = 60


def run_git(root: Path, *arguments: str) -> str | None:
    """What git prints; None if it fails or is not installed."""
    try:
        process = run_program(
            ["git", "-C", str(root), *arguments],
            _GIT_TIMEOUT_SECONDS,
            advice="It may be waiting for input, or for the server of a partial clone. "
            "Run it by hand to find out",
        )
    except FileNotFoundError:
        return None
    return process.stdout if process.returncode == 0 else None


def find_uncommitted(root: Path, paths: Sequence[str]) -> list[str] | None:
    """Those of the paths that git could not restore; None outside a git repository."""
    # --untracked-files=all: without it git reports an untracked folder, not the files in it.
    # Paths in the output start at the top of the repository, so `root` may be below it.
    options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all")
    top = run_git(root, "rev-parse", "--show-prefix")
    output = run_git(root, "status", *options, "--", *paths)
    if top is None or output is None:
        return None
    prefix = top.removesuffix("\n")
    return sorted(entry[3:].removeprefix(prefix) for entry in output.split("\0") if entry)


def read_first_version(root: Path, path: str) -> str | None:
    """The file as it was in the commit that added it; None if git does not have it."""
    commits = run_git(root, "log", "--diff-filter=A", "--format=%H", "-1", "--", path)
    return run_git(root, "show", f"{commits.strip()}:./{path}") if commits else None
