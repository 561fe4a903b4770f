"""The how-tos in the order of their index."""

from __future__ import annotations

from pathlib import Path

from hack.docgen import ROOT
from hack.docgen.markdown import links

_INDEX = Path("docs/README.md")


def list_howtos() -> list[Path]:
    section = (ROOT / _INDEX).read_text().partition("## How-tos\n")[2].partition("\n## ")[0]
    pages = [_INDEX.parent / target for _, target in links(section)]
    return [page for page in pages if page.parent.name == "howto"]
