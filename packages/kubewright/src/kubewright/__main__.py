"""`python -m kubewright` runs the `kubewright` command."""

from __future__ import annotations

from .builder.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
