"""A whole vCenter: which failures become its `problem`, and that nothing remains on the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter as Simulator
from vsphere_operators.vsphere import vcenter as module
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.credentials import DirectoryCredentials
from vsphere_operators.vsphere.faults import CertificateRefused, NotAuthenticated, Unreachable
from vsphere_operators.vsphere.vcenter import VCenter

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials


@pytest.fixture
async def start_vcenter(
    simulator: Simulator, log: Log, metrics: RecordingMetrics, tmp_path: Path
) -> AsyncIterator[Callable[..., Any]]:
    running: list[asyncio.Task[None]] = []

    async def start(address: Address | None = None, credentials: Any = None, **how: Any) -> VCenter:
        vcenter = VCenter(
            "vc",
            address or simulator_address(simulator),
            credentials or simulator_credentials(simulator),
            log,
            metrics,
            **how,
        )
        running.append(asyncio.create_task(vcenter.run()))
        return vcenter

    yield start
    for task in running:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert await simulator.sessions() == []
    assert await simulator.rest_sessions() == []


async def test_one_reset_connection_is_not_a_problem(
    simulator: Simulator, start_vcenter: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may take as long as the default to connect again.
    monkeypatch.setattr(module, "GRACE_SECONDS", 60.0)
    monkeypatch.setattr(module, "_STALE_SECONDS", 60.0)
    vcenter = await start_vcenter()
    await eventually(lambda: vcenter.loaded, within=60)
    problems: list[object] = []
    vcenter.state_changed.connect(lambda: problems.append(vcenter.problem))
    before = vcenter.inventory_watcher.last_response_at
    await simulator.set_outage("reset", 0.3)
    await eventually(
        lambda: vcenter.inventory_watcher.last_response_at > before and vcenter.failures == 0,
        within=60,
    )
    assert problems == []


async def test_lasting_outage_keeps_its_accurate_until(
    simulator: Simulator, start_vcenter: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.5)
    vcenter = await start_vcenter()
    await eventually(lambda: vcenter.loaded, within=60)
    await simulator.set_outage("reset")
    await eventually(lambda: vcenter.problem, within=60)
    assert isinstance(vcenter.problem, Unreachable)
    until, failures = vcenter.accurate_until, vcenter.failures
    await eventually(lambda: vcenter.failures > failures, within=60)
    assert vcenter.accurate_until == until
    await simulator.set_outage("")
    await eventually(lambda: vcenter.problem is None, within=30)


async def test_malformed_response_about_tags_does_not_affect_hosts(
    simulator: Simulator, start_vcenter: Callable[..., Any]
) -> None:
    vcenter = await start_vcenter(tag_interval_seconds=1.0)
    await eventually(lambda: vcenter.loaded, within=60)

    async def raise_key_error() -> None:
        raise KeyError("object_id")

    vcenter.tags.read = raise_key_error
    vcenter.tags.poll_schedule.trigger()
    await asyncio.wait_for(simulator.churn_stats(), 30)
    before = vcenter.inventory_watcher.response_count
    await eventually(lambda: vcenter.inventory_watcher.response_count > before, within=60)
    assert vcenter.problem is None


async def test_repeatedly_ended_session_is_reported_and_leaves_none(
    simulator: Simulator, start_vcenter: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.5)
    vcenter = await start_vcenter()
    await eventually(lambda: vcenter.loaded, within=60)
    await simulator.fail_calls("WaitForUpdatesEx", "NotAuthenticated", count=0)
    await simulator.churn_stats()
    await eventually(lambda: isinstance(vcenter.problem, NotAuthenticated), within=40)
    assert len(await simulator.sessions()) <= 1
    await simulator.clear_rules()
    await eventually(lambda: vcenter.problem is None, within=40)


async def test_endpoint_that_rejects_does_not_end_the_session(
    simulator: Simulator, start_vcenter: Callable[..., Any]
) -> None:
    await simulator.fail_calls("VslmListVStorageObjectForSpec", "NotAuthenticated", count=0)
    vcenter = await start_vcenter(disk_interval_seconds=1.0)
    await eventually(lambda: vcenter.disks.loaded, within=30)
    assert (await simulator.call_counts())["Login"] == 1
    assert len(await simulator.sessions()) == 1


async def test_changed_credentials_open_another_session(
    simulator: Simulator, start_vcenter: Callable[..., Any], tmp_path: Path
) -> None:
    await simulator.set_password("other", "word")
    for key, text in (("username", simulator.user), ("password", simulator.password)):
        (tmp_path / key).write_text(text)
    vcenter = await start_vcenter(credentials=DirectoryCredentials(tmp_path, poll_seconds=0.05))
    await eventually(lambda: vcenter.loaded, within=60)
    (tmp_path / "password").write_text("word")
    (tmp_path / "username").write_text("other")

    async def has_new_session() -> bool:
        return [session["user"] for session in await simulator.sessions()] == ["other"]

    await eventually(has_new_session, within=60)
    await eventually(lambda: vcenter.problem is None and vcenter.failures == 0, within=60)


async def test_corrected_ca_bundle_is_read_again(
    simulator: Simulator, start_vcenter: Callable[..., Any], tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.crt"
    bundle.write_text("")
    host, port = simulator.address
    vcenter = await start_vcenter(address=Address(host, port, ca_file=str(bundle)))
    await eventually(lambda: isinstance(vcenter.problem, CertificateRefused), within=60)
    bundle.write_bytes(simulator.certificate.read_bytes())
    await eventually(lambda: vcenter.loaded and vcenter.problem is None, within=30)


async def test_inventory_belongs_to_the_session_in_which_it_was_read(
    simulator: Simulator, start_vcenter: Callable[..., Any]
) -> None:
    vcenter = await start_vcenter()
    assert vcenter.inventory.instance_uuid == ""
    await eventually(lambda: vcenter.loaded, within=60)
    assert vcenter.inventory.instance_uuid == simulator.instance_uuid
    assert vcenter.is_inventory_of_session
    loads: list[bool] = []
    vcenter.inventory_loaded.connect(lambda: loads.append(vcenter.is_inventory_of_session))
    await simulator.delay_pages(0.5)
    await simulator.expire_sessions()
    await eventually(lambda: vcenter.session.login_count == 2, within=60)
    # Logged in again, and not read again yet.
    assert not vcenter.is_inventory_of_session
    await eventually(lambda: loads == [True], within=60)
