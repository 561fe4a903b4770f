"""Signal: order, arguments, and a listener that fails."""

import logging

import pytest

from kubewright.cache import Signal


def test_listeners_are_called_in_the_order_of_connection() -> None:
    signal: Signal[str, int] = Signal("numbers")
    calls: list[object] = []
    signal.connect(lambda name, number: calls.append(("first", name, number)))
    signal.connect(lambda name, number: calls.append(("second", name, number)))

    signal.emit("a", 1)

    assert calls == [("first", "a", 1), ("second", "a", 1)]


def test_failing_listener_is_logged_and_the_next_one_is_still_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    signal: Signal[()] = Signal("widgets changed")
    calls: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    signal.connect(fail)
    signal.connect(lambda: calls.append("called"))
    with caplog.at_level(logging.ERROR):
        signal.emit()

    assert calls == ["called"]
    record = caplog.records[-1]
    assert record.getMessage() == "a listener failed"
    assert record.fields == {"signal": "widgets changed"}  # type: ignore[attr-defined]


def test_signal_without_listeners_can_be_emitted() -> None:
    Signal[()]("nothing").emit()
