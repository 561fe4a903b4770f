"""The pytest plugin: a real control plane for a test session, and a check for blocking calls.

    control_plane       the `ControlPlane` of the session, started at first use
    control_plane_with_controllers
                        one that also has kube-controller-manager
    kubeconfig          the path of its administrator's kubeconfig
    namespace           the name of a new namespace, removed after the test
    kubectl             `kubectl("get", "pods")` as administrator
    no_blocking_calls   fails the test if a module of `blockbuster_modules` blocks the event loop

Binaries are searched in $KUBEWRIGHT_TESTENV (by default `.testenv/bin` below pytest's rootdir),
then as `kubewright.testing.binaries` does. Missing ones are downloaded or built with visible
progress, except kube-controller-manager, and except in a process of pytest-xdist, which has no
terminal: run `python -m kubewright.testing.binaries` first.
Setting `control_plane_controllers = true` in pytest's configuration adds the controllers to
`control_plane` itself, so that `namespace`, `kubectl` and `kubeconfig` use them as well.
Setting `blockbuster_modules` in pytest's configuration applies `no_blocking_calls` to every test.
To test timeouts without waiting, install `looptime` and mark the test with
`@pytest.mark.looptime`: `asyncio.sleep(3600)` then takes no time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .controlplane import ControlPlane

_TESTENV_VARIABLE = "KUBEWRIGHT_TESTENV"
_XDIST_WORKER_VARIABLE = "PYTEST_XDIST_WORKER"
_LOOPTIME_PLUGIN = "looptime_plugin"
_CONTROLLERS_OPTION = "control_plane_controllers"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = (
        "modules that must not block the event loop; "
        "if any is listed, every test uses the fixture `no_blocking_calls`"
    )
    parser.addini("blockbuster_modules", text, type="args", default=[])
    text = "whether the control plane of the session runs kube-controller-manager"
    parser.addini(_CONTROLLERS_OPTION, text, type="bool", default=False)


def pytest_sessionstart(session: pytest.Session) -> None:
    # looptime asks for the current event loop before every test. Up to Python 3.13 that creates a
    # loop which is never closed, and causes a ResourceWarning in a later test.
    if sys.version_info < (3, 14) and session.config.pluginmanager.hasplugin(_LOOPTIME_PLUGIN):
        asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> dict[str, Path]:
    """The paths of etcd, kube-apiserver and kubectl."""
    from .binaries import find_binaries

    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    # A build takes minutes, so its progress must be visible.
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        build = _XDIST_WORKER_VARIABLE not in os.environ
        return find_binaries(folders=[_testenv_folder(pytestconfig)], build=build)


def _testenv_folder(config: pytest.Config) -> Path:
    return Path(os.environ.get(_TESTENV_VARIABLE) or config.rootpath / ".testenv" / "bin")


@pytest.fixture(scope="session")
def binaries_with_controllers(
    pytestconfig: pytest.Config, binaries: dict[str, Path]
) -> dict[str, Path]:
    """The same with kube-controller-manager, which is not built inside of a test."""
    from .binaries import find_binaries

    names, folders = ["kube-controller-manager"], [_testenv_folder(pytestconfig)]
    return binaries | find_binaries(names, folders=folders, build=False)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A real control plane, shared by the session; a test that kills it must restart it."""
    if request.config.getini(_CONTROLLERS_OPTION):
        yield request.getfixturevalue("control_plane_with_controllers")
    else:
        yield from _run_control_plane(request.getfixturevalue("binaries"))


@pytest.fixture(scope="session")
def control_plane_with_controllers(
    binaries_with_controllers: dict[str, Path],
) -> Iterator[ControlPlane]:
    """A real control plane with garbage collection, Deployments, Jobs and namespaces."""
    from .controller_manager import DEFAULT_CONTROLLERS

    yield from _run_control_plane(binaries_with_controllers, DEFAULT_CONTROLLERS)


def _run_control_plane(
    binaries: dict[str, Path], controllers: Sequence[str] = ()
) -> Iterator[ControlPlane]:
    from .controlplane import ControlPlane

    plane = ControlPlane(binaries, controllers=controllers)
    plane.start_sync()
    yield plane
    plane.stop_sync()


@pytest.fixture(scope="session")
def kubeconfig(control_plane: ControlPlane) -> Path:
    """The administrator's kubeconfig."""
    return control_plane.admin_kubeconfig


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """The name of a new namespace, removed with its objects after the test."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    control_plane.create_namespace(name)
    yield name
    control_plane.remove_namespace(name)


@pytest.fixture
def kubectl(control_plane: ControlPlane) -> Callable[..., str]:
    """Runs kubectl as administrator."""
    return control_plane.kubectl


@pytest.fixture
def no_blocking_calls(pytestconfig: pytest.Config) -> Iterator[None]:
    """Makes a blocking call in the event loop raise if a listed module is among its callers."""
    try:
        from blockbuster import blockbuster_ctx
    except ImportError:
        raise pytest.UsageError(
            "blockbuster_modules requires the package blockbuster: install it, or unset the option"
        ) from None
    modules = pytestconfig.getini("blockbuster_modules") or ["kubewright"]
    # The test helpers may block: they are not under test.
    with blockbuster_ctx(modules, excluded_modules=["kubewright.testing"]) as blockbuster:
        # A module is imported once. Those that take long are imported in a thread.
        for function in blockbuster.functions.values():
            function.can_block_in("<frozen importlib._bootstrap>", {"_find_and_load"})
        yield


@pytest.fixture(autouse=True)
def apply_no_blocking_calls(request: pytest.FixtureRequest) -> None:
    if request.config.getini("blockbuster_modules"):
        request.getfixturevalue("no_blocking_calls")
