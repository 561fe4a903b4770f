"""What kstatus, as Flux uses it, computes for statuses that a controller has written."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubewright.condition import UNOBSERVED_GENERATION
from kubewright.testing.go_module import build_module
from support.fake_environment import FakeEnvironment, run_manager
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoController
from vsphere_operators.vsphere.updates import Ref

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def program() -> Path:
    (program,) = build_module(ROOT / "testenv/kstatus", ROOT / ".testenv/bin", build=False)
    return program


def compute_status(program: Path, obj: HostInfo) -> str:
    status = msgspec.to_builtins(obj.status) | {
        # What the CRD sets as default.
        "observedGeneration": obj.status.observedGeneration or UNOBSERVED_GENERATION
    }
    encoded: Any = obj.encode() | {"status": status}
    process = subprocess.run(
        [program], input=json.dumps([encoded]), capture_output=True, text=True, check=True
    )
    (result,) = json.loads(process.stdout)
    return str(result["status"])


async def test_states_of_a_hostinfo(program: Path) -> None:
    environment = FakeEnvironment()
    environment.enter("Folder", "group-d1", name="Datacenters")
    environment.enter("Datacenter", "dc-1", name="dc-1", parent=Ref("Folder", "group-d1"))
    environment.enter(
        "HostSystem",
        "host-1",
        name="esxi-1",
        parent=Ref("Datacenter", "dc-1"),
        runtime__connectionState="connected",
    )
    environment.mark_loaded()
    rows = {
        "existing": ("esxi-1", "Reconciled", "Current"),
        "absent": ("no-such-host", "HostNotFound", "Failed"),
        "empty": ("", "HostnameMissing", "Failed"),
    }
    for name, (hostname, _, _) in rows.items():
        environment.create(HostInfo, name, hostname=hostname)
        assert compute_status(program, await environment.get(HostInfo, name)) == "InProgress"
    async with run_manager(environment, lambda vcenters, _: HostInfoController(vcenters)):
        for name, (_, reason, expected) in rows.items():
            info, _ = await environment.wait_for_ready(HostInfo, name, reason)
            assert compute_status(program, info) == expected, name
        environment.modify("HostSystem", "host-1", runtime__connectionState="disconnected")
        info, _ = await environment.wait_for_ready(HostInfo, "existing", "HostDisconnected")
        assert compute_status(program, info) == "Failed"
        environment.modify("HostSystem", "host-1", runtime__connectionState="connected")
        info, _ = await environment.wait_for_ready(HostInfo, "existing", "Reconciled")
        assert compute_status(program, info) == "Current"
