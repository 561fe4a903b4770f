"""etcd is restored from a backup while a manager runs: revisions go back, and objects return."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from kubewright.builtin import ConfigMap
from kubewright.cache import Cache
from kubewright.client import Client
from kubewright.kind import Key, ObjectMeta
from kubewright.kubeconfig import load_config
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.reflector import Reflector
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.transport import Transport

STOP_SECONDS = 10.0


@pytest.mark.parametrize("use_watch_list", [False, True], ids=["pages", "stream"])
async def test_restored_backup_replaces_the_cache(
    control_plane: ControlPlane, use_watch_list: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In place of the 70 s, after which a watch is silent. The short watches after it take 6 s, so
    # they end as they should, although the server delivers no event.
    monkeypatch.setattr("kubewright.reflector.WATCH_IDLE_TIMEOUT_SECONDS", 8.0)
    async with ControlPlane(control_plane.binaries) as plane:
        connection = await asyncio.to_thread(
            load_config, str(plane.admin_kubeconfig), environ={}, home=Path("/")
        )
        transport = Transport(connection)
        cache = Cache(Log("test"))
        client, store = Client(transport, cache=cache), cache.store(ConfigMap)
        reflector = Reflector(
            ConfigMap,
            store,
            client,
            Metrics(),
            Log("test"),
            namespace="default",
            use_watch_list=use_watch_list,
        )
        deleted, changed, lost = (Key("default", name) for name in ("deleted", "changed", "lost"))
        for key in (deleted, changed):
            await client.create(ConfigMap(metadata=ObjectMeta(name=key.name, namespace="default")))
        backup = plane.folder / "backup"
        await plane.etcd.process.stop(STOP_SECONDS)
        await asyncio.to_thread(shutil.copytree, plane.folder / "etcd", backup)
        plane.etcd.process.start()
        task = asyncio.create_task(reflector.run())
        await eventually(reflector.synced.is_set, within=60)
        await client.delete(ConfigMap, deleted)
        await client.patch(ConfigMap, changed, {"data": {"a": "b"}})
        for number in range(50):
            await client.patch(ConfigMap, changed, {"data": {"a": str(number)}})
        await client.create(ConfigMap(metadata=ObjectMeta(name=lost.name, namespace="default")))
        await eventually(lambda: store.objects.keys() >= {changed, lost})
        assert deleted not in store.objects
        old_revision = int(reflector.resource_version)
        await plane.apiserver.terminate()
        await plane.etcd.process.stop(STOP_SECONDS)
        await asyncio.to_thread(shutil.rmtree, plane.folder / "etcd")
        await asyncio.to_thread(shutil.copytree, backup, plane.folder / "etcd")
        plane.etcd.process.start()
        await plane.apiserver.start()
        # A stream may bring back an object before its end shows that the server is older.
        await eventually(lambda: deleted in store.objects and lost not in store.objects, within=60)
        stored = cache.get(ConfigMap, changed)
        assert stored is not None
        assert stored.data == {}
        assert int(reflector.resource_version) < old_revision
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await transport.close()
