from __future__ import annotations

import pytest

from kubewright.testing import binaries, go_module


@pytest.fixture
def no_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the package kubewright-testenv, which a developer may have installed."""
    for module in (binaries, go_module):
        monkeypatch.setattr(module, "installed_folder", lambda: None)
