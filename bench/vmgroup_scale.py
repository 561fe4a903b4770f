"""A VmGroup of 50 replicas: its time to completion, and its effect on other objects.

    python -m bench.vmgroup_scale       # 3 and then 10 operations at once; about a minute
    python -m bench.vmgroup_scale --replicas 20 --at-once 3

A clone takes 500 ms in the simulator. While the group grows, a HostInfo is edited and a group of
one VM is created. Everything is measured from outside: VMs in the simulator, statuses in the API
server.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cluster import BINARIES
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "testenv"))
from real.crash_run import run_simulator
from real.crash_sweep import install_manifests
from simulator import SimulatedVCenter
from support.info_client import InfoClient, write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    ready_condition,
    run_manager,
)
from support.simulator_state import read_simulator_state
from support.vmgroup_client import VmGroupClient, is_running

CLONE_SECONDS = 0.5
_DURATION_FACTOR = 1.15
_DURATION_MARGIN_SECONDS = 2.0
_EDIT_LIMIT_SECONDS = 1.0
_SMALL_GROUP_LIMIT_SECONDS = 3.0
POLL_SECONDS = 0.02
_EDITS = 5


@dataclass
class VmGroupBenchmark:
    groups: VmGroupClient
    infos: InfoClient
    vcenter: SimulatedVCenter
    replicas: int
    max_operations: int
    outcomes: list[bool] = field(default_factory=list)

    def check_limit(self, what: str, seconds: float, limit: float) -> None:
        self.outcomes.append(seconds <= limit)
        print(
            f"{what:62} {seconds:8.3f} s <= {limit:g}  {'ok' if seconds <= limit else 'FAILED'}",
            flush=True,
        )

    async def measure(self) -> None:
        hosts = [
            entity["name"]
            for entity in await self.vcenter.entities()
            if entity["type"] == "HostSystem"
        ]
        await self.infos.create("HostInfo", "host", hosts[0])
        await self.infos.wait_for_status("HostInfo", "host")
        began = time.monotonic()
        await self.groups.create("large", replicas=self.replicas)
        large = asyncio.create_task(
            self._measure_until(began, lambda: self._is_group_running("large"))
        )
        await eventually(self._has_clone_started, within=10)
        small = asyncio.create_task(self._measure_small_group())
        edits = [
            await self._measure_edit(hosts[number % len(hosts)]) for number in range(1, _EDITS + 1)
        ]
        ideal = self.replicas / self.max_operations * CLONE_SECONDS
        self.check_limit(
            f"a HostInfo edit in that time, the slowest of {_EDITS}",
            max(edits),
            _EDIT_LIMIT_SECONDS,
        )
        self.check_limit(
            "a group of one meanwhile, until it is RUNNING", await small, _SMALL_GROUP_LIMIT_SECONDS
        )
        limit = _DURATION_FACTOR * ideal + _DURATION_MARGIN_SECONDS
        self.check_limit(
            f"0 -> {self.replicas} replicas, {self.max_operations} operations at once, to RUNNING",
            await large,
            limit,
        )
        print(f"    the ideal is {ideal:.2f} s", flush=True)

    async def _measure_small_group(self) -> float:
        began = time.monotonic()
        await self.groups.create("small", replicas=1)
        return await self._measure_until(began, lambda: self._is_group_running("small"))

    async def _measure_edit(self, host: str) -> float:
        began = time.monotonic()
        await self.infos.patch("HostInfo", "host", {"spec": {"hostname": host}})
        return await self._measure_until(began, self._is_edit_reconciled)

    async def _is_edit_reconciled(self) -> bool:
        info = await self.infos.get("HostInfo", "host")
        return bool(
            ready_condition(info).get("observedGeneration") == info["metadata"]["generation"]
        )

    async def _is_group_running(self, name: str) -> bool:
        return is_running(await self.groups.get(name))

    async def _has_clone_started(self) -> bool:
        return bool((await read_simulator_state(self.vcenter)).clones)

    async def _measure_until(self, began: float, check: Callable[[], Any]) -> float:
        await eventually(check, within=120, every=POLL_SECONDS)
        return time.monotonic() - began


async def run_benchmark(plane: ControlPlane, folder: Path, replicas: int, at_once: int) -> bool:
    """Whether every target is met with this many operations at once."""
    namespace = f"scale-{at_once}"
    plane.create_namespace(namespace)
    kubeconfig = plane.write_service_account_kubeconfig(
        SYSTEM_NAMESPACE, SERVICE_ACCOUNT, folder / "kubeconfig"
    )
    async with run_simulator(
        BINARIES / "vcsim", folder / f"vcsim-{at_once}", "--hosts=4"
    ) as vcenter:
        await vcenter.delay_calls("CloneVM_Task", CLONE_SECONDS)
        flags = (
            f"--kubeconfig={kubeconfig}",
            f"--vcenter-credentials={write_credentials(folder / f'creds-{at_once}', vcenter)}",
            f"--vcenter-ca-file={vcenter.certificate}",
            f"--watch-namespaces={namespace}",
            f"--vcenter-operations={at_once}",
        )
        async with run_manager(folder / f"manager-{at_once}.log", *flags, *FREE_PORT_FLAGS):
            one = VmGroupBenchmark(
                VmGroupClient(plane, namespace),
                InfoClient(plane, namespace),
                vcenter,
                replicas,
                at_once,
            )
            await one.measure()
            return all(one.outcomes)


async def _run_benchmarks(options: argparse.Namespace, folder: Path) -> int:
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        install_manifests(plane)
        good = [
            await run_benchmark(plane, folder, options.replicas, at_once)
            for at_once in options.at_once
        ]
    return 0 if all(good) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.vmgroup_scale", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--at-once", type=int, nargs="+", default=[3, 10])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run_benchmarks(options, Path(folder)))


if __name__ == "__main__":
    raise SystemExit(main())
