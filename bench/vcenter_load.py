"""The cost of reading one inventory with pyVmomi and with our client.

    python -m bench.vcenter_load

Both read the same properties of the same objects from one simulator, by turns and each in its own
process, so that neither pays for the imports and garbage of the other. The login is not counted.
Target: our client uses at most a fifth of the CPU, and the loop never stalls for 250 ms. The exit
code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "testenv"))  # for the simulator

from kubewright.testing import eventually  # noqa: E402
from simulator import SimulatedVCenter  # noqa: E402

_MAX_CPU_SHARE = 1 / 5
_MAX_STALL_SECONDS = 0.25
_CHURN_ROUNDS = 5
_TURNS = 7
TICK_SECONDS = 0.05


@dataclass(frozen=True)
class SimulatorLogin:
    host: str
    port: int
    certificate: str
    user: str
    password: str


class NullMeter:
    def observe_call(self, method: str, outcome: str, seconds: float) -> None: ...

    def count_undecodable(self, type_name: str, path: str) -> None: ...

    def count_updates(self, type_name: str, kind: str, count: int) -> None: ...


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _read_with_pyvmomi(server: SimulatorLogin) -> dict[str, Any]:
    """All pages of RetrievePropertiesEx as pyVmomi's values, by object and property."""
    from pyVim.connect import Disconnect, SmartConnect

    trust = ssl.create_default_context(cafile=server.certificate)
    instance = SmartConnect(
        host=server.host, port=server.port, user=server.user, pwd=server.password, sslContext=trust
    )
    before_bytes, began_cpu, began = _rss_bytes(), time.process_time(), time.perf_counter()
    content = instance.RetrieveContent()
    held = {
        item.obj._moId: {value.name: value.val for value in item.propSet}
        for item in _retrieve_objects(content)
    }
    spent, took = time.process_time() - began_cpu, time.perf_counter() - began
    rss = _rss_bytes() - before_bytes
    Disconnect(instance)
    return {"cpu": spent, "wall": took, "objects": len(held), "rss": rss}


def _retrieve_objects(content: Any) -> Iterator[Any]:
    """The objects and properties that our property collector reads, tasks included."""
    from pyVmomi import vim, vmodl

    from vsphere_operators.vsphere.properties import (
        CUSTOM_FIELDS_MANAGER,
        ENTITY_MAPPINGS,
        TASK_MAPPING,
    )

    view = content.viewManager.CreateContainerView(
        content.rootFolder, [getattr(vim, kind) for kind in ENTITY_MAPPINGS], True
    )
    roots = [
        _traversal_spec(view, vim.view.ContainerView, "view"),
        _traversal_spec(content.taskManager, vim.TaskManager, "recentTask"),
    ]
    paths = {
        **{kind: sort.paths for kind, sort in ENTITY_MAPPINGS.items()},
        "Task": TASK_MAPPING.paths,
        CUSTOM_FIELDS_MANAGER: ["field"],
    }
    collector = vmodl.query.PropertyCollector
    spec = collector.FilterSpec(
        objectSet=[
            collector.ObjectSpec(obj=content.rootFolder, skip=False),
            collector.ObjectSpec(obj=content.customFieldsManager, skip=False),
            *roots,
        ],
        propSet=[
            collector.PropertySpec(type=getattr(vim, kind), all=False, pathSet=sorted(names))
            for kind, names in paths.items()
        ],
    )
    options = vmodl.query.PropertyCollector.RetrieveOptions(maxObjects=100)
    answer = content.propertyCollector.RetrievePropertiesEx([spec], options)
    yield from answer.objects
    while answer.token:
        answer = content.propertyCollector.ContinueRetrievePropertiesEx(answer.token)
        yield from answer.objects


def _traversal_spec(obj: Any, managed_type: Any, path: str) -> Any:
    from pyVmomi import vmodl

    collector = vmodl.query.PropertyCollector
    traversal = collector.TraversalSpec(name=path, type=managed_type, path=path, skip=False)
    return collector.ObjectSpec(obj=obj, skip=True, selectSet=[traversal])


async def _read_with_inventory(server: SimulatorLogin, control: str) -> dict[str, Any]:
    """Loads the inventory, then applies some rounds of new quickStats."""
    from kubewright.log import Log
    from vsphere_operators.vsphere.address import Address
    from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials
    from vsphere_operators.vsphere.inventory import Inventory
    from vsphere_operators.vsphere.inventory_watcher import InventoryWatcher
    from vsphere_operators.vsphere.session import Session
    from vsphere_operators.vsphere.transport import SoapClient

    soap = SoapClient(Address(server.host, server.port, ca_file=server.certificate), NullMeter())
    session = Session(
        soap,
        FixedCredentials(Credentials(username=server.user, password=server.password)),
        Log("bench"),
    )
    await session.login()
    inventory, loaded, published = Inventory("bench"), asyncio.Event(), list[object]()
    collector = InventoryWatcher(
        soap, session, inventory, Log("bench"), NullMeter(), on_loaded=loaded.set
    )
    stalls = list[float]()
    watching = asyncio.create_task(_watch_stalls(stalls))
    await asyncio.sleep(0)
    before_bytes, began_cpu, began = _rss_bytes(), time.process_time(), time.perf_counter()
    following = asyncio.create_task(collector.run())
    await asyncio.wait(
        [following, asyncio.create_task(loaded.wait())], return_when=asyncio.FIRST_COMPLETED
    )
    result = {
        "cpu": time.process_time() - began_cpu,
        "wall": time.perf_counter() - began,
        "objects": len(inventory.objects),
    }
    result["rss"] = _rss_bytes() - before_bytes
    inventory.connect(published.append)
    result |= await measure_churn(control, published)
    result["stall"] = max(stalls)
    following.cancel()
    watching.cancel()
    await asyncio.wait([following, watching])
    await session.logout()
    await soap.close()
    return result


