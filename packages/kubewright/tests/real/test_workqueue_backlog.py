"""An edit by a user overtakes a backlog of 5,000 keys on the real API server."""

from __future__ import annotations

import asyncio

from kubewright.controller import controller
from kubewright.kind import Key
from kubewright.testing import eventually

from ..support.api_harness import ApiHarness, run_manager
from ..support.widget_kind import Widget

BACKLOG_SIZE = 5000


async def test_edit_overtakes_a_backlog_of_five_thousand_objects(real_api: ApiHarness) -> None:
    numbers = iter(range(BACKLOG_SIZE))

    async def create() -> None:
        for number in numbers:
            await real_api.create_widget(f"w{number:04}")

    await asyncio.gather(*(create() for _ in range(16)))
    order: list[tuple[str, int]] = []
    edited = asyncio.Event()

    async def slow(widget: Widget) -> None:
        order.append((widget.metadata.name, widget.spec.size))
        await edited.wait()

    async with run_manager(
        real_api, controller(Widget, slow, max_concurrent_reconciles=1)
    ) as manager:
        await eventually(lambda: order, within=60)
        await real_api.client.patch(Widget, Key(real_api.namespace, "w4999"), {"spec": {"size": 7}})
        await eventually(
            lambda: (
                [w.spec.size for w in manager.cache.all(Widget) if w.metadata.name == "w4999"]
                == [7]
            )
        )
        edited.set()
        await eventually(lambda: len(order) >= 2)
        assert order[1] == ("w4999", 7)
