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
