"""A small simulated vCenter for each module, and a connection to it for each test.

simulator        shared by the tests of a module: rules, outages, sessions and counters are reset
                 after each test, the inventory is not
start_simulator  `await start_simulator("--hosts=1")`: another one, for a test that changes the
                 inventory or needs other flags
soap             a connection to `simulator` that trusts its certificate
session          that connection, logged in
log, metrics     what both report to
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubewright.log import Log
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import SoapClient

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials

SimulatorFactory = Callable[..., Awaitable[SimulatedVCenter]]


@pytest.fixture(scope="module")
def module_simulator(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimulatedVCenter]:
    vcenter = SimulatedVCenter(vcsim_path(pytestconfig), tmp_path_factory.mktemp("vcsim"))
    try:
        run_in_new_loop(vcenter.start())
        yield vcenter
    finally:
        run_in_new_loop(vcenter.stop())


@pytest.fixture
async def simulator(module_simulator: SimulatedVCenter) -> AsyncIterator[SimulatedVCenter]:
    await module_simulator.reset_call_counts()
    await module_simulator.reset_mutating_calls()
    yield module_simulator
    await module_simulator.set_outage("")
    await module_simulator.clear_rules()
    await module_simulator.expire_sessions()
    await module_simulator.set_password(module_simulator.user, module_simulator.password)
    await module_simulator.unlock(module_simulator.user)


@pytest.fixture
async def start_simulator(
    pytestconfig: pytest.Config, tmp_path: Path
) -> AsyncIterator[SimulatorFactory]:
    started: list[SimulatedVCenter] = []

    async def start(*flags: str, **how: Any) -> SimulatedVCenter:
        started.append(
            SimulatedVCenter(
                vcsim_path(pytestconfig), tmp_path / f"vcsim-{len(started)}", *flags, **how
            )
        )
        return await started[-1].start()

    yield start
    for vcenter in started:
        await vcenter.stop()


@pytest.fixture
def log() -> Log:
    return Log("vcenter")


@pytest.fixture
def metrics() -> RecordingMetrics:
    return RecordingMetrics()


@pytest.fixture
async def soap(simulator: SimulatedVCenter, metrics: RecordingMetrics) -> AsyncIterator[SoapClient]:
    soap = SoapClient(simulator_address(simulator), metrics)
    yield soap
    await soap.close()


@pytest.fixture
async def session(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> AsyncIterator[Session]:
    session = Session(soap, simulator_credentials(simulator), log)
    await session.login()
    yield session
    await session.logout()


def vcsim_path(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / ".testenv/bin/vcsim"


def run_in_new_loop(work: Coroutine[Any, Any, object]) -> None:
    """Run in an event loop of its own: `asyncio.run` would remove the current one."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
