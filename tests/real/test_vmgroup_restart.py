"""A manager that starts again with many groups in the desired state changes nothing.

`make test-long` runs this with 200 groups.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from support.info_client import write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    ManagerProcess,
    format_audit_event,
    list_mutations,
    run_manager,
)
from support.sample import sample_size
from support.simulator_state import read_simulator_state
from support.vmgroup_client import VmGroupClient, is_running

from .crash_run import run_simulator

GROUP_COUNT = sample_size(50, complete=200)
REPLICAS = 3


async def test_many_groups_settle_and_a_restart_changes_nothing(
    pytestconfig: pytest.Config,
    installed: ControlPlane,
    namespace: str,
    manager_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    groups = VmGroupClient(installed, namespace)

    def all_running() -> int:
        with installed.apiserver.admin_client() as https:
            return sum(is_running(group) for group in https.call("GET", groups.path())["items"])

    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as vcenter:
        flags = (
            f"--kubeconfig={manager_kubeconfig}",
            f"--vcenter-credentials={write_credentials(tmp_path / 'vc-creds', vcenter)}",
            f"--vcenter-ca-file={vcenter.certificate}",
            f"--watch-namespaces={namespace}",
            *FREE_PORT_FLAGS,
        )
        async with run_manager(tmp_path / "first.log", *flags) as first:
            for number in range(GROUP_COUNT):
                await groups.create(f"g-{number}", replicas=REPLICAS)
            await eventually(
                lambda: asyncio.to_thread(lambda: all_running() == GROUP_COUNT),
                within=180,
                every=1.0,
            )
            # About five per VM. If groups of one template woke each other, it would be dozens.
            assert await first.count_reconciles("vmgroup") < 10 * GROUP_COUNT * REPLICAS
            await first.stop(10)
        before = await read_simulator_state(vcenter)
        assert len(before.marked_vms) == GROUP_COUNT * REPLICAS
        assert len({vm.folder for vm in before.marked_vms}) == GROUP_COUNT
        await vcenter.reset_mutating_calls()
        async with run_manager(tmp_path / "second.log", *flags) as second:
            await eventually(lambda: has_reconciled_all(second), within=60, every=0.2)
            assert await vcenter.mutating_calls() == []
            assert list(map(format_audit_event, list_mutations(installed, second))) == []
        assert await asyncio.to_thread(all_running) == GROUP_COUNT
        assert (await read_simulator_state(vcenter)).vms == before.vms


async def has_reconciled_all(manager: ManagerProcess) -> bool:
    """Whether every group was reconciled and the queue is empty."""
    waiting = await manager.read_metric("workqueue_depth")
    return await manager.count_reconciles("vmgroup") >= GROUP_COUNT and not any(
        value for labels, value in waiting.items() if "vmgroup" in labels
    )
