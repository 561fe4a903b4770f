"""How much a test runs: `make test` a sample, `make test-long` all of it."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

_IS_COMPLETE = bool(os.environ.get("LONG_TESTS"))


def sample_size(sample: int, *, complete: int) -> int:
    return complete if _IS_COMPLETE else sample


# Shrinking takes minutes. Add Phase.shrink to analyze a failure.
STATE_MACHINE_SETTINGS = settings(
    max_examples=sample_size(100, complete=250),
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
)
