"""Writes on the real API server with concurrent writers, throttling and lost responses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from kubewright.controller import controller
from kubewright.kind import Key
from kubewright.testing import eventually
from kubewright.testing.proxy import HttpProxy

from ..support.api_harness import ApiHarness, run_manager
from ..support.widget_kind import Widget, double
from .proxied_manager import (
    WIDGET_STATUS_PATH,
    WIDGETS_PATH,
    connect_through,
    wait_until_reconciled,
)

RETRY_AFTER_SECONDS = 2
RETRY_AFTER = {"Retry-After": str(RETRY_AFTER_SECONDS)}


def foreign_condition_patch(status: str) -> dict[str, object]:
    condition = {
        "type": "Foreign",
        "status": status,
        "reason": "Because",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {"status": {"conditions": [condition]}}


async def test_conflict_on_a_status_write_keeps_the_condition_of_the_other_writer(
    real_api: ApiHarness, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    key = (await api.create_widget(size=4)).key
    await api.client.patch(Widget, key, foreign_condition_patch("True"), subresource="status")
    runs = 0

    async def patch_before_own_write(widget: Widget) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            await api.client.patch(
                Widget, key, foreign_condition_patch("False"), subresource="status"
            )
        await double(widget)

    async with run_manager(api, controller(Widget, patch_before_own_write)) as manager:
        await wait_until_reconciled(api, manager)
        widget = await api.get_widget()
        assert {c.type: c.status for c in widget.status.conditions} == {
            "Foreign": "False",
            "Ready": "True",
        }
        assert [
            request.status for request in http_proxy.find_requests("PUT", WIDGET_STATUS_PATH)
        ] == [
            409,
            200,
        ]
        assert await api.list_events() == []


async def test_status_of_a_deleted_object_is_never_written_to_its_successor(
    real_api: ApiHarness, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    old = await api.create_widget(size=1)
    reconciled_uids: list[str] = []

    async def replace_while_running(widget: Widget) -> None:
        if widget.metadata.uid == old.metadata.uid:
            await api.client.delete(Widget, widget.key)
            await api.create_widget(size=7)
        reconciled_uids.append(widget.metadata.uid)
        await double(widget)

    async with run_manager(api, controller(Widget, replace_while_running)) as manager:
        await wait_until_reconciled(api, manager)
        assert reconciled_uids[0] == old.metadata.uid
        assert [
            request.status for request in http_proxy.find_requests("PUT", WIDGET_STATUS_PATH)
        ] == [
            409,
            200,
        ]
        assert (await api.get_widget()).status.doubled == 14


async def test_throttled_status_write_waits_for_retry_after_and_delays_no_other_object(
    real_api: ApiHarness, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    rule = http_proxy.fail_next("PUT", "*/widgets/slow/status", 429, headers=RETRY_AFTER, times=2)
    async with run_manager(api, controller(Widget, double)) as manager:
        await api.create_widget("slow", size=1)
        await eventually(lambda: rule.matched_requests)
        await api.create_widget("other", size=2)
        await api.wait_for_ready("other")
        await wait_until_reconciled(api, manager)
    names = [
        request.path.split("/")[-2]
        for request in http_proxy.find_requests("PUT", WIDGET_STATUS_PATH)
    ]
    assert names.index("other") < len(names) - 1, "it waited for the throttled object"
    attempts = http_proxy.find_requests("PUT", "*/widgets/slow/status")
    assert [request.status for request in attempts] == [429, 429, 200]
    assert all(
        later.received_at - earlier.received_at >= RETRY_AFTER_SECONDS
        for earlier, later in pairwise(attempts)
    )


@pytest.mark.parametrize("watch", [False, True], ids=["list", "watch"])
async def test_throttled_read_waits_for_retry_after(
    real_api: ApiHarness, http_proxy: HttpProxy, tmp_path: Path, watch: bool
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    rule = http_proxy.fail_next("GET", WIDGETS_PATH, 429, headers=RETRY_AFTER, watch=watch)
    async with run_manager(api, controller(Widget, double)) as manager:
        await eventually(lambda: rule.matched_requests)
        await api.create_widget(size=1)
        await wait_until_reconciled(api, manager)
    first, second, *_ = http_proxy.find_requests("GET", WIDGETS_PATH, watch=watch)
    assert (first.status, second.status) == (429, 200)
    assert second.received_at - first.received_at >= RETRY_AFTER_SECONDS


async def test_status_is_right_after_a_write_without_a_response(
    real_api: ApiHarness, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    rule = http_proxy.drop_next_response("PUT", WIDGET_STATUS_PATH)
    async with run_manager(api, controller(Widget, double)) as manager:
        await api.create_widget(size=1)
        await wait_until_reconciled(api, manager)
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 2}})
        await wait_until_reconciled(api, manager)
    assert rule.upstream_statuses == [200]
