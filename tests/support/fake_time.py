"""A fake clock for tests that have everything in memory."""

from __future__ import annotations

import pytest

# By default, looptime polls 42 times for I/O before each step of the clock, which takes most of the
# time of a test that waits for minutes. In memory there is no I/O to wait for.
fake_time_without_io = pytest.mark.looptime(noop_cycles=1)
