"""A pytest plugin that deselects the tests that start an API server: `-p` in make test-python.

`-k "not real"` alone is not enough: tests of examples and of generated projects use the fixtures
under other names.
"""

from __future__ import annotations

import pytest

# Every control plane comes from one of these. `control_plane` requests its binaries at run time, so
# they are not among the names of its fixtures.
_FIXTURES = frozenset(
    {"binaries", "binaries_with_controllers", "control_plane", "control_plane_with_controllers"}
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, deselected = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        needs_server = _FIXTURES.intersection(getattr(item, "fixturenames", ()))
        (deselected if needs_server else kept).append(item)
    config.hook.pytest_deselected(items=deselected)
    items[:] = kept
