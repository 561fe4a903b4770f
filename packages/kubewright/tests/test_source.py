"""Predicates receive only objects that decode: others have neither spec nor status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubewright.cache import Cache, Store
from kubewright.kind import Key, ObjectMeta
from kubewright.log import Log
from kubewright.responses import UndecodableObject
from kubewright.source import IndexedKindSource, PrimaryKindSource
from kubewright.workqueue import WorkQueue

from .support.widget_kind import Friend, Widget, WidgetSpec

Call = tuple[str | None, str | None]


def make_metadata(name: str, revision: int) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="n", resourceVersion=str(revision), uid="u")


def make_undecodable(name: str, revision: int) -> UndecodableObject:
    return UndecodableObject(make_metadata(name, revision), "spec.friend is a number")


def recording_predicate(calls: list[Call], *, matters: bool) -> Callable[[Any, Any], bool]:
    def predicate(old: Any, new: Any) -> bool:
        # An UndecodableObject has no spec: this raises, as the predicate of a user would.
        calls.append((old and old.spec.friend, new and new.spec.friend))
        return matters

    return predicate


def watched_store(cache: Cache, kind: type[Any]) -> Store[Any]:
    store = cache.store(kind)
    store.advance_revision(1)
    return store


async def take_keys(queue: WorkQueue[Key]) -> list[str]:
    names: list[str] = []
    while len(queue):
        entry = await queue.get()
        assert entry is not None
        names.append(entry[0].name)
        queue.done(entry[0])
    return names


async def test_other_kind_counts_as_missing_while_it_cannot_be_decoded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache, queue, calls = Cache(Log("test")), WorkQueue[Key](), list[Call]()
    widgets, friends = watched_store(cache, Widget), watched_store(cache, Friend)
    source = IndexedKindSource(
        Friend,
        lambda widget: widget.spec.friend,
        predicate=recording_predicate(calls, matters=True),
    )
    source.attach(widgets, cache, queue.add)
    widgets.put(Widget(metadata=make_metadata("a", 2), spec=WidgetSpec(friend="joe")))
    friends.put(Friend(metadata=make_metadata("joe", 3), spec=WidgetSpec(friend="ann")))
    assert await take_keys(queue) == ["a"]
    friends.put(make_undecodable("joe", 4))
    assert await take_keys(queue) == ["a"]
    friends.put(make_undecodable("joe", 5))
    assert await take_keys(queue) == []
    friends.put(Friend(metadata=make_metadata("joe", 6), spec=WidgetSpec(friend="bob")))
    assert await take_keys(queue) == ["a"]
    assert calls == [(None, "ann"), ("ann", None), (None, "bob")]
    assert "a listener failed" not in caplog.text


async def test_own_kind_is_enqueued_when_it_cannot_be_decoded_whatever_its_predicate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache, queue, calls = Cache(Log("test")), WorkQueue[Key](), list[Call]()
    widgets = watched_store(cache, Widget)
    PrimaryKindSource(recording_predicate(calls, matters=False), widgets, queue.add)
    widgets.put(Widget(metadata=make_metadata("a", 2), spec=WidgetSpec(friend="joe")))
    assert await take_keys(queue) == []
    widgets.put(make_undecodable("a", 3))
    assert await take_keys(queue) == ["a"]
    assert calls == [(None, "joe")]
    assert "a listener failed" not in caplog.text
