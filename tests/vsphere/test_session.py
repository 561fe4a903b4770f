"""The session: one login for all calls, keep-alive and logout."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyVmomi import vim, vmodl

from kubewright.log import Log
from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority, write_key_pair
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.credentials import (
    Credentials,
    DirectoryCredentials,
    FixedCredentials,
)
from vsphere_operators.vsphere.faults import (
    CertificateRefused,
    NotAuthenticated,
    Unreachable,
    VCenterError,
)
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import CALL_TIMEOUT_SECONDS, SoapClient

from .canned_server import (
    CURRENT_TIME_RESPONSE,
    LOGIN_RESPONSE,
    SERVICE_CONTENT_RESPONSE,
    ReceivedRequest,
    RecordingMetrics,
    http_response,
    run_canned_server,
    simulator_address,
    simulator_credentials,
    soap_fault,
)
from .conftest import SimulatorFactory


def call_current_time(soap: SoapClient, instance: str = "ServiceInstance") -> Any:
    return vim.ServiceInstance(instance, soap.stub).CurrentTime()


def call_session_is_active(soap: SoapClient) -> Any:
    return vim.SessionManager("SessionManager", soap.stub).SessionIsActive("x", "y")


# One login for all calls


async def test_500_calls_on_an_ended_session_cause_one_login(
    simulator: SimulatedVCenter, session: Session, soap: SoapClient
) -> None:
    await simulator.reset_call_counts()
    assert await simulator.expire_sessions() == 1
    answers = await asyncio.gather(
        *(session.call(lambda: call_current_time(soap)) for _ in range(500))
    )
    assert len({type(answer) for answer in answers}) == 1
    assert (await simulator.call_counts())["Login"] == 1
    assert session.login_count == 2
    assert len(await simulator.sessions()) == 1


async def test_100_first_calls_cause_one_login(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(soap, simulator_credentials(simulator), log)
    await asyncio.gather(*(session.call(lambda: call_current_time(soap)) for _ in range(100)))
    assert (await simulator.call_counts())["Login"] == 1
    await session.logout()


async def test_cancelled_caller_does_not_cancel_the_login(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(soap, simulator_credentials(simulator), log)
    await simulator.fail_calls("Login", delay_seconds=0.3)
    first, second = asyncio.create_task(session.login()), asyncio.create_task(session.login())
    await eventually(lambda: session.login_task is not None)
    first.cancel()
    await second
    assert first.cancelled()
    assert (session.login_count, (await simulator.call_counts())["Login"]) == (1, 1)
    await session.logout()


async def test_renewing_a_replaced_session_makes_no_call(
    simulator: SimulatedVCenter, session: Session
) -> None:
    await simulator.expire_sessions()
    await session.renew(1)
    await session.renew(1)
    await session.renew(1)
    assert session.login_count == 2
    assert (await simulator.call_counts())["Login"] == 2


async def test_login_works_if_live_sessions_reject_logins(
    start_simulator: SimulatorFactory, log: Log, metrics: RecordingMetrics
) -> None:
    simulator = await start_simulator("--relogin=false")
    soap = SoapClient(simulator_address(simulator), metrics)
    session = Session(soap, simulator_credentials(simulator), log)
    await session.login()
    await session.renew(session.login_count)
    assert session.login_count == 2
    await session.logout()
    await soap.close()


async def test_call_rejected_in_the_new_session_fails(
    simulator: SimulatedVCenter, session: Session, soap: SoapClient
) -> None:
    await simulator.fail_calls("CurrentTime", "NotAuthenticated", count=2)
    with pytest.raises(NotAuthenticated) as caught:
        await session.call(lambda: call_current_time(soap))
    assert caught.value.__context__ is None
    assert (await simulator.call_counts())["Login"] == 2


async def test_late_response_does_not_replace_the_login_cookie(
    tmp_path: Path, log: Log, metrics: RecordingMetrics
) -> None:
    relogged, logins = asyncio.Event(), 0

    async def reply(request: ReceivedRequest) -> bytes:
        nonlocal logins
        if "<RetrieveServiceContent" in request.body:
            return http_response(
                200, SERVICE_CONTENT_RESPONSE, "Set-Cookie: vmware_soap_session=anonymous; Path=/"
            )
        if "<Login " in request.body:
            logins += 1
            relogged.set() if logins == 2 else None
            return http_response(
                200, LOGIN_RESPONSE, f"Set-Cookie: vmware_soap_session=live-{logins}; Path=/"
            )
        if "<Logout " in request.body or request.cookie == "live-2":
            return http_response(200, CURRENT_TIME_RESPONSE)
        await (relogged.wait() if "late" in request.body else asyncio.sleep(0))
        return http_response(
            500, soap_fault("NotAuthenticated"), "Set-Cookie: vmware_soap_session=anonymous; Path=/"
        )

    async with run_canned_server(tmp_path, reply) as address:
        soap = SoapClient(address, metrics)
        session = Session(soap, FixedCredentials(Credentials("user", "pass")), log)
        await session.login()
        late = asyncio.create_task(session.call(lambda: call_current_time(soap, "late")))
        await session.call(lambda: call_current_time(soap))
        assert soap.cookie == "live-2"
        await late
        assert (soap.cookie, logins) == ("live-2", 2)
        await soap.close()


# Other ways to log in

SAML_TOKEN = (
    '<?xml version="1.0"?>\n<saml2:Assertion xmlns:saml2="urn:oasis:names:tc:SAML:2.0:assertion" '
    'ID="_1"><saml2:Subject>'
    "<saml2:NameID>robot@vsphere.local</saml2:NameID></saml2:Subject></saml2:Assertion>\n"
)


async def test_saml_token_is_sent_only_with_the_login(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log, tmp_path: Path
) -> None:
    (tmp_path / "saml-token").write_text(SAML_TOKEN)
    session = Session(soap, DirectoryCredentials(tmp_path), log)
    await session.login()
    assert [session_info["user"] for session_info in await simulator.sessions()] == [
        "robot@vsphere.local"
    ]
    assert (
        "Assertion"
        not in soap.build_envelope(
            vim.ServiceInstance("ServiceInstance", soap.stub), "CurrentTime"
        ).decode()
    )
    await session.logout()


def write_extension_credentials(folder: Path) -> DirectoryCredentials:
    pair = CertificateAuthority("extensions").issue_client_certificate("com.example.operators")
    write_key_pair(pair, folder / "tls.crt", folder / "tls.key")
    (folder / "extension-key").write_text("com.example.operators\n")
    return DirectoryCredentials(folder)


async def test_extension_logs_in_by_certificate_through_the_tunnel(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log, tmp_path: Path
) -> None:
    session = Session(soap, write_extension_credentials(tmp_path), log)
    await session.login()
    assert [session_info["user"] for session_info in await simulator.sessions()] == [
        "com.example.operators"
    ]
    # All other calls go to the usual port, and find the session when it has to be renewed.
    await simulator.expire_sessions()
    await session.ensure_alive()
    assert (await simulator.call_counts())["LoginExtensionByCertificate"] == 2
    await session.logout()
    assert await simulator.sessions() == []


async def test_unusable_tunnel_is_reported(
    simulator: SimulatedVCenter, log: Log, metrics: RecordingMetrics, tmp_path: Path
) -> None:
    credentials = write_extension_credentials(tmp_path)
    # The control endpoint is an HTTP server, but not a proxy.
    control_port = urlsplit(simulator.ready_info["control"]).port or 0
    for port, reason in ((1, "no connection"), (control_port, "it responds HTTP 4")):
        soap = SoapClient(replace(simulator_address(simulator), tunnel_port=port), metrics)
        session = Session(soap, credentials, log)
        with pytest.raises(Unreachable) as caught:
            await session.login()
        assert f"the SDK tunnel at port {port} cannot be used ({reason}" in str(caught.value)
        assert "open that port in firewalls" in str(caught.value)
        # Not a rejected login, so the next attempt may follow at once.
        assert not session.failed_login_limiter.failure_times
        await session.logout()
        await soap.close()


async def test_certificate_behind_the_tunnel_is_verified(
    start_simulator: SimulatorFactory, metrics: RecordingMetrics, tmp_path: Path
) -> None:
    write_extension_credentials(tmp_path)
    simulator = await start_simulator("--tls-name=vc.example.com")
    soap = SoapClient(simulator_address(simulator), metrics)
    body = soap.build_envelope(vim.ServiceInstance("ServiceInstance", soap.stub), "CurrentTime")
    with pytest.raises(CertificateRefused, match=r"instead of 127\.0\.0\.1"):
        await soap.post_through_tunnel(
            body,
            method="CurrentTime",
            certificate_file=str(tmp_path / "tls.crt"),
            key_file=str(tmp_path / "tls.key"),
        )
    await soap.close()


async def test_extension_without_certificate_is_reported(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(
        soap, FixedCredentials(Credentials(extension_key="com.example.operators")), log
    )
    with pytest.raises(VCenterError) as caught:
        await session.login()
    assert caught.value.fault == "NoClientCertificate"


# Keep-alive and logout


async def test_keep_alive_keeps_an_unused_session(
    simulator: SimulatedVCenter, session: Session, metrics: RecordingMetrics
) -> None:
    [before] = await simulator.sessions()
    keeping = asyncio.create_task(session.keep_alive(0.2))

    async def is_used_again() -> bool:
        # Not by its end after a short idle time: a busy machine may call later than that.
        [now] = await simulator.sessions()
        return now["key"] == before["key"] and bool(now["lastActive"] > before["lastActive"])

    await eventually(is_used_again)
    await eventually(lambda: metrics.calls.count(("CurrentTime", "ok")) >= 3)
    assert [outcome for method, outcome in metrics.calls if method == "Login"] == ["ok"]
    keeping.cancel()


async def test_keep_alive_is_idle_while_the_session_is_used(
    session: Session, metrics: RecordingMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0

    def just_now(_: SoapClient) -> float:
        nonlocal rounds
        rounds += 1
        return time.monotonic()

    # Real calls come late on a busy machine, and then keep-alive is right to call.
    monkeypatch.setattr(
        SoapClient, "last_response_at", property(just_now, lambda *_: None), raising=False
    )
    keeping = asyncio.create_task(session.keep_alive(0.01))
    await eventually(lambda: rounds >= 5)
    keeping.cancel()
    assert ("CurrentTime", "ok") not in metrics.calls


async def test_keep_alive_outlives_an_outage(
    simulator: SimulatedVCenter, session: Session, metrics: RecordingMetrics
) -> None:
    keeping = asyncio.create_task(session.keep_alive(0.05))
    await simulator.set_outage("reset")
    await eventually(lambda: metrics.calls.count(("CurrentTime", "Unreachable")) >= 3)
    await simulator.set_outage("")
    await eventually(lambda: ("CurrentTime", "ok") in metrics.calls)
    assert not keeping.done()
    keeping.cancel()


async def test_logout_leaves_no_session_filter_or_view(
    simulator: SimulatedVCenter, session: Session, soap: SoapClient
) -> None:
    content = await soap.get_service_content()
    assert content.viewManager is not None
    root = vim.Folder(content.rootFolder.value, soap.stub)
    views: Any = vim.view.ViewManager(content.viewManager.value, soap.stub)
    await views.CreateContainerView(root, [vim.VirtualMachine], True)
    spec = vmodl.query.PropertyCollector.FilterSpec(
        propSet=[vmodl.query.PropertyCollector.PropertySpec(type=vim.Folder, pathSet=["name"])],
        objectSet=[vmodl.query.PropertyCollector.ObjectSpec(obj=root)],
    )
    collector: Any = vmodl.query.PropertyCollector(content.propertyCollector.value, soap.stub)
    await collector.CreateFilter(spec, True)
    [before] = await simulator.sessions()
    assert (len(before["filters"]), len(before["views"])) == (1, 1)
    await session.logout()
    assert await simulator.sessions() == []
    assert (session.logged_in, soap.cookie) == (False, "")


async def test_no_login_after_logout(
    simulator: SimulatedVCenter, session: Session, soap: SoapClient
) -> None:
    await session.logout()
    with pytest.raises(NotAuthenticated, match="this program is stopping"):
        await session.call(lambda: call_current_time(soap))
    await session.logout()
    assert (await simulator.call_counts())["Login"] == 1


async def test_logout_waits_for_a_running_login(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(soap, simulator_credentials(simulator), log)
    await simulator.fail_calls("Login", delay_seconds=0.5)
    login = asyncio.create_task(session.login())
    await eventually(lambda: has_call(simulator, "Login"))
    await session.logout()
    await login
    assert await simulator.sessions() == []


async def has_call(simulator: SimulatedVCenter, method: str) -> bool:
    return method in await simulator.call_counts()


@pytest.mark.parametrize("how", ["503", "reset", "hang"])
async def test_logout_has_a_timeout(
    simulator: SimulatedVCenter, session: Session, how: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await simulator.set_outage(how)
    async with asyncio.timeout(CALL_TIMEOUT_SECONDS / 2):
        await session.logout(timeout_seconds=0.3)
    assert "could not log out" in caplog.text


async def test_logout_during_a_hanging_login_has_a_timeout(
    simulator: SimulatedVCenter, soap: SoapClient, log: Log
) -> None:
    session = Session(soap, simulator_credentials(simulator), log)
    await simulator.set_outage("hang")
    login = asyncio.create_task(session.login())
    await eventually(lambda: session.login_task is not None)
    await session.logout(timeout_seconds=0.3)
    with pytest.raises(NotAuthenticated):
        await login


async def test_logout_of_an_ended_session_logs_nothing(
    simulator: SimulatedVCenter, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    await simulator.expire_sessions()
    await session.logout()
    assert "could not log out" not in caplog.text
