"""Writes the folder from which mkdocs builds the site.

    python -m hack.docgen.website dist/docs

Every page keeps its path in the repository, so that links work on GitHub and on the site. Other
files that pages link to (a manifest, a module) are copied too. Of the info string of a fenced
block only the language is kept: the other arguments are for tests. Each cell of a table gets the
heading of its column, which docs/assets/site.css shows on a phone. Tables in HTML, which wide ones
are, get the attribute that lets mkdocs read Markdown in their cells, as GitHub does without it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import ROOT
from .markdown import links

_EXCLUDED_PREFIXES = ("tests/golden/", "packages/kubewright/src/")
_STYLESHEET = Path("docs/assets/site.css")
_CELL_SEPARATOR_PATTERN = re.compile(r"(?<!\\)\|")
_LEADING_COMMENT_PATTERN = re.compile(r"\A<!--.*?-->\s*", re.DOTALL)
_FENCE_INFO_PATTERN = re.compile(r"^```(\w+) [^\n]*$", re.MULTILINE)
_TABLE_TAGS_PATTERN = re.compile(r"^(?:</?t[a-z]+>)+$", re.MULTILINE)


def list_pages() -> list[Path]:
    """Every Markdown page of the site, by its path in the repository."""
    output = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        Path(path)
        for path in sorted(set(output.stdout.splitlines()))
        if not path.startswith(_EXCLUDED_PREFIXES) and (ROOT / path).is_file()
    ]


def _linked_files(page: Path) -> set[Path]:
    targets = {
        target.partition("#")[0]
        for _, target in links((ROOT / page).read_text())
        if "://" not in target
    }
    paths = {(ROOT / page.parent / target).resolve() for target in targets if target}
    return {
        path.relative_to(ROOT) for path in paths if path.is_file() and path.is_relative_to(ROOT)
    }


def _convert_page(text: str) -> str:
    text = _FENCE_INFO_PATTERN.sub(r"```\1", text)
    # mkdocs takes the title from the heading only if the page begins with it.
    text = label_cells(_LEADING_COMMENT_PATTERN.sub("", text))
    return _TABLE_TAGS_PATTERN.sub(
        lambda match: re.sub(r"<(t[a-z]+)>", r'<\1 markdown="block">', match[0]), text
    )


def label_cells(page: str) -> str:
    """Adds `data-column` to the cells of tables, in the syntax of the extension attr_list."""
    lines: list[str] = []
    headings: list[str] = []
    in_fence = False
    for line in page.splitlines():
        in_fence ^= line.startswith("```")
        if in_fence or not line.startswith("|"):
            headings = []
            lines.append(line)
            continue
        cells = [cell.strip() for cell in _CELL_SEPARATOR_PATTERN.split(line.strip())[1:-1]]
        if not headings:
            headings = cells
        elif not all(set(cell) <= set(":-") for cell in cells):
            # The first cell is the title of its row. An empty cell is not shown on a phone.
            cells[1:] = [
                f'{cell} {{: data-column="{heading}" }}' if heading and cell else cell
                for heading, cell in zip(headings[1:], cells[1:], strict=True)
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def copy_pages(folder: Path) -> int:
    """Writes the folder again; returns the number of files in it."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = list_pages()
    linked = {file for page in pages for file in _linked_files(page)}
    for path in {*pages, *linked, _STYLESHEET}:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            (folder / path).write_text(_convert_page((ROOT / path).read_text()))
        else:
            shutil.copyfile(ROOT / path, folder / path)
    return sum(path.is_file() for path in folder.rglob("*"))


if __name__ == "__main__":
    print(f"{copy_pages(Path(sys.argv[1]))} files in {sys.argv[1]}")
