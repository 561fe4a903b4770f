"""The targets of the maximum, and whether each is met."""

from __future__ import annotations

from typing import Any, NamedTuple

from bench.report import Target, target_lines


class _Limit(NamedTuple):
    text: str
    # The keys that lead to the measured value in the results.
    path: tuple[str, ...]
    highest: float
    unit: str
    # From the unit of the measured value to that of the limit.
    factor: float = 1.0


_LIMITS = (
    _Limit(
        "ready after a restart: nothing left to do", ("restart", "reconciled_seconds"), 60, " s"
    ),
    _Limit("resident memory at rest", ("rest", "rss_mib"), 512, " MiB"),
    _Limit("resident memory, the highest", ("churn", "peak_rss_mib"), 512, " MiB"),
    _Limit("CPU at rest", ("rest", "cores", "manager"), 2, " %", 100),
    _Limit("a change to its status under churn, p99", ("churn", "changes", "p99"), 1, " s"),
    _Limit("longest stall of the loop, start", ("restart", "stall_ms"), 100, " ms"),
    _Limit("longest stall of the loop, rest", ("rest", "stall_ms"), 100, " ms"),
    _Limit("longest stall of the loop, churn", ("churn", "stall_ms"), 100, " ms"),
    _Limit(
        "an edit to its status at rest, p99",
        ("edits at rest", "since_sent", "p99"),
        50,
        " ms",
        1000,
    ),
    _Limit(
        "an edit to its status in a cold start, p99",
        ("edits during a cold start", "since_sent", "p99"),
        500,
        " ms",
        1000,
    ),
)


def print_report(results: dict[str, Any]) -> int:
    """Prints all targets and what was measured. Returns 1 if a target is missed, else 0."""
    targets = []
    for limit in _LIMITS:
        value: Any = results
        for key in limit.path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            print(f"not measured: {limit.text}")
        else:
            value *= limit.factor
            targets.append(Target(limit.text, value, "<=", limit.highest, limit.unit))
    if targets:
        print(target_lines(targets))
    return int(not all(target.is_met for target in targets))
