from __future__ import annotations

from kubewright.expectations import Expectations
from kubewright.meta import Key

A, B = Key("n", "a"), Key("n", "b")


def test_what_was_seen_is_pending_no_more() -> None:
    expectations = Expectations()
    expectations.expect(A, "clone-1")
    expectations.expect(A, "clone-2")
    expectations.expect(B, "clone-3")
    assert expectations.pending(A) == ["clone-1", "clone-2"]
    assert expectations.saw("clone-1") == A
    assert expectations.pending(A) == ["clone-2"]
    assert expectations.pending(B) == ["clone-3"]


def test_what_nobody_expected_is_nobodys() -> None:
    assert Expectations().saw("stranger") is None


def test_a_refused_call_is_dropped() -> None:
    expectations = Expectations()
    expectations.expect(A, 1)
    expectations.drop(1)
    assert expectations.pending(A) == []


def test_an_overdue_effect_blocks_nobody_and_is_told_once() -> None:
    now = [0.0]
    expectations = Expectations(deadline_seconds=300, clock=lambda: now[0])
    expectations.expect(A, "lost")
    now[0] = 299
    assert expectations.pending(A) == ["lost"]
    assert expectations.overdue(A) == []
    now[0] = 300
    assert expectations.pending(A) == []
    assert expectations.overdue(A) == ["lost"]
    assert expectations.overdue(A) == []


def test_an_object_that_is_gone_leaves_nothing_behind() -> None:
    expectations = Expectations()
    expectations.expect(A, 1)
    expectations.expect(A, 2)
    expectations.forget(A)
    assert not expectations.by_key
    assert not expectations.key_of
