"""Fixtures for tests that `kubewright create api` scaffolds: API server and manager."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubewright import Client
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.operator import install_manifests, run_operator
from vsphere_operators.build import build
from vsphere_operators.settings.flags import Settings

CONFIG = Path(__file__).parents[2] / "config"


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The generated CRDs and roles."""
    install_manifests(control_plane, CONFIG / "crd", CONFIG / "rbac")
    return control_plane


@pytest.fixture
async def client(installed: ControlPlane, namespace: str) -> AsyncIterator[Client]:
    """An administrator's client; a manager without a vCenter serves the namespace of the test."""
    async with run_operator(
        installed, build, Settings(), namespace, name="vsphere-operators"
    ) as client:
        yield client
