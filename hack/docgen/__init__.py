"""Pages and pictures of docs/ that are made from the code, and the folder from which the site is built.

    python -m hack.docgen            # writes docs/reference/*.md but api.md, and docs/pictures/*.svg
    python -m hack.docgen --check    # writes nothing; fails and names what is stale

Each module makes one page: `flags`, `settings`, `metrics`, `conditions`, `errors`, `makefile`. `said` reads what the code says
from its syntax trees, `drawing` and `picture` make the SVG, `markdown` finds headings and links, `site` prepares what mkdocs builds.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""
