"""The first status of an object is sent by PUT, later ones are patches."""

from __future__ import annotations

from kubewright.api.apps_v1 import Deployment
from kubewright.client import Client
from kubewright.controller import controller
from kubewright.errors import Forbidden
from kubewright.kind import Key, Resource, kind
from kubewright.metrics import ControllerMetrics
from kubewright.selection import select
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Widget, WidgetSpec, WidgetStatus, double


class NewerStatus(WidgetStatus):
    tripled: int | None = None


@kind("kubewright.test/v1", name="Widget")
class NewerWidget(Resource[WidgetSpec, NewerStatus]):
    """A widget of the next release."""


def methods_of_status_writes(fake: FakeApi) -> list[str]:
    return [request.method for request in fake.writes() if request.path.endswith("/status")]


async def test_later_statuses_keep_fields_of_a_newer_release() -> None:
    fake = FakeApi([NewerWidget])
    api = ApiHarness(fake, Client(fake), "n")
    async with run_manager(api, controller(Widget, double)):
        key = (await api.create_widget(size=1)).key
        await api.wait_for_ready()
        assert methods_of_status_writes(fake) == ["PUT"]
        await api.client.patch_status(NewerWidget, key, {"tripled": 3})
        await api.client.patch(Widget, key, {"spec": {"size": 2}})
        await eventually(lambda: methods_of_status_writes(fake) == ["PUT", "PATCH", "PATCH"])
        newer = await api.client.get(NewerWidget, key)
        assert (newer.status.doubled, newer.status.tripled) == (4, 3)


async def test_statuses_are_patched_if_the_role_does_not_allow_to_replace_them() -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    fake.fail_next("PUT", "/status", Forbidden("cannot update resource widgets/status"), times=9)
    async with run_manager(api, controller(Widget, double)) as manager:
        await api.create_widget("a", size=1)
        await api.wait_for_ready("a")
        await api.create_widget("b", size=2)
        await api.wait_for_ready("b")
        assert methods_of_status_writes(fake) == ["PUT", "PATCH", "PATCH"]
        assert ControllerMetrics(manager.metrics, "widget").results["error"].value == 0


def test_a_status_is_replaced_only_by_an_object_that_has_all_fields() -> None:
    assert Widget.definition.can_replace_status
    assert select(Widget, label_selector="app=web").definition.can_replace_status
    assert not select(Widget, transform=lambda widget: widget).definition.can_replace_status
    assert not select(Widget, metadata_only=True).definition.can_replace_status
    assert not Deployment.definition.can_replace_status


async def test_first_status_keeps_the_conditions_of_other_writers(api: ApiHarness) -> None:
    await api.create_widget(size=1)
    condition = {
        "type": "Foreign",
        "status": "True",
        "reason": "Because",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    key = Key(api.namespace, "a")
    await api.client.patch_status(Widget, key, {"conditions": [condition]})
    async with run_manager(api, controller(Widget, double)):
        await api.wait_for_ready()
        widget = await api.get_widget()
        assert [c.type for c in widget.status.conditions] == ["Foreign", "Ready"]
