from __future__ import annotations

from contextlib import suppress

from kubewright.own_writes import OwnWrites


def test_event_of_an_own_write_enqueues_nothing() -> None:
    writes: OwnWrites[str] = OwnWrites()
    enqueued: list[str] = []
    with writes.write("a", lambda: enqueued.append("a")) as own_revisions:
        assert writes.defer("a", 7)
        assert not writes.defer("b", 7)
        own_revisions.append(7)
    assert enqueued == []
    assert not writes.defer("a", 8)


def test_event_of_another_client_during_a_write_enqueues_afterwards() -> None:
    writes: OwnWrites[str] = OwnWrites()
    enqueued: list[str] = []
    with writes.write("a", lambda: enqueued.append("a")) as own_revisions:
        writes.defer("a", 6)
        writes.defer("a", 7)
        own_revisions.append(7)
        assert enqueued == []
    assert enqueued == ["a"]


def test_write_without_a_response_enqueues() -> None:
    """It may have taken effect, so the event may be that of the own write or of another one."""
    writes: OwnWrites[str] = OwnWrites()
    enqueued: list[str] = []
    with suppress(TimeoutError), writes.write("a", lambda: enqueued.append("a")):
        writes.defer("a", 7)
        raise TimeoutError
    assert enqueued == ["a"]


def test_two_writes_of_one_object_at_the_same_time() -> None:
    own_writes: OwnWrites[str] = OwnWrites()
    enqueued: list[str] = []
    first = own_writes.write("a", lambda: enqueued.append("first"))
    second = own_writes.write("a", lambda: enqueued.append("second"))
    with first as first_revisions:
        with second as second_revisions:
            assert own_writes.defer("a", 7)
            second_revisions.append(7)
        assert enqueued == []
        assert own_writes.defer("a", 8)
        first_revisions.append(8)
    # For the first one, the write of the second is one of another client.
    assert enqueued == ["first"]
    assert not own_writes.defer("a", 9)
