"""After every fault of a watch on the real API server, the manager finds what it missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qs

import aiohttp
import pytest

from kubewright.controller import controller
from kubewright.kind import Key
from kubewright.manager import Manager, Options
from kubewright.source import Stream
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.proxy import HttpProxy, RecordedRequest, TcpProxy

from ..support.api_harness import ApiHarness, run_manager
from ..support.widget_kind import Widget, WidgetStatus, double
from .proxied_manager import (
    WIDGET_STATUS_PATH,
    WIDGETS_PATH,
    change_widgets,
    connect_through,
    create_widgets,
    wait_until_reconciled,
)

OUTAGE_SECONDS = 60.0
EXPIRED_STATUS = {
    "kind": "Status",
    "status": "Failure",
    "code": 410,
    "reason": "Expired",
    "message": "too old resource version: 1 (2)",
}


async def test_stalled_watch_is_noticed_within_75_seconds_and_nothing_is_missed(
    real_api: ApiHarness, http_proxy: HttpProxy, tcp_proxy: TcpProxy, tmp_path: Path
) -> None:
    api = await connect_through(
        real_api,
        http_proxy.write_kubeconfig(
            tmp_path / "config", server=f"https://127.0.0.1:{tcp_proxy.port}"
        ),
    )
    await create_widgets(api)
    async with run_manager(api, controller(Widget, double)) as manager:
        await wait_until_reconciled(api, manager)
        stalled_at = asyncio.get_running_loop().time()
        tcp_proxy.stall_existing()
        await change_widgets(api)
        with pytest.raises(AssertionError, match="not true within"):
            await wait_until_reconciled(api, manager, within=1)
        await wait_until_reconciled(
            api, manager, within=stalled_at + 75 - asyncio.get_running_loop().time()
        )
        assert {key.name for key in manager.cache.store(Widget).objects} == {
            "kept",
            "changed",
            "created",
        }
        assert len(http_proxy.find_requests("GET", WIDGETS_PATH, watch=False)) == 1


async def test_changes_behind_a_buffering_proxy_are_found_and_reported(
    real_api: ApiHarness,
    http_proxy: HttpProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In place of the 70 s, which are longer than the interval of bookmarks.
    monkeypatch.setattr("kubewright.reflector.WATCH_IDLE_TIMEOUT_SECONDS", 2.0)
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    await create_widgets(api)
    # Buffering begins before the first watch: every watch is accepted, and none delivers a line.
    http_proxy.hold_watches()
    health = Options(
        metrics_bind_address="127.0.0.1:0",
        health_probe_bind_address="127.0.0.1:0",
        watch_namespaces=(api.namespace,),
        graceful_shutdown_seconds=5,
    )
    async with run_manager(api, controller(Widget, double), options=health) as manager:
        await eventually(lambda: http_proxy.find_watches(WIDGETS_PATH))
        await change_widgets(api)
        await wait_until_reconciled(api, manager, within=60)
        watches = http_proxy.find_requests("GET", WIDGETS_PATH, watch=True)
        assert {watch.status for watch in watches[:-1]} == {200}
        assert len(http_proxy.find_requests("GET", WIDGETS_PATH, watch=False)) >= 2
        status, text = await read_readyz(manager)
        assert status == 500
        assert "[-]watches failed: widgets.kubewright.test: the watches of" in text
        assert "A proxy in front of the API server probably buffers responses" in text
        silent = 'kubewright_watch_silent{kind="widgets.kubewright.test"} '
        assert f"{silent}1.0\n" in manager.metrics.exposition()[0].decode()
        http_proxy.release_watches()
        await api.create_widget("late", size=3)
        await wait_until_reconciled(api, manager)
        assert (await read_readyz(manager))[0] == 200
        assert f"{silent}0.0\n" in manager.metrics.exposition()[0].decode()


async def test_proxy_that_forwards_a_watch_at_its_end_delays_changes_only(
    real_api: ApiHarness,
    http_proxy: HttpProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kubewright.reflector.WATCH_IDLE_TIMEOUT_SECONDS", 8.0)
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    await create_widgets(api)
    http_proxy.buffers_watches = True
    async with run_manager(api, controller(Widget, double)) as manager:
        await eventually(lambda: http_proxy.find_watches(WIDGETS_PATH))
        await change_widgets(api)
        # The first watch is silent for 8 s, and the API server ends the next after 6 s.
        await wait_until_reconciled(api, manager, within=25)
        await api.create_widget("late", size=3)
        await wait_until_reconciled(api, manager)
        assert manager.watches.check() is None
    watches = http_proxy.find_requests("GET", WIDGETS_PATH, watch=True)
    assert int(parse_qs(watches[0].query)["timeoutSeconds"][0]) >= 300
    assert parse_qs(watches[1].query)["timeoutSeconds"] == ["6"]
    lists = http_proxy.find_requests("GET", WIDGETS_PATH, watch=False)
    # After a silent watch, a list of one object shows whether etcd was restored.
    assert len([request for request in lists if request.query != "limit=1"]) == 1


async def read_readyz(manager: Manager) -> tuple[int, str]:
    assert manager.server is not None
    url = f"http://127.0.0.1:{manager.server.health_port}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def expire_open_watch(proxy: HttpProxy) -> None:
    assert await proxy.inject_line({"type": "ERROR", "object": EXPIRED_STATUS}, WIDGETS_PATH) == 1


async def expire_next_watch(proxy: HttpProxy) -> None:
    proxy.expire_next_watch(WIDGETS_PATH)
    assert proxy.abort_watches(WIDGETS_PATH) == 1


@pytest.mark.parametrize("expire", [expire_open_watch, expire_next_watch])
async def test_410_in_either_form_leads_to_a_new_list(
    real_api: ApiHarness,
    http_proxy: HttpProxy,
    tmp_path: Path,
    expire: Callable[[HttpProxy], Awaitable[None]],
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    await create_widgets(api)
    async with run_manager(api, controller(Widget, double)) as manager:
        await wait_until_reconciled(api, manager)
        await eventually(lambda: http_proxy.find_watches(WIDGETS_PATH))
        delayed = http_proxy.delay_next("GET", WIDGETS_PATH, 1.0, watch=False)
        await expire(http_proxy)
        await eventually(lambda: delayed.matched_requests)
        await change_widgets(api)
        await wait_until_reconciled(api, manager)
        assert len(http_proxy.find_requests("GET", WIDGETS_PATH, watch=False)) == 2
        assert {key.name for key in manager.cache.store(Widget).objects} == {
            "kept",
            "changed",
            "created",
        }


async def test_watch_older_than_a_compaction_misses_nothing(
    real_api: ApiHarness,
    control_plane: ControlPlane,
    http_proxy: HttpProxy,
    tcp_proxy: TcpProxy,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    api = await connect_through(
        real_api,
        http_proxy.write_kubeconfig(
            tmp_path / "config", server=f"https://127.0.0.1:{tcp_proxy.port}"
        ),
    )
    await create_widgets(api)
    async with run_manager(api, controller(Widget, double)) as manager:
        await wait_until_reconciled(api, manager)
        tcp_proxy.stall()
        await asyncio.gather(
            *(api.create_widget(f"w{number:03}", size=number) for number in range(200))
        )
        await change_widgets(api)
        oldest = await control_plane.etcd.compact()
        await control_plane.restart_apiserver()
        # The held-back data is dropped too: the manager has to resume the watch, not the stream.
        tcp_proxy.abort_connections()
        tcp_proxy.resume()
        await wait_until_reconciled(api, manager, within=30)
        assert {key.name for key in manager.cache.store(Widget).objects} >= {
            "kept",
            "changed",
            "created",
            "w199",
        }
        assert Key(api.namespace, "deleted") not in manager.cache.store(Widget).objects
    assert "the resourceVersion of the watch is too old, listing again" in caplog.text
    assert (
        resource_version_of(http_proxy.find_requests("GET", WIDGETS_PATH, watch=True)[1]) < oldest
    )
    assert len(http_proxy.find_requests("GET", WIDGETS_PATH, watch=False)) == 2


def resource_version_of(watch: RecordedRequest) -> int:
    return int(parse_qs(watch.query)["resourceVersion"][0])


async def test_compaction_alone_has_no_effect(
    real_api: ApiHarness, control_plane: ControlPlane, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    await create_widgets(api)
    async with run_manager(api, controller(Widget, double)) as manager:
        await wait_until_reconciled(api, manager)
        await control_plane.etcd.compact()
        await change_widgets(api)
        await wait_until_reconciled(api, manager)
        assert http_proxy.abort_watches(WIDGETS_PATH) == 1
        await control_plane.etcd.compact()
        await api.create_widget("after", size=5)
        await wait_until_reconciled(api, manager)


async def test_api_server_that_is_down_for_a_minute_is_retried_with_back_off(
    real_api: ApiHarness, control_plane: ControlPlane, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    outside, factor = Stream(), 2

    async def multiply(widget: Widget) -> None:
        widget.status = WidgetStatus(doubled=widget.spec.size * factor)

    multiplying = controller(Widget, multiply)
    multiplying.watches(outside, index_by=lambda widget: widget.metadata.name)
    await create_widgets(api)
    async with run_manager(api, multiplying) as manager:
        await wait_until_reconciled(api, manager)
        reads_before, writes_before = (
            len(http_proxy.find_requests("GET", WIDGETS_PATH)),
            len(http_proxy.find_requests("PATCH", WIDGET_STATUS_PATH)),
        )
        await control_plane.apiserver.kill()
        try:
            factor = 3
            outside.notify("changed")
            await asyncio.sleep(OUTAGE_SECONDS)
            reads = len(http_proxy.find_requests("GET", WIDGETS_PATH)) - reads_before
            writes = len(http_proxy.find_requests("PATCH", WIDGET_STATUS_PATH)) - writes_before
        finally:
            factor = 2
            await control_plane.apiserver.start()
        # The back-off of a watch grows to 8 s; aiohttp sends twice when a connection breaks.
        assert 5 <= reads <= 26
        # The back-off of a key doubles with each failed status write.
        assert 5 <= writes <= 20
        await change_widgets(api)
        await wait_until_reconciled(api, manager, within=60)


async def test_manager_never_acts_on_data_of_a_stale_api_server(
    real_api: ApiHarness, control_plane: ControlPlane, tmp_path: Path
) -> None:
    await real_api.create_widget(size=1)
    sizes: list[int] = []

    async def record(widget: Widget) -> None:
        sizes.append(widget.spec.size)
        await double(widget)

    async with (
        TcpProxy("127.0.0.1", control_plane.etcd.port.number) as to_etcd,
        control_plane.create_apiserver(f"http://127.0.0.1:{to_etcd.port}") as other,
        HttpProxy(other.url, control_plane.admin_tls, control_plane.bearer_tls) as proxy,
    ):
        api = await connect_through(real_api, proxy.write_kubeconfig(tmp_path / "config"))
        to_etcd.stall()
        await real_api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 2}})
        async with run_manager(api, controller(Widget, record)) as manager:
            await eventually(lambda: proxy.find_requests("GET", WIDGETS_PATH, watch=False))
            assert (
                "resourceVersion=0"
                not in proxy.find_requests("GET", WIDGETS_PATH, watch=False)[0].query
            )
            await asyncio.sleep(4)
            assert sizes == []
            to_etcd.resume()
            await wait_until_reconciled(api, manager, within=40)
    assert set(sizes) == {2}
