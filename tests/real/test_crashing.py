"""The tool itself: at which call a manager dies, what passed before, and that another takes over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .crashing import Mode, Point, vcenter_call
from .managing import resource, status_of, write_resource
from .stage import simulated, watched


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    async with simulated(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as vcenter:
        yield vcenter


@pytest.mark.parametrize(
    ("mode", "was_done"), [("before", False), ("sent", True), ("answered", True)]
)
async def test_a_manager_dies_at_its_second_write_and_the_next_one_goes_on(
    installed: ControlPlane,
    vcenter: SimulatedVCenter,
    namespace: str,
    tmp_path: Path,
    mode: Mode,
    was_done: bool,
) -> None:
    done: list[bool] = []
    async with watched(installed, vcenter, namespace, tmp_path / "manager") as (manager, reaper):
        start = reaper.start

        async def look_and_start() -> None:
            assert not manager.is_running
            done.append("status" in resource(installed, namespace, "second"))
            await start()

        reaper.start = look_and_start
        reaper.point = Point("PATCH mycustomresources/status", 2, mode)
        write_resource(installed, namespace, "first", spec={"name": "funny-joe"})
        await status_of(installed, namespace, "first", "NoFriend", within=30)
        first = manager.pid
        write_resource(installed, namespace, "second", spec={"name": "funny-joe"})
        await eventually(lambda: reaper.restarted_at is not None)
        await status_of(installed, namespace, "second", "NoFriend", within=30)
        assert reaper.reached is not None
        assert reaper.reached.target == "second"
        assert done == [was_done]
        assert manager.pid != first
        assert [each.after_restart for each in reaper.calls] == [
            False,
            False,
            *([] if was_done else [True]),
        ]


def test_what_changes_the_inventory_is_known_by_its_method() -> None:
    call = '<{0} xmlns="urn:vim25"><_this type="T">{1}</_this></{0}>'
    envelope = f'<soapenv:Envelope xmlns:soapenv="x"><soapenv:Body>{call}</soapenv:Body></soapenv:Envelope>'
    sent = vcenter_call(None, envelope.format("CloneVM_Task", "vm-7").encode())  # type: ignore[arg-type]
    assert sent is not None
    assert (sent.sort, sent.target) == ("CloneVM_Task", "vm-7")
    for method in ("WaitForUpdatesEx", "Login", "CreateFilter", "RetrievePropertiesEx"):
        assert vcenter_call(None, envelope.format(method, "x").encode()) is None  # type: ignore[arg-type]
