"""A pytest plugin that leaves out tests by what they start: `-p hack.pytest_selection`.

    --without=api-server   tests that start an API server (make test-python)
    --without=programs     tests that start any program: also the simulated vCenter, helm,
                           Prometheus, Chromium, and the tools of the builder (make test-unit)

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
_PROGRAMS = _API_SERVER | {"module_simulator", "start_simulator", "simulator", "helm"}
_FIXTURES = {"api-server": _API_SERVER, "programs": _PROGRAMS}
# Files, and one test, that start programs without one of these fixtures.
_PROGRAM_FILES = (
    "packages/kubewright/tests/builder/",
    "packages/kubewright/tests/testing/test_plugin.py",
    "tests/test_chart.py",
    "tests/test_compare_output.py",
    "tests/test_demo_manager.py",
    "tests/test_dist.py",
    "tests/test_docs_types.py",
    "tests/test_golden_projects.py",
    "tests/test_image_files.py",
    "tests/test_kstatus.py",
    "tests/test_monitoring.py",
    "tests/test_operations_pages.py",
    "tests/test_packages.py",
    "tests/test_quickstart.py",
    "tests/test_release.py",
    "tests/test_simulated_vcenter",
    "tests/ui/",
    "tests/vsphere/test_devices.py::test_only_requested_vms_are_read",
    "tests/vsphere/test_fuzzed_answers.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "leave out the tests that start this"
    parser.addoption("--without", choices=sorted(_FIXTURES), help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    without = config.getoption("--without")
    fixtures = _FIXTURES.get(without, frozenset())
    files = _PROGRAM_FILES if without == "programs" else ()
    kept, deselected = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_left_out = fixtures.intersection(getattr(item, "fixturenames", ())) or (
            item.nodeid.startswith(files)
        )
        (deselected if is_left_out else kept).append(item)
    config.hook.pytest_deselected(items=deselected)
    items[:] = kept
