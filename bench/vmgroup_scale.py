"""A VmGroup of 50: how near it comes to the ideal, and whether others suffer meanwhile.

    python -m bench.vmgroup_scale                      # 3 and then 10 operations at once; about a minute
    python -m bench.vmgroup_scale --replicas 20 --at-once 3

A clone takes 500 ms in the simulator. While the group grows, a HostInfo is edited and a group of one VM is made. All of it is seen from
outside: VMs in the simulator, statuses in the API server.
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

from bench.arena import BINARIES
from kubewright.testing import eventually
from kubewright.testing.binaries import find
from kubewright.testing.controlplane import ControlPlane

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "testenv"))
from real.crashsweep import install
from real.groups import Groups, is_running
from real.managing import EVERYWHERE, SERVICE_ACCOUNT, SYSTEM, ready_of, started
from real.snapshot import snapshot
from real.stage import simulated
from real.vsphere import Infos, credentials_in
from simulator import VCenter

CLONE_SECONDS = 0.5
ALLOWED_FACTOR = 1.15
ALLOWED_MORE_SECONDS = 2.0
EDIT_LIMIT_SECONDS = 1.0
SMALL_GROUP_LIMIT_SECONDS = 3.0
LOOKS_EVERY_SECONDS = 0.02
EDITS = 5


@dataclass
class Trial:
    """One size of the limit."""

    groups: Groups
    infos: Infos
    vcenter: VCenter
    replicas: int
    at_once: int
    verdicts: list[bool] = field(default_factory=list)

    def judge(self, what: str, seconds: float, limit: float) -> None:
        self.verdicts.append(seconds <= limit)
        print(f"{what:62} {seconds:8.3f} s <= {limit:g}  {'ok' if seconds <= limit else 'FAILED'}", flush=True)

    async def measure(self) -> None:
        hosts = [each["name"] for each in await self.vcenter.entities() if each["type"] == "HostSystem"]
        await self.infos.create("HostInfo", "host", hosts[0])
        await self.infos.status("HostInfo", "host")
        began = time.monotonic()
        await self.groups.create("large", replicas=self.replicas)
        large = asyncio.create_task(self.seconds_until(began, lambda: self.runs("large")))
        await eventually(self.has_begun, within=10)
        small = asyncio.create_task(self.small_group())
        edits = [await self.edit(hosts[number % len(hosts)]) for number in range(1, EDITS + 1)]
        ideal = self.replicas / self.at_once * CLONE_SECONDS
        self.judge(f"a HostInfo edit meanwhile, the slowest of {EDITS}", max(edits), EDIT_LIMIT_SECONDS)
        self.judge("a group of one meanwhile, until it is RUNNING", await small, SMALL_GROUP_LIMIT_SECONDS)
        limit = ALLOWED_FACTOR * ideal + ALLOWED_MORE_SECONDS
        self.judge(f"0 -> {self.replicas} replicas, {self.at_once} operations at once, until RUNNING", await large, limit)
        print(f"    the ideal is {ideal:.2f} s", flush=True)

    async def small_group(self) -> float:
        began = time.monotonic()
        await self.groups.create("small", replicas=1)
        return await self.seconds_until(began, lambda: self.runs("small"))

    async def edit(self, host: str) -> float:
        began = time.monotonic()
        await self.infos.merge("HostInfo", "host", {"spec": {"hostname": host}})
        return await self.seconds_until(began, self.edit_is_answered)

    async def edit_is_answered(self) -> bool:
        found = await self.infos.get("HostInfo", "host")
        return bool(ready_of(found).get("observedGeneration") == found["metadata"]["generation"])

    async def runs(self, name: str) -> bool:
        return is_running(await self.groups.get(name))

    async def has_begun(self) -> bool:
        return bool((await snapshot(self.vcenter)).clones)

    async def seconds_until(self, began: float, check: Callable[[], Any]) -> float:
        await eventually(check, within=120, every=LOOKS_EVERY_SECONDS)
        return time.monotonic() - began


async def trial(plane: ControlPlane, folder: Path, replicas: int, at_once: int) -> bool:
    """Whether every promise held with this many operations at once."""
    namespace = f"scale-{at_once}"
    plane.create_namespace(namespace)
    kubeconfig = plane.service_account_kubeconfig(SYSTEM, SERVICE_ACCOUNT, folder / "kubeconfig")
    async with simulated(BINARIES / "vcsim", folder / f"vcsim-{at_once}", "--hosts=4") as vcenter:
        await vcenter.delay("CloneVM_Task", CLONE_SECONDS)
        flags = (
            f"--kubeconfig={kubeconfig}",
            f"--vcenter-credentials={credentials_in(folder / f'creds-{at_once}', vcenter)}",
            f"--vcenter-ca-file={vcenter.certificate}",
            f"--watch-namespaces={namespace}",
            f"--vcenter-operations={at_once}",
        )
        async with started(folder / f"manager-{at_once}.log", *flags, *EVERYWHERE):
            one = Trial(Groups(plane, namespace), Infos(plane, namespace), vcenter, replicas, at_once)
            await one.measure()
            return all(one.verdicts)


async def serve(options: argparse.Namespace, folder: Path) -> int:
    async with ControlPlane(find(folders=[BINARIES])) as plane:
        install(plane)
        good = [await trial(plane, folder, options.replicas, at_once) for at_once in options.at_once]
    return 0 if all(good) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.vmgroup_scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--at-once", type=int, nargs="+", default=[3, 10])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(serve(options, Path(folder)))


if __name__ == "__main__":
    raise SystemExit(main())
