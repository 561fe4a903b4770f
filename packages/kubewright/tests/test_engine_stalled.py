"""The condition Stalled and unobserved objects, for GitOps tools; on the fake and on the real API
server.
"""

from __future__ import annotations

from typing import Any

from kubewright.condition import find_condition
from kubewright.controller import controller
from kubewright.errors import Retry, Terminal
from kubewright.kind import Key
from kubewright.outcome import Waiting
from kubewright.readiness import readiness_of
from kubewright.testing import eventually

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Widget

OUTCOMES: dict[int, Any] = {
    1: Terminal("NotFound", "There is no such thing."),
    2: Terminal("Unreachable", "The server does not answer.", stalled=False),
    3: Retry("NoTemplate", "The template is missing.", requeue_after_seconds=60, stalled=True),
    4: Retry("Busy", "The server is busy.", requeue_after_seconds=60),
    5: Waiting("Working", "Work is in progress."),
    6: None,
}
STATES = {1: "Failed", 2: "InProgress", 3: "Failed", 4: "InProgress", 5: "InProgress", 6: "Current"}


async def end_by_size(widget: Widget) -> Waiting | None:
    outcome: Waiting | Exception | None = OUTCOMES[widget.spec.size]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def resize(api: ApiHarness, size: int) -> Widget:
    """Change the size, and return the Widget when it was reconciled."""
    await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": size}})

    async def is_observed() -> Widget | None:
        widget = await api.get_widget()
        return widget if widget.status.observedGeneration == widget.metadata.generation else None

    widget = await eventually(is_observed)
    assert isinstance(widget, Widget)
    return widget


async def test_stalled_follows_the_outcome(api: ApiHarness) -> None:
    await api.create_widget(size=6)
    async with run_manager(api, controller(Widget, end_by_size)):
        for size in (1, 2, 3, 4, 1, 5, 3, 6):
            widget = await resize(api, size)
            assert readiness_of(widget).state == STATES[size], size
            ready, stalled = (
                find_condition(widget.status.conditions, name) for name in ("Ready", "Stalled")
            )
            assert (stalled is not None) == (STATES[size] == "Failed"), size
            if stalled is not None:
                assert ready is not None
                assert stalled.status == "True"
                assert (stalled.reason, stalled.message, stalled.observedGeneration) == (
                    ready.reason,
                    ready.message,
                    widget.metadata.generation,
                )


async def test_stalled_of_another_writer_stays(api: ApiHarness) -> None:
    foreign = {
        "type": "Stalled",
        "status": "True",
        "reason": "Quota",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await api.create_widget(size=6)
    await api.client.patch_status(Widget, Key(api.namespace, "a"), {"conditions": [foreign]})
    async with run_manager(api, controller(Widget, end_by_size)):
        for size in (5, 6):
            widget = await resize(api, size)
            stalled = find_condition(widget.status.conditions, "Stalled")
            assert stalled is not None
            assert stalled.reason == "Quota"


async def test_stalled_that_an_older_version_left_is_removed_once(api: ApiHarness) -> None:
    # As a version without Stalled leaves it, when the reason of Stalled is gone.
    left = {
        "type": "Stalled",
        "status": "True",
        "reason": "NotFound",
        "message": "There is no such thing.",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    ready = left | {"type": "Ready", "reason": "Reconciled", "message": ""}
    await api.create_widget(size=6)
    patch = {"conditions": [left, ready], "observedGeneration": 1}
    await api.client.patch_status(Widget, Key(api.namespace, "a"), patch)

    async def has_stalled() -> bool:
        conditions = (await api.get_widget()).status.conditions
        return find_condition(conditions, "Stalled") is not None

    async def has_no_stalled() -> bool:
        return not await has_stalled()

    async with run_manager(api, controller(Widget, end_by_size)):
        await eventually(has_no_stalled)
        # One that comes back has another writer.
        await api.client.patch_status(Widget, Key(api.namespace, "a"), patch)
        for size in (5, 6):
            await resize(api, size)
            assert await has_stalled()


def test_unobserved_generation_is_absent_in_memory() -> None:
    widget = Widget.decode(b'{"metadata": {"name": "a"}, "status": {"observedGeneration": -1}}')
    assert widget.status.observedGeneration is None
    assert "observedGeneration" not in widget.encode().get("status", {})
