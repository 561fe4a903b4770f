"""The pytest plugin: a real control plane for a test session, and a loop that may not be blocked.

    control_plane   the `ControlPlane` of the session, started at first use
    kubeconfig      the path of its administrator's kubeconfig
    namespace       the name of a fresh namespace; it and all it holds are removed after the test
    kubectl         `kubectl("get", "pods")` as administrator
    no_blocking_calls       a blocking call in the event loop, made from the modules named in `blockbuster_modules`, fails the test

Binaries are looked for in the folder that $KUBEWRIGHT_TESTENV names (`.testenv/bin` below pytest's rootdir unless set), then where
`kubewright.testing.binaries` looks; what is nowhere is built.
Setting `blockbuster_modules` in pytest's configuration puts `no_blocking_calls` on every test. For time that costs nothing, install
`looptime` and mark the test with `@pytest.mark.looptime`: `asyncio.sleep(3600)` then takes no time at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .controlplane import ControlPlane

_TESTENV_VARIABLE = "KUBEWRIGHT_TESTENV"
_LOOPTIME_PLUGIN = "looptime_plugin"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare our settings."""
    words = "modules that may not block the event loop; naming any puts the fixture `no_blocking_calls` on every test"
    parser.addini("blockbuster_modules", words, type="args", default=[])


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say that there is no current loop, where looptime is installed.

    Up to Python 3.13 its question for one before a plain test would make a loop that nobody closes: a ResourceWarning, later and elsewhere.
    """
    if sys.version_info < (3, 14) and session.config.pluginmanager.hasplugin(_LOOPTIME_PLUGIN):
        asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> dict[str, Path]:
    """The paths of etcd, kube-apiserver and kubectl."""
    from . import binaries as assets

    folder = Path(os.environ.get(_TESTENV_VARIABLE) or pytestconfig.rootpath / ".testenv" / "bin")
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    # A build takes minutes: its progress must be seen.
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        return assets.find_binaries(folders=[folder])


@pytest.fixture(scope="session")
def control_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """A real control plane, shared by the session; a test that kills it brings it back."""
    from .controlplane import ControlPlane

    plane = ControlPlane(binaries)
    plane.start_sync()
    yield plane
    plane.stop_sync()


@pytest.fixture(scope="session")
def kubeconfig(control_plane: ControlPlane) -> Path:
    """The administrator's kubeconfig."""
    return control_plane.admin_kubeconfig


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A fresh namespace, gone with all it holds after the test."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    control_plane.create_namespace(name)
    yield name
    control_plane.remove_namespace(name)


@pytest.fixture
def kubectl(control_plane: ControlPlane) -> Callable[..., str]:
    """The control plane's kubectl, as administrator."""
    return control_plane.kubectl


@pytest.fixture
def no_blocking_calls(pytestconfig: pytest.Config) -> Iterator[None]:
    """Make a blocking call in the event loop raise, where kubewright or another named module is among the callers."""
    try:
        from blockbuster import blockbuster_ctx
    except ImportError:
        raise pytest.UsageError(
            "finding blocking calls needs the package blockbuster: install it, or unset blockbuster_modules"
        ) from None
    modules = pytestconfig.getini("blockbuster_modules") or ["kubewright"]
    # The parts for tests may block: they are not what is tested.
    with blockbuster_ctx(modules, excluded_modules=["kubewright.testing"]):
        yield


@pytest.fixture(autouse=True)
def apply_no_blocking_calls(request: pytest.FixtureRequest) -> None:
    """Put `no_blocking_calls` on every test of a project that names modules."""
    if request.config.getini("blockbuster_modules"):
        request.getfixturevalue("no_blocking_calls")