async def _watch_stalls(stalls: list[float]) -> None:
    # The event loop stalls for as long as a short sleep ends late.
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        stalls.append(time.perf_counter() - began - TICK_SECONDS)


async def measure_churn(control: str, published: list[object]) -> dict[str, Any]:
    """CPU of each round of new quickStats until all changes are published."""
    spent, objects = list[float](), list[int]()
    for _ in range(_CHURN_ROUNDS):
        published.clear()
        began = time.process_time()
        objects.append(await asyncio.to_thread(_churn_once, control))
        await eventually(lambda: len(published) >= objects[-1], within=60)
        spent.append(time.process_time() - began)
    return {"churn_cpu": statistics.median(spent), "churn_objects": statistics.median(objects)}


def _churn_once(control: str) -> int:
    with urllib.request.urlopen(
        urllib.request.Request(f"{control}/churn", b"{}", method="POST"), timeout=60
    ) as answer:
        return int(json.load(answer)["changed"])


async def _measure_in_subprocess(side: str, vcenter: SimulatedVCenter) -> dict[str, Any]:
    """Reads in a process of its own; the password is passed on stdin."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.vcenter_load",
        "--side",
        side,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    host, port = vcenter.address
    server = {
        "host": host,
        "port": port,
        "certificate": str(vcenter.certificate),
        "user": vcenter.user,
        "password": vcenter.password,
    }
    output, _ = await process.communicate(
        json.dumps({"server": server, "control": vcenter.ready_info["control"]}).encode()
    )
    if process.returncode:
        raise SystemExit(f"reading by {side} failed")
    return dict(json.loads(output))


def _run_side(side: str) -> None:
    given = json.load(sys.stdin)
    server = SimulatorLogin(**given["server"])
    print(
        json.dumps(
            _read_with_pyvmomi(server)
            if side == "pyvmomi"
            else asyncio.run(_read_with_inventory(server, given["control"]))
        )
    )


async def compare(hosts: int, vms: int, folder: Path) -> int:
    flags = (
        f"--hosts={hosts}",
        f"--vms={vms}",
        "--standalone-hosts=0",
        "--host-pattern=esxi-%04d.rainpole.com",
    )
    vcenter = SimulatedVCenter(ROOT / ".testenv/bin/vcsim", folder, *flags)
    try:
        await vcenter.start(within=300)
        turns = [
            (
                await _measure_in_subprocess("pyvmomi", vcenter),
                await _measure_in_subprocess("ours", vcenter),
            )
            for _ in range(_TURNS)
        ]
    finally:
        await vcenter.stop()
    return _print_report(turns)


def _print_report(turns: list[tuple[dict[str, Any], dict[str, Any]]]) -> int:
    """Prints the medians; returns 0 if the targets are met."""
    theirs, ours = (
        {key: statistics.median(turn[side][key] for turn in turns) for key in turns[0][side]}
        for side in (0, 1)
    )
    print("turn by turn, 1/x:", *(f"{them['cpu'] / us['cpu']:.1f}" for them, us in turns))
    share, stall = (
        statistics.median(us["cpu"] / them["cpu"] for them, us in turns),
        max(us["stall"] for _, us in turns),
    )
    for client, run in (("pyVmomi", theirs), ("ours", ours)):
        print(
            f"{client:8} {run['cpu']:.3f} s CPU, {run['wall']:.2f} s, "
            f"{run['objects']:.0f} objects, {run['rss'] / 2**20:+.1f} MiB"
        )
    print(
        f"ours uses {share:.3f} of pyVmomi's CPU: 1/{1 / share:.1f}; "
        f"target at most 1/{1 / _MAX_CPU_SHARE:.0f}"
    )
    per_object = ours["churn_cpu"] / ours["churn_objects"]
    print(
        f"new load of all {ours['churn_objects']:.0f}: {ours['churn_cpu'] * 1000:.0f} ms CPU, "
        f"{per_object * 1e6:.0f} us each"
    )
    print(
        f"longest stall of the loop: {stall * 1000:.0f} ms; "
        f"target at most {_MAX_STALL_SECONDS * 1000:.0f} ms"
    )
    return 0 if share <= _MAX_CPU_SHARE and stall <= _MAX_STALL_SECONDS else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.vcenter_load", description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=1000)
    parser.add_argument("--side", choices=("pyvmomi", "ours"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        _run_side(options.side)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(compare(options.hosts, options.vms, Path(folder)))


if __name__ == "__main__":
    raise SystemExit(main())
