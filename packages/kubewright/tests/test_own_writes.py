from __future__ import annotations

from contextlib import suppress

from kubewright.own_writes import OwnWrites


def test_event_of_an_own_write_wakes_nothing() -> None:
    writes: OwnWrites[str] = OwnWrites()
    woken: list[str] = []
    with writes.write("a", lambda: woken.append("a")) as own_revisions:
        assert writes.hold_back("a", 7)
        assert not writes.hold_back("b", 7)
        own_revisions.append(7)
    assert woken == []
    assert not writes.hold_back("a", 8)


def test_event_of_another_client_during_a_write_wakes_afterwards() -> None:
    writes: OwnWrites[str] = OwnWrites()
    woken: list[str] = []
    with writes.write("a", lambda: woken.append("a")) as own_revisions:
        writes.hold_back("a", 6)
        writes.hold_back("a", 7)
        own_revisions.append(7)
        assert woken == []
    assert woken == ["a"]


def test_write_without_a_response_wakes() -> None:
    """It may have taken effect, so the event may be that of the own write or of another one."""
    writes: OwnWrites[str] = OwnWrites()
    woken: list[str] = []
    with suppress(TimeoutError), writes.write("a", lambda: woken.append("a")):
        writes.hold_back("a", 7)
        raise TimeoutError
    assert woken == ["a"]


def test_two_writes_of_one_object_at_the_same_time() -> None:
    own_writes: OwnWrites[str] = OwnWrites()
    woken: list[str] = []
    first = own_writes.write("a", lambda: woken.append("first"))
    second = own_writes.write("a", lambda: woken.append("second"))
    with first as first_revisions:
        with second as second_revisions:
            assert own_writes.hold_back("a", 7)
            second_revisions.append(7)
        assert woken == []
        assert own_writes.hold_back("a", 8)
        first_revisions.append(8)
    # For the first one, the write of the second is one of another client.
    assert woken == ["first"]
    assert not own_writes.hold_back("a", 9)
