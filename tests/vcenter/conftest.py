"""A small simulated vCenter for each module, and a connection to it for each test.

simulator    shared by the module's tests: rules, outages, sessions and counters are put back after each test, the inventory is not
simulators   `await simulators("--hosts=1")`: one of one's own, for a test that changes the inventory or wants other flags
soap         a connection to `simulator` that trusts its certificate
session      that connection, logged in
log, meter   what both report to
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

from .rig import Tally, account, address_of_simulator

Simulators = Callable[..., Awaitable[SimulatedVCenter]]


@pytest.fixture(scope="module")
def module_simulator(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimulatedVCenter]:
    vcenter = SimulatedVCenter(binary(pytestconfig), tmp_path_factory.mktemp("vcsim"))
    try:
        apart(vcenter.start())
        yield vcenter
    finally:
        apart(vcenter.stop())


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
async def simulators(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[Simulators]:
    started: list[SimulatedVCenter] = []

    async def start(*flags: str, **how: Any) -> SimulatedVCenter:
        started.append(
            SimulatedVCenter(
                binary(pytestconfig), tmp_path / f"vcsim-{len(started)}", *flags, **how
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
def meter() -> Tally:
    return Tally()


@pytest.fixture
async def soap(simulator: SimulatedVCenter, meter: Tally) -> AsyncIterator[SoapClient]:
    soap = SoapClient(address_of_simulator(simulator), meter)
    yield soap
    await soap.close()


@pytest.fixture
async def session(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> AsyncIterator[Session]:
    session = Session(soap, account(simulator), log)
    await session.login()
    yield session
    await session.logout()


def binary(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / ".testenv/bin/vcsim"


def apart(work: Coroutine[Any, Any, object]) -> None:
    """Run in a loop of its own: a fixture of a module has none, and `asyncio.run` would take the current one away."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
