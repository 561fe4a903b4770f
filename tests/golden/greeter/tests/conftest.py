"""Fixtures: a real API server with the CRDs and roles of this operator, and the manager on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubewright import Client
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.operator import install_manifests, run_operator

from greeter.main import Settings, build

CONFIG = Path(__file__).parents[1] / "config"
# `kubewright import` writes the CRDs of other operators to this folder.
OTHER_CRDS = Path(__file__).parent / "crds"


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with the generated CRDs and roles."""
    install_manifests(control_plane, CONFIG / "crd", CONFIG / "rbac", other_crds=OTHER_CRDS)
    return control_plane


@pytest.fixture
async def client(installed: ControlPlane, namespace: str) -> AsyncIterator[Client]:
    """An administrator's client; meanwhile the manager serves the namespace of the test.

    The manager runs as its own service account, so a missing permission fails the test.
    """
    async with run_operator(installed, build, Settings(), namespace, name="greeter") as client:
        yield client
