"""The manager restarts when the files of its settings change."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from kubewright.errors import RestartRequired
from vsphere_operators.settings.flags import Settings
from vsphere_operators.settings.reload import ConfigFileWatcher, read_config_files

VCENTERS_YAML = """\
vcenters:
  - name: one
    server: vc.example.com
    credentials: creds
    namespaces: {names: ["%s"]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "creds").mkdir()
    return tmp_path


async def make_watcher(settings: Settings) -> ConfigFileWatcher:
    return ConfigFileWatcher(
        settings,
        await asyncio.to_thread(read_config_files, settings, lambda warning: None),
        poll_seconds=0.01,
    )


async def wait_for_change(watcher: ConfigFileWatcher) -> str:
    with pytest.raises(RestartRequired) as caught:
        async with asyncio.timeout(30):
            await watcher.run()
    return str(caught.value)


async def sees_no_change(watcher: ConfigFileWatcher) -> bool:
    try:
        async with asyncio.timeout(0.2):
            await watcher.run()
    except TimeoutError:
        return True


async def test_address_that_is_added_later_causes_a_restart(folder: Path) -> None:
    watcher = await make_watcher(Settings(credentials_directory=str(folder / "creds")))
    assert await sees_no_change(watcher)
    (folder / "creds" / "VC_USER").write_text("a")
    assert await sees_no_change(watcher), "the session reads credentials itself"
    (folder / "creds" / "GOVMOMI_URL").write_text("vc.example.com")
    assert "the vCenters are: vc.example.com" in await wait_for_change(watcher)


async def test_changed_address_causes_a_restart_but_a_missing_or_invalid_one_does_not(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = folder / "creds" / "GOVMOMI_URL"
    address.write_text("old.example.com")
    watcher = await make_watcher(Settings(credentials_directory=str(folder / "creds")))
    address.unlink()
    assert await sees_no_change(watcher)
    address.write_text("ftp://old.example.com")
    with caplog.at_level(logging.ERROR):
        assert await sees_no_change(watcher)
    assert [record.getMessage()[:40] for record in caplog.records] == [
        "ignoring the changed configuration files"
    ]
    address.write_text("old.example.com\n")
    assert await sees_no_change(watcher)
    address.write_text("new.example.com")
    assert "new.example.com" in await wait_for_change(watcher)


async def test_changed_vcenters_and_limits_cause_a_restart(folder: Path) -> None:
    vcenters, limits = folder / "vcenters.yaml", folder / "limits.yaml"
    vcenters.write_text(VCENTERS_YAML % "a")
    limits.write_text("limits:\n- namespaces: ['*']\n  quota: {vms: 5}\n")
    settings = Settings(vcenters_file=str(vcenters), limits_file=str(limits))
    watcher = await make_watcher(settings)
    assert await sees_no_change(watcher)
    limits.write_text("limits:\n- namespaces: ['*']\n  quota: {vms: 6}\n")
    assert "one" in await wait_for_change(watcher)
    watcher = await make_watcher(settings)
    vcenters.write_text(VCENTERS_YAML % "b")
    assert "one" in await wait_for_change(watcher)
