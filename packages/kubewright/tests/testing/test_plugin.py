"""Fixtures of the pytest plugin that need no control plane, each in its own pytest process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from kubewright.testing import plugin as plugin_module

PYTEST_INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
pythonpath = .
"""
BLOCKING_MODULE = """
import time

def nap():
    time.sleep(0.001)
"""
BLOCKING_TESTS = """
import napping, time

async def test_blocks():
    napping.nap()

async def test_may_block_in_the_test_itself():
    time.sleep(0.001)

def test_may_block_where_no_loop_runs():
    napping.nap()
"""
UNCHECKED_TESTS = """
import napping

async def test_blocks_unchecked():
    napping.nap()
"""
CONTROLLERS_TESTS = """
import pytest

@pytest.fixture(scope="session")
def control_plane_with_controllers():
    return "with controllers"

def test_control_plane(control_plane):
    assert control_plane == "with controllers"
"""
# Without the package kubewright-testenv, which a developer may have installed.
BINARIES_TESTS = """
from kubewright.testing import binaries as module

module.installed_folder = lambda: None

def test_binaries(binaries):
    pass
"""
VIRTUAL_TIME_TESTS = """
import asyncio, gc, time
import pytest

def test_without_a_loop():
    pass

@pytest.mark.looptime
async def test_an_hour_takes_no_time():
    began = time.monotonic()
    await asyncio.sleep(3600)
    assert time.monotonic() - began < 60

def test_no_loop_was_left_open():
    gc.collect()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(PYTEST_INI)
    (tmp_path / "napping.py").write_text(BLOCKING_MODULE)
    return tmp_path


def run_pytest(project: Path, tests: str, **variables: str) -> str:
    """The output of pytest for these tests."""
    (project / "test_it.py").write_text(tests)
    # The plugin of an installed kubewright is loaded automatically; pytest rejects a second time.
    installed = "kubewright" in entry_points(group="pytest11").names
    plugin = [] if installed else ["-p", plugin_module.__name__]
    source = str(Path(plugin_module.__file__).parents[2])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin]
    return subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "PYTHONPATH": source, **variables},
        capture_output=True,
        text=True,
    ).stdout


def test_blocking_call_of_a_listed_module_fails_the_test(project: Path) -> None:
    (project / "pytest.ini").write_text(PYTEST_INI + "blockbuster_modules = napping\n")
    output = run_pytest(project, BLOCKING_TESTS)
    assert "FAILED test_it.py::test_blocks - blockbuster" in output
    assert "Blocking call to time.sleep" in output
    assert "1 failed, 2 passed" in output


def test_without_listed_modules_nothing_is_checked(project: Path) -> None:
    assert "1 passed" in run_pytest(project, UNCHECKED_TESTS)


def test_option_adds_the_controllers_to_the_control_plane(project: Path) -> None:
    (project / "pytest.ini").write_text(PYTEST_INI + "control_plane_controllers = true\n")
    assert "1 passed" in run_pytest(project, CONTROLLERS_TESTS)


def test_process_of_xdist_does_not_build(project: Path) -> None:
    variables = {"XDG_CACHE_HOME": str(project / "cache"), "PATH": "", "KUBEBUILDER_ASSETS": ""}
    variables |= {"PYTEST_XDIST_WORKER": "gw0", "KUBEWRIGHT_TESTENV": str(project / "bin")}
    output = run_pytest(project, BINARIES_TESTS, **variables)
    assert "etcd, kube-apiserver, kubectl is missing. Download or build it" in output
    assert "1 error" in output
    assert not (project / "cache").exists()


def test_virtual_time_leaves_no_open_loop(project: Path) -> None:
    assert "3 passed" in run_pytest(project, VIRTUAL_TIME_TESTS)
