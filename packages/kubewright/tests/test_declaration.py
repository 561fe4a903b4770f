"""Mistakes of a controller that are found when it is added."""

from __future__ import annotations

from typing import Any

import pytest

from kubewright.api import autoscaling_v1, autoscaling_v2, core_v1
from kubewright.builtin import ConfigMap, Pod
from kubewright.controller import Controller, controller
from kubewright.errors import ConfigError
from kubewright.kind import Key, Object, Resource, kind
from kubewright.manager import Manager
from kubewright.predicate import field_changed
from kubewright.testing.fake import FakeApi

from .support.api_harness import FAKE_CONNECTION
from .support.widget_kind import Friend, Widget, WidgetSpec, WidgetStatus, double


@kind("other.test/v1", name="Widget")
class OtherWidget(Resource[WidgetSpec, WidgetStatus]):
    """A kind with the name of another one, in another group."""


class WithoutReconcile(Controller[Widget]):
    pass


class WithoutArgument(Controller[Widget]):
    async def reconcile(self) -> None:  # type: ignore[override]
        """It lacks the object."""


class WithTwoArguments(Controller[Widget]):
    async def reconcile(self, obj: Widget, key: Key) -> None:  # type: ignore[override]
        """It has the signature of another framework."""


class FinalizeWithoutArgument(Controller[Widget]):
    async def reconcile(self, obj: Widget) -> None:
        """It is fine."""

    async def finalize(self) -> None:  # type: ignore[override]
        """It lacks the object."""


async def new_manager() -> Manager:
    return Manager(FAKE_CONNECTION, transport=FakeApi())


async def noop(obj: Any) -> None:
    """Reconciles nothing."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (WithoutReconcile, "WithoutReconcile has no reconcile"),
        (WithoutArgument, "WithoutArgument.reconcile must take one argument: async def reconcile"),
        (WithTwoArguments, "WithTwoArguments.reconcile must take one argument"),
        (FinalizeWithoutArgument, "FinalizeWithoutArgument.finalize must take one argument"),
        (lambda: controller(Widget, lambda: None), "reconcile must take one argument"),  # type: ignore[arg-type,misc]
        (
            lambda: controller(ConfigMap, noop, writes_status=True),
            "ConfigMapController has writes_status, but ConfigMap has no status",
        ),
        (
            lambda: controller(Widget, noop, max_concurrent_reconciles=0),
            "max_concurrent_reconciles of WidgetController must be at least 1",
        ),
        (
            lambda: controller(Widget, noop, predicate=field_changed("spec.sise")),
            'spec has no field "sise"',
        ),
    ],
)
async def test_mistake_is_found(make: Any, message: str) -> None:
    manager = await new_manager()
    with pytest.raises(ConfigError, match=message):
        manager.add(make())


async def test_field_of_a_watched_kind_is_checked() -> None:
    watching = controller(Widget, double)
    watching.watches(Pod, index_by=lambda w: "a", predicate=field_changed("status.fase"))
    manager = await new_manager()
    with pytest.raises(ConfigError, match='status has no field "fase"'):
        manager.add(watching)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("conurrency", 'controller\\(\\) has no option "conurrency". It has: name, versions'),
        ("max_concurent_reconciles", 'Did you mean "max_concurrent_reconciles"?'),
        ("finaliser", 'Did you mean "finalizer"?'),
    ],
)
def test_unknown_option_is_an_error_with_a_suggestion(option: str, message: str) -> None:
    options: dict[str, Any] = {option: 3}
    with pytest.raises(ConfigError, match=message):
        controller(Widget, double, **options)


async def test_names_of_controllers_are_unique() -> None:
    manager = await new_manager()
    manager.add(controller(Widget, double))
    with pytest.raises(ConfigError, match='two controllers with the name "widget"'):
        manager.add(controller(OtherWidget, noop))
    manager.add(controller(OtherWidget, noop, name="other-widget"))
    assert [component.name for component in manager.controllers] == ["widget", "other-widget"]


async def test_condition_of_a_kind_has_one_controller() -> None:
    manager = await new_manager()
    manager.add(controller(Widget, double))
    with pytest.raises(ConfigError, match="both write the condition Ready: set `ready_condition`"):
        manager.add(controller(Widget, noop, name="second"))
    manager.add(controller(Widget, noop, name="second", ready_condition="Second"))
    manager.add(controller(Widget, noop, name="third", ready_condition=""))
    manager.add(controller(Widget, noop, name="fourth", ready_condition=""))
    manager.add(controller(Friend, noop))


def test_class_that_is_not_a_kind_is_an_error() -> None:
    class Undeclared(Object):
        """It has no @kind."""

    with pytest.raises(ConfigError, match="Undeclared is not a kind: write @kind"):
        controller(Undeclared, noop)


async def test_children_of_one_resource_have_one_class() -> None:
    manager = await new_manager()
    owning = controller(Widget, noop)
    owning.owns(ConfigMap, core_v1.ConfigMap)
    with pytest.raises(ConfigError, match="which are one resource \\(configmaps\\)"):
        manager.add(owning)
    scaling = controller(Widget, noop)
    scaling.owns(autoscaling_v1.HorizontalPodAutoscaler, autoscaling_v2.HorizontalPodAutoscaler)
    with pytest.raises(ConfigError, match="use one class for all its children"):
        manager.add(scaling)
    same = controller(Widget, noop)
    same.owns(ConfigMap)
    same.owns(ConfigMap, any_owner=True)
    manager.add(same)


async def test_finalizer_of_a_kind_has_one_controller() -> None:
    manager = await new_manager()
    manager.add(controller(Widget, double, finalizer="kubewright.test/hold"))
    second = controller(
        Widget, noop, name="second", ready_condition="", finalizer="kubewright.test/hold"
    )
    with pytest.raises(ConfigError, match="have the same finalizer"):
        manager.add(second)
    other = controller(OtherWidget, noop, name="other", finalizer="kubewright.test/hold")
    manager.add(other)
