"""Write what is made from the code, or say what of it is stale."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import ROOT, conditions, errors, flags, makefile, metrics, picture, settings


def generate_files() -> dict[str, str]:
    """Every file that is made here, by its path in the repository."""
    return {
        "docs/reference/flags.md": flags.render(),
        "docs/reference/settings.md": settings.render(),
        "docs/reference/metrics.md": metrics.render(),
        "docs/reference/conditions.md": conditions.render(),
        "docs/reference/errors.md": errors.render(),
        "docs/reference/make.md": makefile.render(),
        **{f"docs/pictures/{name}.svg": svg for name, svg in picture.render().items()},
    }


def find_stale_files() -> dict[str, str]:
    """The files that are not what they would be now, with what they should be."""
    return {
        path: text
        for path, text in generate_files().items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text() != text
    }


def main(argv: Sequence[str]) -> int:
    """Write, or with --check only look."""
    found = find_stale_files()
    if "--check" in argv:
        for path in found:
            print(f"{path} is stale; run `make docs` and commit the result", file=sys.stderr)
        return 1 if found else 0
    for path, text in found.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
