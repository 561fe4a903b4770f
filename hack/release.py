"""Checks that a tag can be released, and prints its section of the changelog.

python -m hack.release v0.2.0
python -m hack.release --last-commit
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_HEADING = re.compile(
    r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE
)


@dataclass(frozen=True)
class LastRelease:
    """The table last-release of pyproject.toml."""

    version: str
    commit: str

    def is_cut_off(self) -> bool:
        """Whether this is a shallow clone without the commit."""
        if _run_git("cat-file", "-e", self.commit).returncode == 0:
            return False
        return _run_git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"

    def extract(self, folder: Path) -> Path:
        """Write the files of the release into the folder. Raises SystemExit without the commit."""
        archive = _run_git("archive", "--format=tar", self.commit)
        if archive.returncode:
            raise SystemExit(
                f"The files of the release {self.version} cannot be read: "
                f"{archive.stderr.decode().strip()}. They are in the commit {self.commit}, which a "
                "shallow clone may not have. Fetch it with: git fetch --unshallow"
            )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        return folder


def _run_git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True)


def _read_pyproject() -> dict[str, Any]:
    return tomllib.loads((_ROOT / "pyproject.toml").read_text())


def read_last_release() -> LastRelease:
    return LastRelease(**_read_pyproject()["tool"]["last-release"])


def check_last_release(version: str, last_version: str, changelog: str) -> None:
    """Raise SystemExit if upgrades to this version were tested from another than the last one."""
    versions = [heading["version"] for heading in _HEADING.finditer(changelog)]
    following = versions[versions.index(version) + 1 :]
    if following and following[0] != last_version:
        raise SystemExit(
            f"CHANGELOG.md has {following[0]} before {version}, but pyproject.toml has the last "
            f"release {last_version}. Set version and commit of [tool.last-release] to "
            f"{following[0]}, and run tests/real/test_upgrade.py."
        )


def read_notes(tag: str, version: str, changelog: str) -> str:
    """The text below the heading of the version. Raises SystemExit if the tag does not fit."""
    if tag != f"v{version}":
        raise SystemExit(
            f"The tag is {tag}, but pyproject.toml has the version {version}. "
            f"Change the version, or push the tag v{version}."
        )
    headings = list(_HEADING.finditer(changelog))
    ends = [heading.start() for heading in headings[1:]] + [len(changelog)]
    for heading, end in zip(headings, ends, strict=True):
        if heading["version"] != version:
            continue
        notes = changelog[heading.end() : end].strip()
        if heading["date"] and notes:
            return notes
        raise SystemExit(
            f"CHANGELOG.md has no date or no text for {version}. "
            f"The heading of a release is: ## [{version}] - YYYY-MM-DD"
        )
    raise SystemExit(
        f"CHANGELOG.md has no section for {version}. "
        "Rename the section Unreleased, and begin a new one above it."
    )


def main() -> None:
    argument = sys.argv[1] if len(sys.argv) > 1 else ""
    last_release = read_last_release()
    if argument == "--last-commit":
        is_cut_off = last_release.is_cut_off()
        if is_cut_off:
            print(
                f"This shallow clone has no commit {last_release.commit}, so HEAD is printed. "
                "Fetch it with: git fetch --unshallow",
                file=sys.stderr,
            )
        print("HEAD" if is_cut_off else last_release.commit)
        return
    version = _read_pyproject()["project"]["version"]
    if version == last_release.version:
        raise SystemExit(
            f"{version} is released: it is the last release in pyproject.toml. "
            "Set the version of the next one."
        )
    changelog = (_ROOT / "CHANGELOG.md").read_text()
    notes = read_notes(argument, version, changelog)
    check_last_release(version, last_release.version, changelog)
    print(notes)


if __name__ == "__main__":
    main()
