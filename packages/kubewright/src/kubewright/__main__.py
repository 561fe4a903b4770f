"""`python -m kubewright` is the `kubewright` command."""

from __future__ import annotations

from .builder.main import main

if __name__ == "__main__":
    raise SystemExit(main())
