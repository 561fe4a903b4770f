"""Conditions that a reconcile sets and removes; on the fake and on the real API server."""

from __future__ import annotations

import pytest

from kubewright.controller import controller
from kubewright.kind import Key
from kubewright.metrics import ControllerMetrics
from kubewright.testing import eventually

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Widget, WidgetStatus


async def set_degraded(widget: Widget) -> None:
    widget.status.doubled = widget.spec.size * 2
    if widget.spec.size > 10:
        widget.status.set_condition("Degraded", "True", "TooLarge", f"{widget.spec.size} is a lot.")
    else:
        widget.status.remove_condition("Degraded")


async def resize(api: ApiHarness, size: int) -> Widget:
    """Change the size, and return the Widget when it was reconciled."""
    await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": size}})

    async def is_reconciled() -> Widget | None:
        widget = await api.get_widget()
        return widget if widget.status.doubled == size * 2 else None

    widget = await eventually(is_reconciled)
    assert isinstance(widget, Widget)
    return widget


async def test_condition_has_generation_and_transition_time_and_can_be_removed(
    api: ApiHarness,
) -> None:
    foreign = {
        "type": "Foreign",
        "status": "True",
        "reason": "Because",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await api.create_widget(size=1)
    await api.client.patch_status(Widget, Key(api.namespace, "a"), {"conditions": [foreign]})
    async with run_manager(api, controller(Widget, set_degraded)):
        first = (await resize(api, 20)).status.condition("Degraded")
        assert first is not None
        assert (first.reason, first.message, first.observedGeneration) == (
            "TooLarge",
            "20 is a lot.",
            2,
        )
        assert first.lastTransitionTime is not None
        second = (await resize(api, 30)).status.condition("Degraded")
        assert second is not None
        assert (second.message, second.observedGeneration) == ("30 is a lot.", 3)
        assert second.lastTransitionTime == first.lastTransitionTime, "its status is the same"
        conditions = (await resize(api, 5)).status.conditions
        assert sorted(c.type for c in conditions) == ["Foreign", "Ready"]


async def test_condition_of_an_earlier_process_can_be_removed(api: ApiHarness) -> None:
    await api.create_widget(size=20)
    async with run_manager(api, controller(Widget, set_degraded)):
        await resize(api, 21)
    await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 1}})
    async with run_manager(api, controller(Widget, set_degraded)):
        widget = await resize(api, 1)
        assert [c.type for c in widget.status.conditions] == ["Ready"]


async def test_status_that_sets_the_same_condition_again_is_not_written(api: ApiHarness) -> None:
    await api.create_widget(size=20)
    async with run_manager(api, controller(Widget, set_degraded)):
        before = (await resize(api, 21)).metadata.resourceVersion
    runs = 0

    async def count(widget: Widget) -> None:
        nonlocal runs
        runs += 1
        await set_degraded(widget)

    async with run_manager(api, controller(Widget, count)):
        await eventually(lambda: runs)
    assert (await api.get_widget()).metadata.resourceVersion == before


def test_condition_that_is_removed_and_set_again_is_set() -> None:
    status = WidgetStatus()
    status.set_condition("Degraded", "True", "TooLarge", "")
    status.remove_condition("Degraded")
    assert (status.conditions, status.removed_conditions) == ([], frozenset({"Degraded"}))
    status.set_condition("Degraded", "False", "AsExpected", "")
    assert [c.status for c in status.conditions] == ["False"]
    assert status.removed_conditions == frozenset()


def test_ready_is_not_a_condition_to_set() -> None:
    with pytest.raises(ValueError, match="Ready follows from how the reconcile ends"):
        WidgetStatus().set_condition("Ready", "True", "Reconciled", "")


@pytest.mark.parametrize("condition", ["", "Synced"])
async def test_status_without_ready_loses_fields_and_is_not_written_again(
    api: ApiHarness, condition: str
) -> None:
    async def mirror(widget: Widget) -> None:
        widget.status.doubled = widget.spec.size * 2 or None

    mirroring = controller(Widget, mirror, ready_condition=condition)
    await api.create_widget(size=1)
    async with run_manager(api, mirroring) as manager:
        metrics = ControllerMetrics(manager.metrics, "widget")

        async def has_doubled(expected: int | None) -> bool:
            return (await api.get_widget()).status.doubled == expected

        await eventually(lambda: has_doubled(2))
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 0}})
        await eventually(lambda: has_doubled(None))
        before, version = metrics.status_writes.value, (await api.get_widget()).metadata
        for _ in range(3):
            unchanged = metrics.status_unchanged.value
            mirroring.enqueue(Key(api.namespace, "a"))
            await eventually(lambda: metrics.status_unchanged.value > unchanged)  # noqa: B023
        assert metrics.status_writes.value == before
        assert (await api.get_widget()).metadata.resourceVersion == version.resourceVersion
