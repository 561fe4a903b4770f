"""The memory of one object: of each kind in the cache, and of hosts and VMs in the inventory.

    python -m bench.object_memory           # 20,000 of each; a minute

Each row is measured in a fresh process, as the growth of its resident memory: the objects enter the
cache from list pages as the API server sends them, and the inventory from pages of updates as
vCenter sends them. Another process has prepared the pages as files. Statuses are those that the
controllers compute from a replayed vCenter.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.process_stats import memory_bytes
from bench.replayed_vcenter.collector import Collector, envelope
from bench.replayed_vcenter.inventory import generate_inventory
from bench.sample import Sample, SampleSpec, SampleStatus
from kubewright.cache import Cache, Origin
from kubewright.condition import Condition
from kubewright.kind import Object
from kubewright.log import Log
from kubewright.responses import decode_page
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoSpec, host_status_of
from vsphere_operators.kinds.vminfo import VMInfo, VMInfoSpec, vm_status_of
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.inventory_reload import InventoryReload
from vsphere_operators.vsphere.properties import CUSTOM_FIELDS_MANAGER, ENTITY_MAPPINGS
from vsphere_operators.vsphere.updates import decode_updates

_PAGE_SIZE = 500
_VMS_PER_HOST = 18
_VCENTER = "vc.example.com"
_INDEX_FIELDS = {HostInfo: "hostname", VMInfo: "nodename"}
_MANAGED_FIELDS = [
    {
        "manager": "bench",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-18T19:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {".": {}, "f:nodename": {}}},
    }
]


def _rss_bytes() -> int:
    return memory_bytes(os.getpid())[0]


def read_pages(hosts: int, vms: int) -> list[bytes]:
    """The load of a replayed vCenter, as bytes."""
    return asyncio.run(_read_pages(hosts, vms))


async def _read_pages(hosts: int, vms: int) -> list[bytes]:
    collector = Collector(generate_inventory(hosts, vms))
    paths = {name: mapping.paths for name, mapping in ENTITY_MAPPINGS.items()}
    collector.add_filter({**paths, CUSTOM_FIELDS_MANAGER: ["field"]})
    pages, is_truncated = list[bytes](), True
    while is_truncated:
        result = await collector.wait_for_updates(str(len(pages) or ""), 1, 100)
        pages.append(envelope("WaitForUpdatesEx", result))
        is_truncated = b"<truncated>true" in result[-100:]
    return pages


def load_inventory(pages: Iterable[bytes]) -> Inventory:
    inventory = Inventory(_VCENTER)
    reload = InventoryReload(inventory)
    for page in pages:
        if updates := decode_updates(page):
            reload.add(updates.updates)
    reload.commit()
    return inventory


def _measure_inventory(pages: Sequence[Path]) -> int:
    # What the first pages cost once is not part of an object.
    _load_files(pages[:3])
    gc.collect()
    before = _rss_bytes()
    inventory = _load_files(pages)
    gc.collect()
    return (_rss_bytes() - before) // (len(inventory.vms) + len(inventory.hosts))


def _load_files(pages: Sequence[Path]) -> Inventory:
    return load_inventory(page.read_bytes() for page in pages)


def _metadata(number: int) -> dict[str, Any]:
    return {
        "name": f"object-{number:06}",
        "namespace": f"team-{number % 20:02}",
        "uid": str(uuid.UUID(int=number * 7919 + 2**100, version=4)),
        "resourceVersion": str(1_000_000 + number),
        "generation": 1,
        "creationTimestamp": f"2026-11-18T19:{number // 60 % 60:02}:{number % 60:02}Z",
        "managedFields": _MANAGED_FIELDS,
    }


def _ready(number: int) -> Condition:
    return msgspec.convert(
        {
            "type": "Ready",
            "status": "True",
            "reason": "Reconciled",
            "message": "",
            "lastTransitionTime": f"2026-11-18T19:{number // 60 % 60:02}:{number % 60:02}Z",
            "observedGeneration": 1,
        },
        Condition,
    )


def _encode(obj: Any, number: int) -> bytes:
    obj.status.conditions = [_ready(number)]
    obj.status.observedGeneration = 1
    return json.dumps({**obj.encode(), "metadata": _metadata(number)}).encode()


def _samples(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield _encode(
            Sample(spec=SampleSpec(size=number), status=SampleStatus(doubled=2 * number)), number
        )


def _host_infos(inventory: Inventory, count: int) -> Iterator[bytes]:
    hosts = list(inventory.hosts.values())
    for number in range(count):
        host = hosts[number % len(hosts)]
        status = host_status_of(
            host, inventory.location(host.ref), _VMS_PER_HOST, ("zone:a", "tier:gold"), _VCENTER
        )
        yield _encode(HostInfo(spec=HostInfoSpec(hostname=host.name), status=status), number)


def _vm_infos(inventory: Inventory, count: int) -> Iterator[bytes]:
    vms = list(inventory.vms.values())
    for number in range(count):
        vm = vms[number % len(vms)]
        stores = [inventory.name_of(ref) for ref in vm.datastores]
        host = inventory.name_of(vm.host)
        status = vm_status_of(vm, inventory.location(vm.ref), host, stores, _VCENTER)
        yield _encode(VMInfo(spec=VMInfoSpec(nodename=vm.name), status=status), number)


def _measure_cache(kind: type[Object], pages: Sequence[Path]) -> int:
    store = Cache(Log("bench")).store(kind)
    if field := _INDEX_FIELDS.get(kind):
        store.add_index("name", lambda obj: getattr(obj.spec, field))
    _store_page(kind, store, pages[0].read_bytes())
    gc.collect()
    before, first = _rss_bytes(), len(store.objects)
    for page in pages[1:]:
        _store_page(kind, store, page.read_bytes())
    gc.collect()
    return (_rss_bytes() - before) // (len(store.objects) - first)


def _store_page(kind: type[Object], store: Any, body: bytes) -> None:
    for item in decode_page(kind, body).items:
        store.put(item, origin=Origin.INITIAL_LIST)


def _list_pages(items: Iterator[bytes]) -> Iterator[bytes]:
    while page := [item for item, _ in zip(items, range(_PAGE_SIZE), strict=False)]:
        yield b'{"metadata":{"resourceVersion":"9000000"},"items":[%s]}' % b",".join(page)


def _inventory_for_statuses(count: int) -> Inventory:
    return load_inventory(read_pages(max(1, count // _VMS_PER_HOST), count))


class Row(NamedTuple):
    prepare: Callable[[int], Iterable[bytes]]
    measure: Callable[[Sequence[Path]], int]


ROWS: dict[str, Row] = {
    "Sample in the cache": Row(
        lambda count: _list_pages(_samples(count)), partial(_measure_cache, Sample)
    ),
    "HostInfo in the cache": Row(
        lambda count: _list_pages(_host_infos(_inventory_for_statuses(2000), count)),
        partial(_measure_cache, HostInfo),
    ),
    "VMInfo in the cache": Row(
        lambda count: _list_pages(_vm_infos(_inventory_for_statuses(count), count)),
        partial(_measure_cache, VMInfo),
    ),
    "host or VM in the inventory": Row(
        lambda count: read_pages(count // (_VMS_PER_HOST + 1), count), _measure_inventory
    ),
    "host in the inventory": Row(lambda count: read_pages(count, 0), _measure_inventory),
}


def _run(arguments: Sequence[str]) -> str:
    command = [sys.executable, "-m", "bench.object_memory", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.object_memory", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--only", default="", help="rows with this text in their name")
    parser.add_argument("--prepare", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        for number, page in enumerate(ROWS[options.prepare].prepare(options.count)):
            (options.folder / f"{number:05}").write_bytes(page)
    elif options.measure:
        print(ROWS[options.measure].measure(sorted(options.folder.iterdir())))
    else:
        for name in (name for name in ROWS if options.only in name):
            with tempfile.TemporaryDirectory() as folder:
                _run([f"--prepare={name}", f"--count={options.count}", f"--folder={folder}"])
                size = int(_run([f"--measure={name}", f"--folder={folder}"]))
            print(f"{name:30} {size:6} bytes", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
