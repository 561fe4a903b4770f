"""Many groups at rest: a manager that starts again finds all in order, and changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane

from .groups import Groups, is_running
from .managing import EVERYWHERE, ManagerProcess, in_short, mutations, started
from .snapshot import snapshot
from .stage import simulated
from .vsphere import credentials_in

GROUPS = 200
REPLICAS = 3


async def test_200_groups_settle_and_a_restart_changes_nothing(
    pytestconfig: pytest.Config,
    installed: ControlPlane,
    namespace: str,
    service_account: Path,
    tmp_path: Path,
) -> None:
    groups = Groups(installed, namespace)

    def all_running() -> int:
        with installed.apiserver.admin_client() as https:
            return sum(is_running(each) for each in https.call("GET", groups.path())["items"])

    async with simulated(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as vcenter:
        flags = (
            f"--kubeconfig={service_account}",
            f"--vcenter-credentials={credentials_in(tmp_path / 'vc-creds', vcenter)}",
            f"--vcenter-ca-file={vcenter.certificate}",
            f"--watch-namespaces={namespace}",
            *EVERYWHERE,
        )
        async with started(tmp_path / "first.log", *flags) as first:
            for number in range(GROUPS):
                await groups.create(f"g-{number}", replicas=REPLICAS)
            await eventually(
                lambda: asyncio.to_thread(lambda: all_running() == GROUPS), within=180, every=1.0
            )
            # Some five for each VM. If groups of one template woke each other, it would be dozens.
            assert await first.reconciles("vmgroup") < 10 * GROUPS * REPLICAS
            await first.stop(10)
        before = await snapshot(vcenter)
        assert len(before.marked) == GROUPS * REPLICAS
        assert len({each.folder for each in before.marked}) == GROUPS
        await vcenter.reset_mutating_calls()
        async with started(tmp_path / "second.log", *flags) as second:
            await eventually(lambda: has_looked(second), within=60, every=0.2)
            assert await vcenter.mutating_calls() == []
            assert list(map(in_short, mutations(installed, second))) == []
        assert await asyncio.to_thread(all_running) == GROUPS
        assert (await snapshot(vcenter)).vms == before.vms


async def has_looked(manager: ManagerProcess) -> bool:
    """Whether every group was reconciled, and nothing is left to do."""
    waiting = await manager.series("workqueue_depth")
    return await manager.reconciles("vmgroup") >= GROUPS and not any(
        value for labels, value in waiting.items() if "vmgroup" in labels
    )
