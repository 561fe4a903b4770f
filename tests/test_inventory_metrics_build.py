"""What -inventory-metrics adds to the manager."""

from __future__ import annotations

import pytest

from kubewright import Manager, Options
from support.fake_environment import FAKE_CONNECTION
from vsphere_operators.build import build
from vsphere_operators.settings.flags import Settings


@pytest.mark.parametrize(
    ("address", "secure", "warns"),
    [
        (":8080", False, True),
        ("192.0.2.1:8080", False, True),
        (":8443", True, False),
        ("127.0.0.1:8080", False, False),
        ("[::1]:8080", False, False),
        ("0", False, False),
    ],
)
async def test_inventory_without_authentication_is_warned_of(
    address: str, secure: bool, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = Options(name="test", metrics_bind_address=address, metrics_secure=secure)
    build(Manager(FAKE_CONNECTION, options), Settings(inventory_metrics=True))
    assert ("-inventory-metrics serves the names" in caplog.text) is warns


@pytest.mark.parametrize("enabled", [False, True])
async def test_collector_exists_only_with_the_flag(enabled: bool) -> None:
    manager = Manager(FAKE_CONNECTION, Options(name="test", metrics_bind_address="0"))
    build(manager, Settings(inventory_metrics=enabled))
    assert len(manager.metrics._text_collectors) == enabled
