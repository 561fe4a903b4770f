"""Which version is stored: the questions at the head of cache.py, by example and by generated
histories."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.cache import Cache, Origin, Store
from kubewright.errors import ConfigError
from kubewright.kind import Key, ObjectMeta
from kubewright.log import Log
from kubewright.responses import UndecodableObject
from kubewright.selection import select

from .support.widget_kind import Friend, Widget, WidgetSpec

LOG = Log("test")


def make_widget(
    name: str,
    revision: int,
    *,
    friend: str = "",
    uid: str = "u",
    labels: dict[str, str] | None = None,
    finalizers: tuple[str, ...] = (),
) -> Widget:
    metadata = ObjectMeta(
        name=name,
        namespace="n",
        resourceVersion=str(revision),
        uid=uid,
        labels=labels or {},
        finalizers=list(finalizers),
    )
    return Widget(metadata=metadata, spec=WidgetSpec(friend=friend))


def encode(widget: Widget) -> bytes:
    return msgspec.json.encode(widget.encode())


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
    assert len(store.indexes["friend"]) == 1


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


def test_own_delete_is_visible_at_once_and_its_event_changes_nothing() -> None:
    store, changes = make_store()
    store.put(make_widget("a", 5))
    store.apply_own_delete(Key("n", "a"), "u")
    assert not store.objects
    store.remove(Key("n", "a"), 9, "u")
    assert changes == [("a", Origin.WATCH), ("a", Origin.OWN_WRITE)]


def test_version_from_before_our_delete_does_not_bring_the_object_back() -> None:
    store, _ = make_store()
    store.put(make_widget("a", 5))
    store.apply_own_delete(Key("n", "a"), "u")
    store.put(make_widget("a", 6))
    store.apply_own_write(make_widget("a", 7))
    store.finish_list({Key("n", "a")}, 6, "", force=False)
    assert not store.objects


def test_delete_does_not_hide_a_new_object_of_the_same_name() -> None:
    store, _ = make_store()
    store.put(make_widget("a", 5, uid="old"))
    store.apply_own_delete(Key("n", "a"), "old")
    store.apply_own_write(make_widget("a", 12, uid="new"))
    store.put(make_widget("a", 6, uid="old"))
    store.remove(Key("n", "a"), 9, "old")
    assert store.objects[Key("n", "a")].metadata.uid == "new"


def test_response_to_a_delete_does_not_remove_a_new_object_of_the_same_name() -> None:
    store, _ = make_store()
    store.put(make_widget("a", 12, uid="new"))
    store.apply_own_delete(Key("n", "a"), "old")
    assert Key("n", "a") in store.objects


def test_object_that_a_backup_brings_back_is_not_hidden() -> None:
    store, _ = make_store()
    store.put(make_widget("a", 500))
    store.apply_own_delete(Key("n", "a"), "u")
    store.put(make_widget("a", 90), force=True)
    store.finish_list({Key("n", "a")}, 100, "", force=True)
    store.put(make_widget("a", 110))
    assert store.objects[Key("n", "a")].metadata.revision == 110


def test_memory_of_deletions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubewright.cache._MAX_REMEMBERED_REMOVALS", 3)
    store, _ = make_store()
    for number in range(5):
        store.apply_own_delete(Key("n", "a"), f"u{number}")
    assert list(store._removed_revisions) == ["u2", "u3", "u4"]
    for number in range(5):
        store.remove(Key("n", "a"), 9, f"u{number}")
    assert not store._removed_revisions


def make_selections() -> tuple[Cache, type[Widget], type[Widget]]:
    """A cache with two selections and the whole kind, all watched up to revision 1."""
    cache = Cache(LOG)
    red = select(Widget, label_selector="color=red")
    named = select(Widget, field_selector="metadata.name=a")
    for kind in (Widget, red, named):
        cache.store(kind).advance_revision(1)
    return cache, red, named


def test_own_write_enters_the_stores_that_select_it() -> None:
    cache, red, named = make_selections()
    for name, labels in (("a", {}), ("b", {"color": "red"})):
        widget = make_widget(name, 5, labels=labels)
        cache.apply_own_write(widget, encode(widget))
    assert {w.metadata.name for w in cache.all(Widget)} == {"a", "b"}
    assert [type(w) for w in cache.all(red)] == [red]
    assert [w.metadata.name for w in cache.all(red)] == ["b"]
    assert [w.metadata.name for w in cache.all(named)] == ["a"]


def test_own_write_through_another_class_enqueues_as_the_watch_does() -> None:
    cache, red, _ = make_selections()
    origins = list[Origin]()
    for kind in (Widget, red):
        cache.store(kind).changed.connect(lambda key, old, new, origin: origins.append(origin))
    widget = make_widget("b", 5, labels={"color": "red"})
    cache.apply_own_write(widget, encode(widget))
    assert origins == [Origin.OWN_WRITE, Origin.WATCH]


def test_own_write_that_ends_the_selection_removes_the_object_until_it_is_selected_again() -> None:
    cache, red, _ = make_selections()
    key, store = Key("n", "a"), cache.store(red)
    store.put(red.decode(encode(make_widget("a", 5, labels={"color": "red"}))))
    unselected = make_widget("a", 8)
    cache.apply_own_write(unselected, encode(unselected))
    store.put(red.decode(encode(make_widget("a", 7, labels={"color": "red"}))))
    assert cache.get(red, key) is None
    store.remove(key, 8, "u")
    store.put(red.decode(encode(make_widget("a", 9, labels={"color": "red"}))))
    assert cache.get(red, key) is not None


def test_write_waits_for_the_watch_where_only_the_server_can_decide() -> None:
    cache = Cache(LOG)
    on_node = select(Widget, field_selector="spec.friend=joe")
    store = cache.store(on_node)
    store.advance_revision(1)
    store.put(on_node.decode(encode(make_widget("a", 5, friend="joe"))))
    widget = make_widget("a", 8, friend="bob")
    cache.apply_own_write(widget, encode(widget))
    assert [w.metadata.revision for w in cache.all(on_node)] == [5]


def test_own_delete_removes_the_object_from_every_store() -> None:
    cache, red, named = make_selections()
    for kind in (Widget, red, named):
        widget = make_widget("a", 5, labels={"color": "red"})
        cache.store(kind).put(kind.decode(encode(widget)))
    cache.apply_own_delete(red.definition, Key("n", "a"), "u")
    assert [cache.all(kind) for kind in (Widget, red, named)] == [[], [], []]


def test_response_with_metadata_only_enters_only_stores_of_metadata() -> None:
    cache = Cache(LOG)
    metadata = select(Widget, metadata_only=True)
    for kind in (Widget, metadata):
        cache.store(kind).advance_revision(1)
    raw = encode(make_widget("a", 5, friend="joe"))
    cache.apply_own_write(metadata.decode(raw), raw)
    assert (len(cache.all(metadata)), len(cache.all(Widget))) == (1, 0)
    cache.apply_own_write(Widget.decode(raw), raw)
    assert (len(cache.all(metadata)), len(cache.all(Widget))) == (1, 1)


def test_own_write_is_stored_as_the_transform_returns_it() -> None:
    def drop_spec(widget: Widget) -> Widget:
        return msgspec.structs.replace(widget, spec=WidgetSpec())

    small = select(Widget, transform=drop_spec)
    cache = Cache(LOG)
    cache.store(small).advance_revision(1)
    raw = encode(make_widget("a", 5, friend="joe"))
    written = small.decode(raw)
    cache.apply_own_write(written, raw)
    assert [w.spec.friend for w in cache.all(small)] == [""]
    assert written.spec.friend == "joe"


def test_stores_of_one_resource_have_different_names() -> None:
    cache = Cache(LOG)
    selections: list[type[Widget]] = [
        Widget,
        select(Widget, label_selector="color=red"),
        select(Widget, label_selector="color=red", metadata_only=True),
        select(Widget, transform=lambda widget: widget),
        select(Widget, transform=lambda widget: widget),
    ]
    names = [cache.store(kind).name for kind in selections]
    assert names == [
        "widgets.kubewright.test",
        "widgets.kubewright.test[color=red]",
        "widgets.kubewright.test[color=red; metadata only]",
        "widgets.kubewright.test[transform <lambda>]",
        "widgets.kubewright.test[transform <lambda>] (2)",
    ]


@given(
    st.lists(st.tuples(st.sampled_from(["set", "delete"]), st.sampled_from("ab")), max_size=14),
    st.randoms(),
)
def test_responses_in_any_order_among_watch_events_end_in_the_state_of_the_server(
    history: list[tuple[str, str]], random: Random
) -> None:
    # The events of the watch arrive in order, the responses to the same writes at any time.
    store, _ = make_store()
    stored: dict[str, Widget] = {}
    events: list[tuple[int, Widget, bool]] = []
    responses: list[tuple[Widget, bool]] = []
    deleted_uids: set[str] = set()

    def deliver_response() -> None:
        widget, is_deletion = responses.pop(random.randrange(len(responses)))
        if is_deletion:
            store.apply_own_delete(widget.key, widget.metadata.uid)
            deleted_uids.add(widget.metadata.uid)
        else:
            store.apply_own_write(widget)

    def deliver_event() -> None:
        revision, widget, is_deletion = events.pop(0)
        if is_deletion:
            store.remove(widget.key, revision, widget.metadata.uid)
        else:
            store.put(widget)
        store.advance_revision(revision)

    for revision, (change, name) in enumerate(history, start=2):
        old = stored.pop(name, None)
        if change == "set":
            uid = old.metadata.uid if old is not None else f"uid-{revision}"
            stored[name] = make_widget(name, revision, uid=uid)
            responses.append((stored[name], False))
            events.append((revision, stored[name], False))
        elif old is not None:
            responses.append((old, True))
            events.append((revision, old, True))
        while (events or responses) and random.random() < 0.5:
            if not events or (responses and random.random() < 0.5):
                deliver_response()
            else:
                deliver_event()
            assert deleted_uids.isdisjoint(w.metadata.uid for w in store.objects.values())
    while events or responses:
        if events and (not responses or random.random() < 0.5):
            deliver_event()
        else:
            deliver_response()
        assert deleted_uids.isdisjoint(w.metadata.uid for w in store.objects.values())
    assert store.objects == {widget.key: widget for widget in stored.values()}
