"""The files that the settings name, followed."""

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


async def wait_for_change(following: ConfigFileWatcher) -> str:
    """What it starts anew for."""
    with pytest.raises(RestartRequired) as caught:
        async with asyncio.timeout(10):
            await following.run()
    return str(caught.value)


async def sees_no_change(following: ConfigFileWatcher) -> bool:
    """Whether it sees no reason to start anew in some looks."""
    try:
        async with asyncio.timeout(0.2):
            await following.run()
    except TimeoutError:
        return True


async def test_an_address_that_comes_after_the_manager_is_seen(folder: Path) -> None:
    following = await make_watcher(Settings(credentials_directory=str(folder / "creds")))
    assert await sees_no_change(following)
    (folder / "creds" / "VC_USER").write_text("a")
    assert await sees_no_change(following), "credentials are the session's business"
    (folder / "creds" / "GOVMOMI_URL").write_text("vc.example.com")
    assert "the vCenters are: vc.example.com" in await wait_for_change(following)


async def test_another_address_is_seen_and_none_or_a_wrong_one_changes_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = folder / "creds" / "GOVMOMI_URL"
    address.write_text("old.example.com")
    following = await make_watcher(Settings(credentials_directory=str(folder / "creds")))
    address.unlink()
    assert await sees_no_change(following)
    address.write_text("ftp://old.example.com")
    with caplog.at_level(logging.ERROR):
        assert await sees_no_change(following)
    assert [record.getMessage()[:40] for record in caplog.records] == [
        "the files of the settings have changed, "
    ]
    address.write_text("old.example.com\n")
    assert await sees_no_change(following)
    address.write_text("new.example.com")
    assert "new.example.com" in await wait_for_change(following)


async def test_the_lists_of_vcenters_and_of_limits_are_followed(folder: Path) -> None:
    vcenters, limits = folder / "vcenters.yaml", folder / "limits.yaml"
    vcenters.write_text(VCENTERS_YAML % "a")
    limits.write_text("limits:\n- namespaces: ['*']\n  quota: {vms: 5}\n")
    settings = Settings(vcenters_file=str(vcenters), limits_file=str(limits))
    following = await make_watcher(settings)
    assert await sees_no_change(following)
    limits.write_text("limits:\n- namespaces: ['*']\n  quota: {vms: 6}\n")
    assert "one" in await wait_for_change(following)
    following = await make_watcher(settings)
    vcenters.write_text(VCENTERS_YAML % "b")
    assert "one" in await wait_for_change(following)
