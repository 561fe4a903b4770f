"""Which changes the predicates let pass."""

from __future__ import annotations

from typing import Any

import pytest

from kubewright.builtin import ConfigMap, Pod, PodStatus
from kubewright.errors import ConfigError
from kubewright.kind import ObjectMeta
from kubewright.predicate import (
    Predicate,
    all_of,
    annotations_changed,
    any_change,
    any_of,
    check_predicate,
    created_or_deleted,
    field_changed,
    generation_changed,
    labels_changed,
    matters,
    not_,
)

from .support.widget_kind import Widget, WidgetSpec


def make_widget(size: int = 1, **metadata: Any) -> Widget:
    return Widget(metadata=ObjectMeta(name="a", **metadata), spec=WidgetSpec(size=size))


@pytest.mark.parametrize(
    ("predicate", "old", "new", "expected"),
    [
        (any_change, make_widget(), make_widget(), True),
        (created_or_deleted, make_widget(), make_widget(2), False),
        (generation_changed, make_widget(generation=1), make_widget(generation=1), False),
        (generation_changed, make_widget(generation=1), make_widget(generation=2), True),
        (generation_changed, make_widget(uid="1"), make_widget(uid="2"), True),
        (labels_changed, make_widget(labels={"a": "1"}), make_widget(labels={"a": "1"}), False),
        (labels_changed, make_widget(labels={"a": "1"}), make_widget(labels={"a": "2"}), True),
        (labels_changed, make_widget(1), make_widget(2), False),
        (annotations_changed, make_widget(), make_widget(annotations={"a": ""}), True),
        (annotations_changed, make_widget(), make_widget(labels={"a": ""}), False),
        (field_changed("spec.size"), make_widget(1), make_widget(2), True),
        (field_changed("spec.size"), make_widget(1), make_widget(1, generation=7), False),
        (field_changed("metadata.labels.app"), make_widget(), make_widget(labels={"b": ""}), False),
        (
            field_changed("metadata.labels.app"),
            make_widget(),
            make_widget(labels={"app": ""}),
            True,
        ),
        (any_of(labels_changed, field_changed("spec.size")), make_widget(), make_widget(2), True),
        (any_of(labels_changed, generation_changed), make_widget(), make_widget(2), False),
        (all_of(labels_changed, field_changed("spec.size")), make_widget(), make_widget(2), False),
        (not_(labels_changed), make_widget(), make_widget(), True),
    ],
)
def test_update(predicate: Predicate, old: Widget, new: Widget, expected: bool) -> None:
    assert predicate(old, new) is expected


@pytest.mark.parametrize(
    "predicate",
    [
        any_change,
        created_or_deleted,
        generation_changed,
        labels_changed,
        annotations_changed,
        field_changed("spec.size"),
    ],
)
def test_creation_and_deletion_count_as_a_change(predicate: Predicate) -> None:
    assert predicate(None, make_widget())
    assert predicate(make_widget(), None)


def test_predicate_that_fails_lets_the_change_pass(caplog: pytest.LogCaptureFixture) -> None:
    def fail(old: Any, new: Any) -> bool:
        raise AttributeError("no such field")

    assert matters(fail, None, make_widget())
    assert "a predicate failed, so the change counts" in caplog.text


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (Widget, "spec.size"),
        (Widget, "status.conditions"),
        (Pod, "status.phase"),
        (ConfigMap, "data.key"),
        (Widget, "metadata.labels.app"),
    ],
)
def test_declared_field_is_accepted(kind: type[Any], path: str) -> None:
    check_predicate(any_of(labels_changed, not_(field_changed(path))), kind)


@pytest.mark.parametrize(
    ("kind", "path", "message"),
    [
        (Widget, "spec.sise", r'spec has no field "sise"; its fields: friend, size'),
        (Widget, "speck.size", r'Widget has no field "speck"; its fields: metadata, spec, status'),
        (Pod, "status.fase", "status has no field"),
    ],
)
def test_field_that_the_kind_does_not_have_is_an_error(
    kind: type[Any], path: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_predicate(all_of(field_changed(path)), kind)


def test_status_of_another_type_is_read_by_path() -> None:
    running, failed = (Pod(status=PodStatus(phase=phase)) for phase in ("Running", "Failed"))
    assert field_changed("status.phase")(running, failed)
