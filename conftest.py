"""Settings of all tests in the repository."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A busy machine pauses a test for seconds. Times are measured in bench/.
settings.register_profile("default", settings.get_profile("default"), deadline=None)
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with real parts first: some wait for minutes, and would run alone at the end."""
    items.sort(key=lambda item: not _has_real_parts(item.nodeid))


def _has_real_parts(node_id: str) -> bool:
    file = node_id.partition("::")[0]
    return "/real/" in file or "/test_real_" in file or file.startswith("examples/")
