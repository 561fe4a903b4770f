"""Serve a generated or recorded inventory; prints one line of JSON when it is ready."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
from pathlib import Path

from .inventory import generate_inventory
from .recording import read_inventory
from .server import open_replay


async def run(options: argparse.Namespace) -> None:
    inventory = (
        read_inventory(options.recorded)
        if options.recorded
        else generate_inventory(options.hosts, options.vms)
    )
    # The millions of values live as long as the process, so collections need not visit them.
    gc.freeze()
    async with open_replay(inventory, options.state, disks=options.disks) as replay:
        ready = {
            "url": f"https://{replay.host}:{replay.port}/sdk",
            "certificate": str(replay.certificate),
        }
        print(json.dumps(ready), flush=True)
        await asyncio.Event().wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.replayed_vcenter", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", type=int, default=2500)
    parser.add_argument("--vms", type=int, default=45_000)
    parser.add_argument("--disks", type=int, default=1000)
    parser.add_argument("--recorded", type=Path, help="serve this file instead")
    parser.add_argument("--state", type=Path, required=True, help="folder for the certificates")
    asyncio.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
