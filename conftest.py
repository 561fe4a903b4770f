"""Settings of all tests in the repository."""

from __future__ import annotations

from hypothesis import settings

# A busy machine pauses a test for seconds. Times are measured in bench/.
settings.register_profile("default", settings.get_profile("default"), deadline=None)
settings.load_profile("default")
