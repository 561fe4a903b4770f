"""The folder that mkdocs builds the site from: every page at its place in the repository, so that links mean the same there and here.

    python -m hack.docgen.website dist/docs

Files that pages link to and that are no pages (a manifest, a module) are copied too. Of a fence's words only the language is kept:
the others are for our tests, and the site's Markdown does not know them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import ROOT
from .markdown import links

EXCLUDED_PREFIXES = ("tests/golden/", "packages/kubewright/src/")
STYLESHEET = Path("docs/assets/site.css")
FENCE_INFO_PATTERN = re.compile(r"^```(\w+) [^\n]*$", re.MULTILINE)


def list_pages() -> list[Path]:
    """Every Markdown page that people read, by its path in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        Path(each)
        for each in sorted(set(listed.stdout.splitlines()))
        if not each.startswith(EXCLUDED_PREFIXES) and (ROOT / each).is_file()
    ]


def linked_files(page: Path) -> set[Path]:
    """The files that a page links to, by their paths in the repository."""
    targets = {
        target.partition("#")[0]
        for _, target in links((ROOT / page).read_text())
        if "://" not in target
    }
    found = {(ROOT / page.parent / target).resolve() for target in targets if target}
    return {
        each.relative_to(ROOT) for each in found if each.is_file() and each.is_relative_to(ROOT)
    }


def copy_pages(folder: Path) -> int:
    """Make the folder anew; returns how many files it holds."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = list_pages()
    linked = {file for page in listed for file in linked_files(page)}
    for path in {*listed, *linked, STYLESHEET}:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            (folder / path).write_text(FENCE_INFO_PATTERN.sub(r"```\1", (ROOT / path).read_text()))
        else:
            shutil.copyfile(ROOT / path, folder / path)
    return sum(each.is_file() for each in folder.rglob("*"))


if __name__ == "__main__":
    print(f"{copy_pages(Path(sys.argv[1]))} files in {sys.argv[1]}")
