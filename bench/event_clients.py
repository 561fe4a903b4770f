"""The memory of 200 idle clients of the topology's events.

    python -m bench.event_clients       # about 30 s, without an API server

The clients are in this process, the server in another.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import aiohttp

from bench.report import Target, target_lines
from kubewright.testing import eventually

_CLIENTS = 200
_LIMIT_MIB = 20.0
_EVENTS_EACH = 10


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def _measure_clients() -> float:
    """MiB that the clients cost the process of the server, after changes of all objects."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.contenders.topology_server", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        address = f"http://127.0.0.1:{int(await process.stdout.readline())}/events"
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            events = [0] * _CLIENTS

            async def read(index: int) -> None:
                async with session.get(address) as response:
                    async for line in response.content:
                        events[index] += line.startswith(b"event: ")

            # The first client makes the server do everything once.
            first = asyncio.create_task(read(0))
            await eventually(lambda: events[0] >= _EVENTS_EACH, within=60)
            before = _rss_bytes(process.pid)
            others = [asyncio.create_task(read(index)) for index in range(1, _CLIENTS)]
            await eventually(lambda: min(events) >= _EVENTS_EACH, within=120)
            after = _rss_bytes(process.pid)
            for task in (first, *others):
                task.cancel()
            await asyncio.gather(first, *others, return_exceptions=True)
            return (after - before) / 2**20
    finally:
        process.kill()
        await process.wait()


def main() -> int:
    memory = asyncio.run(_measure_clients())
    target = Target(f"memory of {_CLIENTS} idle clients", memory, "<=", _LIMIT_MIB, "MiB")
    print(target_lines([target]))
    return 0 if target.is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
