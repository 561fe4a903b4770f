"""A rejected login is not tried too often; changed credentials are tried at once."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyVmomi import vim

from kubewright.log import Log
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.credentials import (
    Credentials,
    DirectoryCredentials,
    FixedCredentials,
)
from vsphere_operators.vsphere.faults import Denied, Unreachable, WrongLogin
from vsphere_operators.vsphere.session import (
    LOCKOUT_WINDOW_SECONDS,
    MAX_LOGIN_FAILURES,
    SAME_CREDENTIALS_RETRY_SECONDS,
    FailedLoginLimiter,
    Session,
)
from vsphere_operators.vsphere.transport import SoapClient

from .canned_server import FakeClock, simulator_credentials

CANARY = "canary-<&>\"'-5d41"


def call_current_time(soap: SoapClient) -> Any:
    return vim.ServiceInstance("ServiceInstance", soap.stub).CurrentTime()


def write_credentials(path: Path, user: str, password: str) -> DirectoryCredentials:
    (path / "username").write_text(user)
    (path / "password").write_text(password + "\n")
    return DirectoryCredentials(path, poll_seconds=0.05)


def test_budget_keeps_both_rules_on_any_history() -> None:
    chance, clock = random.Random(4), FakeClock()
    limiter, failures = FailedLoginLimiter(clock), list[tuple[float, Credentials]]()
    for _ in range(20_000):
        clock.seconds += chance.expovariate(1 / 5)
        credentials = Credentials("user", str(chance.randrange(3)))
        if not limiter.wait_seconds(credentials):
            limiter.add_failure(credentials)
            failures.append((clock.seconds, credentials))
    times = [at for at, _ in failures]
    assert len(times) > 500
    assert all(
        later - earlier >= LOCKOUT_WINDOW_SECONDS
        for earlier, later in zip(times, times[MAX_LOGIN_FAILURES:], strict=False)
    )
    for password in "012":
        same = [at for at, credentials in failures if credentials.password == password]
        assert all(
            later - earlier >= SAME_CREDENTIALS_RETRY_SECONDS for earlier, later in pairwise(same)
        )


def test_budget_wait_seconds() -> None:
    clock = FakeClock()
    limiter, one, other = (
        FailedLoginLimiter(clock),
        Credentials("user", "1"),
        Credentials("user", "2"),
    )
    limiter.add_failure(one)
    assert (limiter.wait_seconds(one), limiter.wait_seconds(other)) == (185.0, 0.0)
    clock.seconds += 10
    limiter.add_failure(other)
    clock.seconds += 10
    assert limiter.wait_seconds(one) == 165.0
    limiter.add_failure(Credentials("user", "3"))
    assert limiter.wait_seconds(Credentials("user", "4")) == 160.0
    clock.seconds += 165
    assert (limiter.wait_seconds(one), limiter.wait_seconds(other)) == (0.0, 10.0)


def test_leader_and_standby_do_not_lock_the_account() -> None:
    clock, failures = FakeClock(), list[float]()
    managers, password = [FailedLoginLimiter(clock), FailedLoginLimiter(clock)], "old"
    for second in range(3600):
        clock.seconds += 1
        password = "fixed, and wrong again" if second >= 1800 else password
        for limiter in managers:
            if not limiter.wait_seconds(Credentials("user", password)):
                limiter.add_failure(Credentials("user", password))
                failures.append(clock.seconds)
    assert max(sum(at <= other < at + 180 for other in failures) for at in failures) == 4


async def test_rejected_password_is_reported_and_not_tried_again(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    clock = FakeClock()
    session = Session(soap, FixedCredentials(Credentials("user", CANARY)), log, clock=clock)
    with pytest.raises(
        WrongLogin,
        match=r'rejects the user "user".*incorrect user name or password.*the environment and '
        r"restart the manager",
    ) as first:
        await session.login()
    assert (first.value.fault, first.value.retry_after_seconds) == ("InvalidLogin", 185.0)
    clock.seconds += 184
    for _ in range(20):
        with pytest.raises(
            WrongLogin,
            match=r"incorrect user name or password.*the same password again after about 3 min",
        ) as caught:
            await session.call(lambda: call_current_time(soap))
        assert (str(caught.value), caught.value.retry_after_seconds) == (str(first.value), 1.0)
    assert (await simulator.call_counts())["Login"] == 1
    clock.seconds += 1
    with pytest.raises(WrongLogin):
        await session.login()
    assert (await simulator.call_counts())["Login"] == 2


async def test_500_calls_with_a_wrong_password_cause_one_login(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(soap, FixedCredentials(Credentials("user", "wrong")), log)
    answers = await asyncio.gather(
        *(session.call(lambda: call_current_time(soap)) for _ in range(500)), return_exceptions=True
    )
    assert {type(answer) for answer in answers} == {WrongLogin}
    assert len({id(answer) for answer in answers}) == 500
    assert (await simulator.call_counts())["Login"] == 1


async def test_corrected_file_is_tried_at_once(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log, tmp_path: Path
) -> None:
    session = Session(soap, write_credentials(tmp_path, "user", "wrong"), log)
    with pytest.raises(
        WrongLogin, match=rf"Correct them in {tmp_path}; a change there takes effect within seconds"
    ):
        await session.login()
    waiting = asyncio.create_task(session.wait_for_credentials_change())
    await asyncio.sleep(0.2)
    assert not waiting.done()
    write_credentials(tmp_path, "user", simulator.password)
    await asyncio.wait_for(waiting, 30)
    await session.login()
    assert (session.logged_in, (await simulator.call_counts())["Login"]) == (True, 2)
    await session.logout()


async def test_at_most_three_wrong_passwords_are_tried(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log, tmp_path: Path
) -> None:
    clock = FakeClock()
    session = Session(soap, write_credentials(tmp_path, "user", "wrong-0"), log, clock=clock)
    for turn in range(10):
        write_credentials(tmp_path, "user", f"wrong-{turn}")
        with pytest.raises(WrongLogin):
            await session.login()
    assert (await simulator.call_counts())["Login"] == MAX_LOGIN_FAILURES
    assert not await simulator.is_locked("user")
    write_credentials(tmp_path, "user", simulator.password)
    with pytest.raises(WrongLogin, match=r"at most 3 logins fail in 3 minutes") as caught:
        await session.login()
    assert caught.value.retry_after_seconds == LOCKOUT_WINDOW_SECONDS
    clock.seconds += LOCKOUT_WINDOW_SECONDS
    await session.login()
    await session.logout()


async def test_login_that_failed_elsewhere_counts(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(soap, simulator_credentials(simulator), log, clock=FakeClock())
    await session.login()
    for _ in range(MAX_LOGIN_FAILURES):
        session.count_failed_login()
    await simulator.expire_sessions()
    with pytest.raises(WrongLogin) as caught:
        await session.call(lambda: call_current_time(soap))
    assert caught.value.retry_after_seconds == LOCKOUT_WINDOW_SECONDS
    assert (await simulator.call_counts())["Login"] == 1


async def test_rejection_by_one_endpoint_does_not_block_the_session(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(soap, simulator_credentials(simulator), log, clock=FakeClock())
    await session.login()
    session.count_failed_login()
    await simulator.expire_sessions()
    await session.call(lambda: call_current_time(soap))
    assert (await simulator.call_counts())["Login"] == 2
    await session.logout()


async def test_unreachable_vcenter_is_not_a_wrong_password(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(soap, simulator_credentials(simulator), log)
    for how in ("503", "reset", "503", "reset"):
        await simulator.set_outage(how)
        with pytest.raises(Unreachable) as caught:
            await session.login()
        assert not isinstance(caught.value, WrongLogin)
    await simulator.set_outage("")
    await session.login()
    assert session.login_count == 1
    await session.logout()


async def test_missing_privilege_is_not_a_wrong_password(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(soap, simulator_credentials(simulator), log)
    await simulator.fail_calls("Login", "NoPermission", fields={"privilegeId": "System.View"})
    with pytest.raises(Denied, match=r'the privilege "System\.View" is missing') as caught:
        await session.login()
    assert not isinstance(caught.value, WrongLogin)
    await session.login()
    await session.logout()


async def test_unreadable_credentials_are_waited_for(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log, tmp_path: Path
) -> None:
    source = write_credentials(tmp_path, "user", simulator.password)
    session = Session(soap, source, log)
    await session.login()
    (tmp_path / "password").rename(tmp_path / "elsewhere")
    await simulator.expire_sessions()
    with pytest.raises(
        WrongLogin, match="username is set, but password is missing or empty"
    ) as caught:
        await session.call(lambda: call_current_time(soap))
    assert caught.value.retry_after_seconds == 10.0
    waiting = asyncio.create_task(session.wait_for_credentials_change())
    (tmp_path / "elsewhere").rename(tmp_path / "password")
    await asyncio.wait_for(waiting, 30)
    await session.login()
    assert session.login_count == 2
    await session.logout()
