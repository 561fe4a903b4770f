"""Findings as text and as JSON: plain calls."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vsphere_operators.console import format_document
from vsphere_operators.doctor.finding import Finding, ok, problem, run_check, warning
from vsphere_operators.doctor.report import TextReport, as_legacy_json, build_document, summary
from vsphere_operators.vsphere.faults import Unreachable


async def failing_check(error: Exception) -> AsyncIterator[Finding]:
    yield ok("first", "well")
    raise error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Unreachable("gone"), "gone"),
        (ZeroDivisionError("oh"), "This check failed: ZeroDivisionError: oh"),
    ],
)
async def test_failed_check_is_a_finding(error: Exception, message: str) -> None:
    findings = [finding async for finding in run_check("second", failing_check(error))]
    assert findings[0] == ok("first", "well")
    assert (findings[1].level, findings[1].subject) == ("problem", "second")
    assert message in findings[1].message


MESSAGES = (
    st.text(st.sampled_from("abc -/:é"), min_size=1, max_size=300).map(str.strip).filter(bool)
)


@given(MESSAGES, st.integers(60, 200))
def test_message_fits_the_terminal_and_is_complete(message: str, columns: int) -> None:
    lines = list(
        TextReport(columns=columns).render_finding(
            ("Kubernetes", warning("rights", message, "a fix " * 40))
        )
    )
    assert lines[0] == "Kubernetes"
    assert lines[-1].endswith("a fix " * 40)
    longest = max(map(len, message.split()))
    assert all(len(line) <= max(columns, 24 + longest) for line in lines[1:-1])
    assert "".join(lines[1:-1]).replace(" ", "").endswith(message.replace(" ", ""))


def test_only_a_terminal_gets_color() -> None:
    entry = ("Kubernetes", problem("rights", "no", "yes"))
    assert "\x1b" not in "".join(TextReport().render_finding(entry))
    assert "\x1b[1;31mproblem" in "".join(TextReport(color=True).render_finding(entry))


def test_summary_counts_problems_and_warnings() -> None:
    assert summary([ok("a", "b")]) == "No problems, 0 warnings."
    assert summary([problem("a", "b"), warning("a", "b")]).startswith(
        "1 problem, 1 warning. Fix problems in the order shown"
    )


def test_documents_have_the_keys_of_the_reference() -> None:
    document = build_document([("x", problem("a", "b", "c")), ("y", ok("d", "e"))])
    assert "".join(format_document(document, "json").split()) == (
        '{"healthy":false,"findings":['
        '{"section":"x","level":"problem","subject":"a","message":"b","fix":"c"},'
        '{"section":"y","level":"ok","subject":"d","message":"e"}]}'
    )
    assert yaml.safe_load(format_document(document, "yaml")) == msgspec.to_builtins(document)
    assert build_document([("y", warning("d", "e"))]).healthy


def test_json_of_older_releases_has_the_keys_that_scripts_read() -> None:
    text = "".join(as_legacy_json([("x", problem("a", "b", "c"))]).split())
    assert text == (
        '{"healthy":false,"findings":['
        '{"chapter":"x","level":"problem","subject":"a","words":"b","fix":"c"}]}'
    )


def test_text_cannot_control_the_terminal_and_json_has_it_unchanged() -> None:
    hostile = "vm\x1b[2J\n  ok\u202e"
    entry = (hostile, problem(hostile, hostile, hostile))
    for columns in (0, 80):
        lines = list(TextReport(columns=columns).render_finding(entry))
        assert len(lines) == 3
        assert all(line.isprintable() for line in lines)
        assert r"vm\x1b[2J\n  ok\u202e" in lines[-1]
    assert build_document([entry]).findings[0].message == hostile
