"""Which version is stored: the questions at the head of cache.py, by example and by generated
histories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.cache import Cache, Origin, Store
from kubewright.errors import ConfigError
from kubewright.kind import Key, ObjectMeta
from kubewright.log import Log
from kubewright.responses import UndecodableObject

from .support.widget_kind import Friend, Widget, WidgetSpec

LOG = Log("test")


def make_widget(name: str, revision: int, *, friend: str = "", uid: str = "u") -> Widget:
    return Widget(
        metadata=ObjectMeta(name=name, namespace="n", resourceVersion=str(revision), uid=uid),
        spec=WidgetSpec(friend=friend),
    )


def make_store() -> tuple[Store[Widget], list[tuple[str, Origin]]]:
    store: Store[Widget] = Store(Widget.definition, LOG)
    store.advance_revision(1)
    changes: list[tuple[str, Origin]] = []
    store.changed.connect(lambda key, old, new, origin: changes.append((key.name, origin)))
    return store, changes


def test_older_or_equal_version_is_ignored() -> None:
    store, changes = make_store()
    store.put(make_widget("a", 5))
    store.put(make_widget("a", 5))
    store.put(make_widget("a", 4))
    assert store.objects[Key("n", "a")].metadata.revision == 5
    assert len(changes) == 1


def test_own_write_is_visible_at_once_and_its_watch_event_changes_nothing() -> None:
    store, changes = make_store()
    store.put(make_widget("a", 5))
    store.apply_own_write(make_widget("a", 9))
    store.put(make_widget("a", 9))
    assert store.objects[Key("n", "a")].metadata.revision == 9
    assert changes == [("a", Origin.WATCH), ("a", Origin.OWN_WRITE)]


def test_response_after_the_deletion_does_not_bring_the_object_back() -> None:
    store, _ = make_store()
    store.put(make_widget("a", 5))
    store.remove(Key("n", "a"), 12)
    store.advance_revision(12)
    store.apply_own_write(make_widget("a", 9))
    assert not store.objects


def test_list_that_began_before_our_create_does_not_remove_it() -> None:
    store, _ = make_store()
    store.apply_own_write(make_widget("new", 20))
    store.finish_list(set(), 15, "", force=False)
    assert Key("n", "new") in store.objects


def test_list_of_a_server_that_went_back_in_time_replaces_the_store() -> None:
    store, _ = make_store()
    store.put(make_widget("a", 500))
    store.put(make_widget("lost", 501))
    store.advance_revision(501)
    store.put(make_widget("a", 90), force=True)
    store.finish_list({Key("n", "a")}, 100, "", force=True)
    assert {key.name: obj.metadata.revision for key, obj in store.objects.items()} == {"a": 90}
    assert store.watched_revision("n") == 100


def test_watch_of_another_namespace_does_not_hide_our_write() -> None:
    store: Store[Widget] = Store(Widget.definition, LOG)
    store.advance_revision(500, "other")
    store.advance_revision(10, "n")
    store.apply_own_write(make_widget("a", 20))
    assert Key("n", "a") in store.objects
    store.advance_revision(30, "n")
    store.apply_own_write(make_widget("b", 25))
    assert Key("n", "b") not in store.objects


def test_write_into_a_namespace_without_a_watch_is_not_stored() -> None:
    store: Store[Widget] = Store(Widget.definition, LOG)
    store.advance_revision(500, "other")
    store.apply_own_write(make_widget("a", 600))
    assert not store.objects


def test_list_of_one_namespace_removes_nothing_from_another() -> None:
    store, _ = make_store()
    store.put(make_widget("a", 5))
    store.finish_list(set(), 10, "other", force=False)
    assert Key("n", "a") in store.objects


def test_index_follows_changes_and_a_failing_index_function_affects_only_its_object() -> None:
    store: Store[Widget] = Store(Widget.definition, LOG)
    store.add_index("friend", lambda w: w.spec.friend)
    store.add_index(
        "failing",
        lambda w: [w.spec.friend, str(1 / 0)] if w.spec.friend == "bob" else w.spec.friend,
    )
    store.put(make_widget("a", 1, friend="joe"))
    store.put(make_widget("b", 2, friend="joe"))
    store.put(make_widget("a", 3, friend="bob"))
    assert store.keys_by_index("friend", "joe") == [Key("n", "b")]
    assert store.keys_by_index("friend", "bob") == [Key("n", "a")]
    assert store.keys_by_index("failing", "bob") == []
    store.remove(Key("n", "b"), 9)
    assert store.indexes["friend"].keys_by_value.keys() == {"bob"}


def test_index_added_too_late_is_rejected() -> None:
    store, _ = make_store()
    store.put(make_widget("a", 1))
    with pytest.raises(ConfigError, match=r"before manager\.run"):
        store.add_index("late", lambda w: w.metadata.name)


def test_kind_that_is_not_watched_is_an_error_and_not_an_empty_list() -> None:
    with pytest.raises(ConfigError, match="Friend is not watched"):
        Cache(LOG).all(Friend)


def test_cache_returns_only_objects_that_decode() -> None:
    cache = Cache(LOG)
    store = cache.store(Widget)
    store.add_index("friend", lambda w: w.spec.friend)
    store.put(make_widget("a", 1, friend="joe"))
    store.put(UndecodableObject(ObjectMeta(name="bad", namespace="n", resourceVersion="2"), "why"))
    assert cache.get(Widget, Key("n", "bad")) is None
    assert [w.metadata.name for w in cache.all(Widget)] == ["a"]
    assert [w.metadata.name for w in cache.by_index(Widget, "friend", "joe")] == ["a"]
    assert cache.all(Widget, "other") == []


@given(
    st.lists(st.tuples(st.sampled_from(["set", "delete"]), st.sampled_from("ab")), max_size=12),
    st.randoms(),
)
def test_responses_in_any_order_among_watch_events_end_in_the_state_of_the_server(
    history: list[tuple[str, str]], random: object
) -> None:
    # The events of the watch arrive in order, the responses to the same writes at any time.
    store, _ = make_store()
    stored_revisions: dict[str, int] = {}
    responses: list[Widget] = []
    for revision, (change, name) in enumerate(history, start=1):
        if change == "set":
            responses.append(make_widget(name, revision))
        for response in list(responses):
            if random.random() < 0.4:  # type: ignore[attr-defined]
                store.apply_own_write(response)
                responses.remove(response)
        if change == "set":
            stored_revisions[name] = revision
            store.put(make_widget(name, revision))
        else:
            stored_revisions.pop(name, None)
            store.remove(Key("n", name), revision)
        store.advance_revision(revision)
    for response in responses:
        store.apply_own_write(response)
    assert {
        key.name: obj.metadata.revision for key, obj in store.objects.items()
    } == stored_revisions
