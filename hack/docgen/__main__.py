"""Writes the generated pages, or with --check names those that are stale."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import (
    ROOT,
    conditions,
    errors,
    flags,
    makefile,
    metrics,
    permissions,
    privileges,
    settings,
)


def _generate_files() -> dict[str, str]:
    """Every generated page, by its path in the repository."""
    return {
        "docs/reference/flags.md": flags.render(),
        "docs/reference/settings.md": settings.render(),
        "docs/reference/metrics.md": metrics.render(),
        "docs/reference/conditions.md": conditions.render(),
        "docs/reference/errors.md": errors.render(),
        "docs/reference/permissions.md": permissions.render(),
        "docs/reference/privileges.md": privileges.render(),
        "docs/reference/make.md": makefile.render(),
    }


def main(argv: Sequence[str]) -> int:
    stale = {
        path: text
        for path, text in _generate_files().items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text() != text
    }
    if "--check" in argv:
        for path in stale:
            print(f"{path} is stale; run `make docs` and commit the result", file=sys.stderr)
        return 1 if stale else 0
    for path, text in stale.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
