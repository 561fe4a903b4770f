"""A control plane with an audit log, on which the manager is installed as its users install it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubewright.testing.controlplane import ControlPlane

from .managing import SERVICE_ACCOUNT, SYSTEM


@pytest.fixture(scope="session")
def control_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """In place of the plugin's: this one keeps an audit log."""
    plane = ControlPlane(binaries, audit=True)
    plane.start_sync()
    yield plane
    plane.stop_sync()


@pytest.fixture(scope="session")
def config(pytestconfig: pytest.Config) -> Path:
    """The folder of manifests."""
    return pytestconfig.rootpath / "config"


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane, config: Path) -> ControlPlane:
    """CRDs and roles exactly as they are generated, in the namespace that they name."""
    control_plane.create_namespace(SYSTEM)
    control_plane.kubectl("apply", "-k", str(config / "crd"))
    control_plane.kubectl("apply", "-k", str(config / "rbac"))
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    return control_plane


@pytest.fixture
def service_account(installed: ControlPlane, tmp_path: Path) -> Path:
    """The kubeconfig of the manager's own service account."""
    return installed.service_account_kubeconfig(SYSTEM, SERVICE_ACCOUNT, tmp_path / "kubeconfig")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a manager logs to."""
    return tmp_path / "manager.log"
