"""Checks that a tag can be released, and prints its section of the changelog.

python -m hack.release v0.2.0
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_HEADING = re.compile(
    r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE
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
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
    tag = sys.argv[1] if len(sys.argv) > 1 else ""
    print(read_notes(tag, version, (_ROOT / "CHANGELOG.md").read_text()))


if __name__ == "__main__":
    main()
