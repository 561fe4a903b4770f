"""What -inventory-metrics costs: time of a scrape, CPU and memory, off, on, and with all VMs.

    python -m bench.inventory_metrics                  # 1,000 hosts, 2,000 VMs; about ten minutes
    python -m bench.inventory_metrics --minutes 1

Each manager is alone with the simulated vCenter, which changes all quickStats every 20 s. Without
custom resources the manager does least, so the ratios are the highest possible. CPU and memory are
those that the kernel counts, from the first scrape on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bench.cluster import BINARIES, CRDS, install_contender
from bench.process_stats import cpu_seconds, peak_rss_bytes
from bench.vcenter_scale import manager_process
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process

sys.path.insert(0, str(Path(__file__).parents[1] / "testenv"))
from simulator import SimulatedVCenter

_VARIANTS = {
    "off": (),
    "on": ("-inventory-metrics",),
    "all VMs": ("-inventory-metrics", "-inventory-metrics-all-vms"),
}
_CPU_LIMIT_RATIO = 1.3
_HOSTS = re.compile(r'^vsphere_inventory_objects\{.*type="HostSystem".*\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Result:
    samples: int
    kilobytes: float
    scrape_seconds: float
    cpu_share: float
    peak_mib: float
    longest_stall_seconds: float


def _read_metrics_url(manager: Process) -> str:
    lines = manager.log.read_text().splitlines() if manager.log.exists() else []
    records = [json.loads(line) for line in lines if line.startswith("{")]
    port = next((r["port"] for r in records if r["msg"] == "serving metrics"), 0)
    return f"http://127.0.0.1:{port}/metrics" if port else ""


def _scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        return str(response.read().decode())


async def _measure(
    manager: Process, folder: Path, options: argparse.Namespace, expected: str
) -> Result:
    manager.start()
    await eventually(lambda: _read_metrics_url(manager), within=60, every=0.5)
    url = _read_metrics_url(manager)

    async def is_loaded() -> bool:
        text = await asyncio.to_thread(_scrape, url)
        hosts = _HOSTS.search(text)
        return hosts is not None and float(hosts[1]) >= options.hosts and expected in text

    await eventually(is_loaded, within=120, every=2)
    # The garbage of the load is collected, and the first disks and tags are read.
    await asyncio.sleep(options.settle)
    used, began, seconds, text = cpu_seconds(manager.pid), time.monotonic(), list[float](), ""
    while time.monotonic() - began < options.minutes * 60:
        scrape_began = time.monotonic()
        text = await asyncio.to_thread(_scrape, url)
        seconds.append(time.monotonic() - scrape_began)
        await asyncio.sleep(options.interval)
    share = (cpu_seconds(manager.pid) - used) / (time.monotonic() - began)
    return Result(
        samples=sum(not line.startswith("#") for line in text.splitlines()),
        kilobytes=len(text) / 1000,
        scrape_seconds=statistics.median(seconds),
        cpu_share=share,
        peak_mib=peak_rss_bytes(manager.pid) / 2**20,
        longest_stall_seconds=float((folder / "stalls").read_text().split()[1]),
    )


async def run_benchmark(options: argparse.Namespace, folder: Path) -> int:
    per_cluster = max(1, options.hosts // 10)
    vcenter = SimulatedVCenter(
        BINARIES / "vcsim",
        folder / "vcsim",
        f"--clusters={options.hosts // per_cluster}",
        f"--hosts={per_cluster}",
        f"--vms={options.vms * per_cluster // options.hosts}",
        "--churn=20s",
    )
    results: dict[str, Result] = {}
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        try:
            await vcenter.start()
            kubeconfig = await install_contender(plane, CRDS)
            for name, flags in _VARIANTS.items():
                variant_folder = folder / name.replace(" ", "-")
                variant_folder.mkdir()
                manager = manager_process(kubeconfig, vcenter, variant_folder, *flags)
                expected = "vsphere_host_info{" if flags else ""
                try:
                    results[name] = await _measure(manager, variant_folder, options, expected)
                finally:
                    await manager.stop(10)
                _print_result(name, results[name], results["off"])
        finally:
            await vcenter.stop()
    highest = max(result.cpu_share for result in results.values())
    return 0 if highest <= _CPU_LIMIT_RATIO * results["off"].cpu_share else 1


def _print_result(name: str, result: Result, base: Result) -> None:
    print(
        f"{name:8} {result.samples:6} samples {result.kilobytes:6.0f} kB, "
        f"scrape {1000 * result.scrape_seconds:4.0f} ms, "
        f"CPU {100 * result.cpu_share:5.2f} % ({result.cpu_share / base.cpu_share:.2f} x), "
        f"peak {result.peak_mib:4.0f} MiB ({result.peak_mib / base.peak_mib:.2f} x), "
        f"longest stall {1000 * result.longest_stall_seconds:.0f} ms",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.inventory_metrics", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--interval", type=float, default=15.0, help="seconds between scrapes")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds after the load")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run_benchmark(options, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
