"""Generates pages of docs/reference from the code, and the folder from which the site is built.

    python -m hack.docgen            # writes docs/reference/*.md except api.md
    python -m hack.docgen --check    # writes nothing; fails and names stale files

`flags`, `settings`, `metrics`, `conditions`, `errors`, `permissions`, `privileges` and `makefile`
generate one page each; `page` has what they share. `reasons` and `source_messages` read reasons and
messages from the syntax trees of the code, `markdown` finds headings and links, and `website`
prepares the folder for mkdocs.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
