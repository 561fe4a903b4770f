"""A process that keeps Pods in a cache and reports when it is in sync. argv: view, list mode,
kubeconfig."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path

import msgspec

from kubewright import Client, Pod, load_config, select
from kubewright.cache import Cache
from kubewright.kind import Object
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.reflector import Reflector
from kubewright.transport import Transport


class Report(msgspec.Struct):
    objects: int
    seconds: float
    cpu_seconds: float
    rss_bytes: int
    peak_rss_bytes: int


def find_view(name: str) -> type[Object]:
    """The kind or selection of this name."""
    if name == "small class":
        return Pod
    # Imported by every other contender, so that all have the same code in memory.
    from kubewright.api.core_v1 import Pod as FullPod
    from kubewright.api.core_v1 import PodSpec

    def drop_spec(pod: FullPod) -> FullPod:
        return msgspec.structs.replace(
            pod, spec=PodSpec(containers=[], nodeName=pod.spec.nodeName), status=None
        )

    match name:
        case "nothing":
            return select(FullPod, label_selector="app=none")
        case "all":
            return FullPod
        case "selection":
            return select(FullPod, label_selector="app=web")
        case "metadata only":
            return select(FullPod, metadata_only=True)
        case "transform":
            return select(FullPod, transform=drop_spec)
        case "selection, metadata only":
            return select(FullPod, label_selector="app=web", metadata_only=True)
    raise SystemExit(f"unknown view {name}")


def read_memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}")


async def main(view: str, mode: str, kubeconfig: str) -> None:
    kind = find_view(view)
    transport = Transport(load_config(kubeconfig))
    log = Log("bench")
    store = Cache(log).store(kind)
    reflector = Reflector(
        kind,
        store,
        Client(transport),
        Metrics(),
        log,
        use_watch_list=mode == "stream",
    )
    # The first request also opens the connection and builds the decoder.
    await reflector._client.server_version()
    started_at, cpu_before = time.monotonic(), time.process_time()
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    seconds, cpu = time.monotonic() - started_at, time.process_time() - cpu_before
    gc.collect()
    report = Report(len(store.objects), seconds, cpu, read_memory("VmRSS"), read_memory("VmHWM"))
    print(msgspec.json.encode(report).decode(), flush=True)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await transport.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
