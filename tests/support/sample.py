"""How much a test runs: `make test` a sample, `make test-long` all of it."""

from __future__ import annotations

import os

_IS_COMPLETE = bool(os.environ.get("LONG_TESTS"))


def sample_size(sample: int, *, complete: int) -> int:
    return complete if _IS_COMPLETE else sample
