"""Writes on the real API server while somebody else writes too, or the server asks for patience."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from kubewright.controller import controller
from kubewright.meta import Key
from kubewright.testing import eventually
from kubewright.testing.proxy import HttpProxy

from ..kinds import Widget, double
from ..rig import Api, running
from .wire import WIDGET_STATUSES, WIDGETS, settled, through

PATIENCE_SECONDS = 2


def theirs(status: str) -> dict[str, object]:
    """A condition of another controller."""
    condition = {
        "type": "Theirs",
        "status": status,
        "reason": "Because",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {"status": {"conditions": [condition]}}


async def test_a_409_on_a_status_write_keeps_the_other_writers_condition(
    real_api: Api, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    key = (await api.widget(size=4)).key
    await api.client.patch(Widget, key, theirs("True"), subresource="status")
    runs = 0

    async def overtaken(widget: Widget) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            await api.client.patch(Widget, key, theirs("False"), subresource="status")
        await double(widget)

    async with running(api, controller(Widget, overtaken)) as manager:
        await settled(api, manager)
        widget = await api.get()
        assert {c.type: c.status for c in widget.status.conditions} == {
            "Theirs": "False",
            "Ready": "True",
        }
        assert [seen.status for seen in http_proxy.find_requests("PATCH", WIDGET_STATUSES)] == [
            409,
            200,
        ]
        assert await api.events() == []


async def test_the_answer_for_a_deleted_object_never_lands_on_its_successor(
    real_api: Api, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    old = await api.widget(size=1)
    answered: list[str] = []

    async def outlived(widget: Widget) -> None:
        if widget.metadata.uid == old.metadata.uid:
            await api.client.delete(Widget, widget.key)
            await api.widget(size=7)
        answered.append(widget.metadata.uid)
        await double(widget)

    async with running(api, controller(Widget, outlived)) as manager:
        await settled(api, manager)
        assert answered[0] == old.metadata.uid
        assert [seen.status for seen in http_proxy.find_requests("PATCH", WIDGET_STATUSES)] == [
            409,
            200,
        ]
        assert (await api.get()).status.doubled == 14


async def test_a_throttled_status_write_comes_again_no_earlier_than_asked_and_holds_up_nobody(
    real_api: Api, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    rule = http_proxy.throttle_next("PATCH", "*/widgets/slow/status", PATIENCE_SECONDS, times=2)
    async with running(api, controller(Widget, double)) as manager:
        await api.widget("slow", size=1)
        await eventually(lambda: rule.matched_requests)
        await api.widget("other", size=2)
        await api.ready("other", within=PATIENCE_SECONDS / 2)
        await settled(api, manager)
    attempts = http_proxy.find_requests("PATCH", "*/widgets/slow/status")
    assert [seen.status for seen in attempts] == [429, 429, 200]
    assert all(
        later.received_at - earlier.received_at >= PATIENCE_SECONDS
        for earlier, later in pairwise(attempts)
    )


@pytest.mark.parametrize("watch", [False, True], ids=["list", "watch"])
async def test_a_throttled_read_comes_again_no_earlier_than_asked(
    real_api: Api, http_proxy: HttpProxy, tmp_path: Path, watch: bool
) -> None:
    api = await through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    rule = http_proxy.throttle_next("GET", WIDGETS, PATIENCE_SECONDS, watch=watch)
    async with running(api, controller(Widget, double)) as manager:
        await eventually(lambda: rule.matched_requests)
        await api.widget(size=1)
        await settled(api, manager)
    first, second, *_ = http_proxy.find_requests("GET", WIDGETS, watch=watch)
    assert (first.status, second.status) == (429, 200)
    assert second.received_at - first.received_at >= PATIENCE_SECONDS


async def test_a_status_write_that_was_done_but_unanswered_is_right_in_the_end(
    real_api: Api, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    rule = http_proxy.drop_next_response("PATCH", WIDGET_STATUSES)
    async with running(api, controller(Widget, double)) as manager:
        await api.widget(size=1)
        await settled(api, manager)
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 2}})
        await settled(api, manager)
    assert rule.upstream_statuses == [200]
