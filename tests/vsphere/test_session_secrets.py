"""No secret appears in the log, in an error or in its causes, whatever fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from kubewright.log import Log
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials
from vsphere_operators.vsphere.faults import VCenterError, WrongLogin
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import SoapClient

from .canned_server import (
    SERVICE_CONTENT_RESPONSE,
    ReceivedRequest,
    RecordingMetrics,
    http_response,
    render_error,
    run_canned_server,
    simulator_address,
    soap_fault,
)

CANARY = 'canary-<&>"-5d41'
SECRET_FORMS = ("canary", escape(CANARY), "5d41")


@pytest.fixture(autouse=True)
async def check_log_for_secrets(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    caplog.set_level(1)
    loop.set_debug(True)
    yield
    loop.set_debug(False)
    seen = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert [form for form in SECRET_FORMS if form in seen] == []


def assert_no_secret(error: BaseException) -> None:
    assert [form for form in SECRET_FORMS if form in render_error(error)] == []


async def find_login_error(
    address: Address, log: Log, credentials: Credentials | None = None
) -> VCenterError:
    """The error of a login, if any; the session is always closed."""
    soap = SoapClient(address, RecordingMetrics())
    session = Session(soap, FixedCredentials(credentials or Credentials("user", CANARY)), log)
    try:
        with pytest.raises(VCenterError) as caught:
            await session.login()
        log.error("could not log in", error=caught.value)
        assert_no_secret(caught.value)
        return caught.value
    finally:
        await session.logout(timeout_seconds=0.5)
        await soap.close()


async def test_no_secret_after_a_wrong_password(simulator: SimulatedVCenter, log: Log) -> None:
    assert isinstance(await find_login_error(simulator_address(simulator), log), WrongLogin)


async def test_no_secret_after_a_refused_certificate(simulator: SimulatedVCenter, log: Log) -> None:
    host, port = simulator.address
    await find_login_error(Address(host, port), log)


@pytest.mark.parametrize("how", ["503", "reset"])
async def test_no_secret_after_an_outage(simulator: SimulatedVCenter, log: Log, how: Any) -> None:
    await simulator.set_outage(how)
    await find_login_error(simulator_address(simulator), log)


@asynccontextmanager
async def run_echo_server(folder: Path, answer: Callable[[str], bytes]) -> AsyncIterator[Address]:
    """A server that echoes each login in its response."""

    async def reply(request: ReceivedRequest) -> bytes:
        return (
            http_response(200, SERVICE_CONTENT_RESPONSE)
            if "<RetrieveServiceContent" in request.body
            else answer(request.body)
        )

    async with run_canned_server(folder, reply) as address:
        yield address


ECHO_RESPONSES: dict[str, Callable[[str], bytes]] = {
    "a fault that quotes the request": lambda body: http_response(
        500, soap_fault("InvalidLogin", escape(body))
    ),
    "another fault that does": lambda body: http_response(
        500, soap_fault("InvalidRequest", escape(body))
    ),
    "the request as it was": lambda body: http_response(200, body),
    "the request as a page": lambda body: http_response(500, body),
    "the request as a proxy's page": lambda body: http_response(502, f"<html>{body}</html>"),
    "the password alone": lambda body: http_response(
        500, soap_fault("SystemError", escape(CANARY))
    ),
    "no HTTP at all": lambda body: body.encode() + b"\r\n\r\n",
}


@pytest.mark.parametrize("how", ECHO_RESPONSES)
async def test_no_secret_if_the_server_echoes_the_request(
    tmp_path: Path, log: Log, how: str
) -> None:
    async with run_echo_server(tmp_path, ECHO_RESPONSES[how]) as address:
        await find_login_error(address, log)


async def test_no_token_if_the_server_echoes_the_request(tmp_path: Path, log: Log) -> None:
    token = "<Assertion><Subject>canary-5d41</Subject></Assertion>"
    async with run_echo_server(
        tmp_path, lambda body: http_response(500, soap_fault("InvalidLogin", escape(body)))
    ) as address:
        await find_login_error(address, log, Credentials(saml_token=token))


async def test_no_secret_if_the_password_cannot_be_sent(
    simulator: SimulatedVCenter, log: Log
) -> None:
    await find_login_error(
        simulator_address(simulator), log, Credentials("user", CANARY + "\udcff")
    )


async def test_session_key_is_not_logged(
    simulator: SimulatedVCenter, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    soap = SoapClient(simulator_address(simulator), RecordingMetrics())
    session = Session(soap, FixedCredentials(Credentials(simulator.user, simulator.password)), log)
    await session.login()
    key = soap.cookie
    await session.logout()
    await soap.close()
    assert key
    assert key not in "\n".join(f"{record.__dict__}" for record in caplog.records)
    assert logging.getLogger("vcenter").isEnabledFor(1)


async def test_password_with_xml_special_characters_works(
    simulator: SimulatedVCenter, log: Log
) -> None:
    await simulator.set_password("odd", CANARY + "ß漢")
    soap = SoapClient(simulator_address(simulator), RecordingMetrics())
    session = Session(soap, FixedCredentials(Credentials("odd", CANARY + "ß漢")), log)
    await session.login()
    assert [session_info["user"] for session_info in await simulator.sessions()] == ["odd"]
    await session.logout()
    await soap.close()
