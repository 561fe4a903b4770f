"""The crash injector: it kills a manager at a chosen call, and another one takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import create_resource, get_resource, wait_for_status

from .crash_injection import CrashMode, CrashPoint, recognize_vcenter_request
from .crash_run import run_observed_manager


@pytest.mark.parametrize(
    ("mode", "is_stored"), [("before", False), ("sent", True), ("answered", True)]
)
async def test_a_manager_is_killed_at_its_second_write_and_the_next_one_continues(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    namespace: str,
    tmp_path: Path,
    mode: CrashMode,
    is_stored: bool,
) -> None:
    stored: list[bool] = []
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "manager") as (
        manager,
        injector,
    ):
        start = injector.start_manager

        async def check_and_start() -> None:
            assert not manager.is_running
            # The API server sets a default for status.observedGeneration.
            status = get_resource(installed, namespace, "second").get("status", {})
            stored.append("conditions" in status)
            await start()

        injector.start_manager = check_and_start
        injector.crash_point = CrashPoint("PUT mycustomresources/status", 2, mode)
        create_resource(installed, namespace, "first", spec={"name": "funny-joe"})
        await wait_for_status(installed, namespace, "first", "NoFriend", within=30)
        first = manager.pid
        create_resource(installed, namespace, "second", spec={"name": "funny-joe"})
        await eventually(lambda: injector.restarted_at is not None)
        await wait_for_status(installed, namespace, "second", "NoFriend", within=30)
        assert injector.crashed_call is not None
        assert injector.crashed_call.target == "second"
        assert stored == [is_stored]
        assert manager.pid != first
        assert [call.after_restart for call in injector.calls] == [
            False,
            False,
            *([] if is_stored else [True]),
        ]


def test_mutating_calls_are_recognized_by_their_method() -> None:
    call = '<{0} xmlns="urn:vim25"><_this type="T">{1}</_this></{0}>'
    envelope = (
        f'<soapenv:Envelope xmlns:soapenv="x"><soapenv:Body>{call}</soapenv:Body>'
        "</soapenv:Envelope>"
    )
    body = envelope.format("CloneVM_Task", "vm-7").encode()
    sent = recognize_vcenter_request(None, body)  # type: ignore[arg-type]
    assert sent is not None
    assert (sent.operation, sent.target) == ("CloneVM_Task", "vm-7")
    for method in ("WaitForUpdatesEx", "Login", "CreateFilter", "RetrievePropertiesEx"):
        body = envelope.format(method, "x").encode()
        assert recognize_vcenter_request(None, body) is None  # type: ignore[arg-type]
