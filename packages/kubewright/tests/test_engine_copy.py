"""A reconcile has a copy of its object: what it changes never reaches the cache, and a change that
would be lost is an error; on the fake and on the real API server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubewright.builtin import ConfigMap
from kubewright.controller import controller
from kubewright.kind import Key, ObjectMeta
from kubewright.testing import eventually

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Widget, WidgetSpec


def change_label(widget: Widget) -> None:
    widget.metadata.labels["changed"] = "yes"


def change_metadata(widget: Widget) -> None:
    widget.metadata = ObjectMeta(name=widget.metadata.name)


def change_spec(widget: Widget) -> None:
    widget.spec = WidgetSpec(size=7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_label, 'changed metadata .* use self.client.patch(Widget, obj.key, {"metadata"'),
        (change_metadata, 'changed metadata .* use self.client.patch(Widget, obj.key, {"metadata"'),
        (change_spec, 'changed spec .* use self.client.patch(Widget, obj.key, {"spec": ...})'),
    ],
)
async def test_change_that_would_be_lost_is_an_error_that_names_the_verb(
    api: ApiHarness, change: Callable[[Widget], None], message: str
) -> None:
    async def reconcile(widget: Widget) -> None:
        change(widget)

    async with run_manager(api, controller(Widget, reconcile)) as manager:
        await api.create_widget(size=3)
        condition = await api.wait_for_ready(reason="Error")
        before, after = message.split(" .* ")
        assert before in condition.message
        assert after in condition.message
        cached = manager.cache.get(Widget, Key(api.namespace, "a"))
        assert cached is not None
        assert (cached.spec.size, cached.metadata.labels) == (3, {})


async def test_changed_data_is_an_error(api: ApiHarness, caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile(config_map: ConfigMap) -> None:
        if config_map.metadata.name == "a":
            config_map.data["key"] = "changed"

    async with run_manager(api, controller(ConfigMap, reconcile)) as manager:
        metadata = ObjectMeta(name="a", namespace=api.namespace)
        await api.client.create(ConfigMap(metadata=metadata, data={"key": "value"}))
        await eventually(lambda: "the reconcile changed data of its copy" in caplog.text)
        cached = manager.cache.get(ConfigMap, Key(api.namespace, "a"))
        assert cached is not None
        assert cached.data == {"key": "value"}


async def test_status_of_the_copy_is_written_and_not_shared_before(api: ApiHarness) -> None:
    cached_values: list[int | None] = []

    async def reconcile(widget: Widget) -> None:
        widget.status.doubled = 8
        cached = manager.cache.get(Widget, widget.key)
        cached_values.append(cached.status.doubled if cached else None)

    async with run_manager(api, controller(Widget, reconcile)) as manager:
        await api.create_widget(size=4)
        await api.wait_for_ready()
    assert cached_values == [None]
    assert (await api.get_widget()).status.doubled == 8
