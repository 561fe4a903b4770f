from __future__ import annotations

import asyncio

from kubewright.slices import call_in_slices


async def test_others_run_between_slices() -> None:
    calls: list[int] = []
    call_in_slices(calls.append, range(1_200))
    assert calls == list(range(500))
    await asyncio.sleep(0)
    assert calls == list(range(1_000))
    await asyncio.sleep(0)
    assert calls == list(range(1_200))


def test_few_items_need_no_event_loop() -> None:
    calls: list[int] = []
    call_in_slices(calls.append, range(499))
    assert len(calls) == 499
