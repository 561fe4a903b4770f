"""A pytest plugin that leaves out tests by what they start: `-p hack.pytest_selection`.

    --without=api-server   tests that start an API server (make test-python)
    --without=real-parts   also those with a simulated vCenter, helm, Prometheus or Chromium
                           (make test-unit, which needs no binaries)

`-k "not real"` alone is not enough: tests of examples and of generated projects use the fixtures
under other names.
"""

from __future__ import annotations

import pytest

# Every control plane comes from one of these. `control_plane` requests its binaries at run time, so
# they are not among the names of its fixtures.
_API_SERVER = frozenset(
    {"binaries", "binaries_with_controllers", "control_plane", "control_plane_with_controllers"}
)
_REAL_PARTS = _API_SERVER | {
    "module_simulator",
    "start_simulator",
    "helm",
}
_FIXTURES = {"api-server": _API_SERVER, "real-parts": _REAL_PARTS}


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "leave out the tests that start such parts"
    parser.addoption("--without", choices=sorted(_FIXTURES), help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fixtures = _FIXTURES.get(config.getoption("--without"), frozenset())
    kept, deselected = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        needs_part = fixtures.intersection(getattr(item, "fixturenames", ()))
        (deselected if needs_part else kept).append(item)
    config.hook.pytest_deselected(items=deselected)
    items[:] = kept
