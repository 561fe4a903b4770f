"""Controllers of kinds that Kubernetes or another operator declares: their status is never written
unless asked for; on the fake and on the real API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubewright.builtin import ConfigMap, Namespace, Pod, Secret
from kubewright.controller import Controller, controller
from kubewright.errors import Retry, Terminal
from kubewright.kind import Key, Object, ObjectMeta, Resource, Spec, kind
from kubewright.metrics import ControllerMetrics
from kubewright.outcome import Done, Waiting
from kubewright.rbac import manager_rules
from kubewright.testing import eventually
from kubewright.transport import Request

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Widget, WidgetSpec, WidgetStatus


class StrictSpec(Spec):
    required: str


@kind("kubewright.test/v1", name="Widget", external=True)
class ForeignWidget(Resource[WidgetSpec, WidgetStatus]):
    """A Widget as another operator sees it: it may not write its status."""


async def read_status(api: ApiHarness, path: str) -> dict[str, Any]:
    body = msgspec.json.decode(await api.transport.send(Request("GET", path)))
    status: dict[str, Any] = body.get("status", {})
    return status


async def create_pod(api: ApiHarness) -> str:
    """A Pod with a status as kubelet writes it; returns its path."""
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "automountServiceAccountToken": False,
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": api.namespace},
        "spec": spec,
    }
    key = Key(api.namespace, "a")
    await api.client.patch(Pod, key, manifest, patch_type="apply", force=True)
    conditions = [{"type": "Ready", "status": "True"}]
    await api.client.patch_status(Pod, key, {"phase": "Running", "conditions": conditions})
    return Pod.definition.path(api.namespace, "a")


async def test_terminal_leaves_the_status_of_a_pod_as_it_is(api: ApiHarness) -> None:
    path = await create_pod(api)
    before = await read_status(api, path)

    async def reject(pod: Pod) -> None:
        raise Terminal("Unwanted", "This Pod is not wanted here.")

    async with run_manager(api, controller(Pod, reject)) as manager:
        await eventually(lambda: has_event(api, ("Warning", "Unwanted")))
        assert ControllerMetrics(manager.metrics, "pod").status_writes.value == 0
    assert before["phase"] == "Running"
    assert await read_status(api, path) == before


async def has_event(api: ApiHarness, event: tuple[str, str], name: str = "a") -> bool:
    return event in await api.list_events(name)


def test_role_does_not_grant_the_status_of_a_foreign_kind() -> None:
    async def noop(obj: Any) -> None:
        """Reconciles nothing."""

    def resources(*controllers: Controller[Any]) -> set[str]:
        return {rule["resources"][0] for rule in manager_rules(controllers)}

    assert "pods/status" not in resources(controller(Pod, noop))
    assert "pods/status" in resources(controller(Pod, noop, writes_status=True))
    assert "widgets/status" in resources(controller(Widget, noop))
    assert "configmaps/status" not in resources(controller(ConfigMap, noop))


@pytest.mark.parametrize("external_kind", [ConfigMap, Secret])
async def test_kind_without_spec_and_status_can_be_reconciled(
    api: ApiHarness, external_kind: type[Object]
) -> None:
    names: list[str] = []

    async def record(obj: Any) -> Done:
        names.append(obj.metadata.name)
        return Done("Seen")

    async with run_manager(api, controller(external_kind, record)):
        await api.client.create(
            external_kind(metadata=ObjectMeta(name="a", namespace=api.namespace))
        )
        await eventually(lambda: "a" in names)
        await api.client.patch(
            external_kind, Key(api.namespace, "a"), {"metadata": {"labels": {"x": ""}}}
        )
        await eventually(lambda: names.count("a") == 2)


async def test_namespace_can_be_reconciled(api: ApiHarness) -> None:
    phases: dict[str, str] = {}

    async def record(namespace: Namespace) -> None:
        phases[namespace.metadata.name] = namespace.status.phase

    name = f"{api.namespace}-other"
    async with run_manager(api, controller(Namespace, record)):
        await api.client.create(Namespace(metadata=ObjectMeta(name=name)))
        await eventually(lambda: name in phases)


async def test_failures_without_a_condition_are_events_and_log_lines(
    api: ApiHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    problems = ["first", "first", "second", ""]
    runs = 0

    async def fail(config_map: ConfigMap) -> Done | Waiting:
        nonlocal runs
        if config_map.metadata.name != "a":
            return Done()
        problem = problems[min(runs, 3)]
        runs += 1
        if problem:
            raise Retry(
                f"Is{problem.title()}", f"the {problem} problem", requeue_after_seconds=0.01
            )
        return Done("Solved", "All is well.")

    async with run_manager(api, controller(ConfigMap, fail)):
        await api.client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace=api.namespace)))
        await eventually(lambda: has_event(api, ("Normal", "Solved")))
        assert set(await api.list_events()) == {
            ("Warning", "IsFirst"),
            ("Warning", "IsSecond"),
            ("Normal", "Solved"),
        }
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("the object is")]
    assert lines == ["the object is not ready", "the object is not ready", "the object is ready"]


async def test_status_of_a_foreign_kind_is_written_if_asked_for(api: ApiHarness) -> None:
    async def set_status(widget: ForeignWidget) -> Done:
        widget.status.doubled = widget.spec.size * 2
        return Done("Doubled")

    doubling = controller(ForeignWidget, set_status, writes_status=True)
    async with run_manager(api, doubling):
        await api.create_widget(size=4)
        await eventually(lambda: is_doubled(api, 8))
        status = (await api.get_widget()).status
        assert (status.conditions, status.observedGeneration) == ([], None)


async def is_doubled(api: ApiHarness, value: int) -> bool:
    return (await api.get_widget()).status.doubled == value


async def test_changed_status_that_is_not_written_is_an_error(api: ApiHarness) -> None:
    async def set_status(widget: ForeignWidget) -> None:
        widget.status.doubled = 1

    async with run_manager(api, controller(ForeignWidget, set_status)) as manager:
        await api.create_widget()
        await eventually(lambda: has_event(api, ("Warning", "Error")))
        assert ControllerMetrics(manager.metrics, "widget").errors.value
    assert (await api.get_widget()).status == WidgetStatus()


async def test_several_controllers_reconcile_one_kind_and_share_its_status(
    api: ApiHarness,
) -> None:
    async def double_size(widget: Widget) -> Done:
        if widget.spec.size > 100:
            raise Terminal("TooLarge", "At most 100.")
        widget.status.doubled = widget.spec.size * 2
        return Done()

    async def greet_friend(widget: Widget) -> Done:
        if not widget.spec.friend:
            raise Terminal("Alone", "It has no friend.")
        return Done("Greeted", f"Hello, {widget.spec.friend}")

    greeting = controller(Widget, greet_friend, name="greeter", ready_condition="Greeted")
    async with run_manager(api, controller(Widget, double_size), greeting):
        await api.create_widget(size=4, friend="joe")
        await eventually(lambda: has_conditions(api, Ready="Reconciled", Greeted="Greeted"))
        assert (await api.get_widget()).status.doubled == 8
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"friend": ""}})
        await eventually(lambda: has_conditions(api, Ready="Reconciled", Greeted="Alone"))
        assert (await api.get_widget()).status.doubled == 8, "Terminal clears nothing of others"


async def has_conditions(api: ApiHarness, **reasons: str) -> bool:
    status = (await api.get_widget()).status
    generation = (await api.get_widget()).metadata.generation
    return {c.type: (c.reason, c.observedGeneration) for c in status.conditions} == {
        type: (reason, generation) for type, reason in reasons.items()
    }


@kind("kubewright.test/v1", name="Widget", external=True)
class StrictWidget(Resource[StrictSpec, WidgetStatus]):
    """A Widget with a required field, which its CRD does not require."""


async def test_external_object_without_a_spec_can_be_reconciled(api: ApiHarness) -> None:
    specs: list[object] = []

    async def record(widget: StrictWidget) -> None:
        specs.append(widget.spec)

    body = {
        "apiVersion": "kubewright.test/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": api.namespace},
    }
    path = f"/apis/kubewright.test/v1/namespaces/{api.namespace}/widgets"
    async with run_manager(api, controller(StrictWidget, record)):
        await api.transport.send(
            Request("POST", path, body=msgspec.json.encode(body), content_type="application/json")
        )
        await eventually(lambda: specs == [None])
