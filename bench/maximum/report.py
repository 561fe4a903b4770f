"""The promises of the maximum, and what was measured."""

from __future__ import annotations

from typing import Any, NamedTuple


class Promise(NamedTuple):
    name: str
    # Where the result has it.
    path: tuple[str, ...]
    limit: float
    unit: str
    factor: float = 1.0


PROMISES = (
    Promise(
        "ready after a restart: nothing left to do", ("restart", "reconciled_seconds"), 60, "s"
    ),
    Promise("resident memory at rest", ("rest", "rss_mib"), 512, "MiB"),
    Promise("resident memory, the highest", ("churn", "peak_rss_mib"), 512, "MiB"),
    Promise("CPU at rest", ("rest", "cores", "manager"), 2, "%", 100),
    Promise("a change to its status under churn, p99", ("churn", "changes", "p99"), 1, "s"),
    Promise("longest stall of the loop, start", ("restart", "stall_ms"), 100, "ms"),
    Promise("longest stall of the loop, rest", ("rest", "stall_ms"), 100, "ms"),
    Promise("longest stall of the loop, churn", ("churn", "stall_ms"), 100, "ms"),
    Promise(
        "an edit to its status at rest, p99", ("edits at rest", "since_sent", "p99"), 50, "ms", 1000
    ),
    Promise(
        "an edit to its status in a cold start, p99",
        ("edits during a cold start", "since_sent", "p99"),
        500,
        "ms",
        1000,
    ),
)


def print_report(results: dict[str, Any]) -> int:
    """Prints each promise that was measured; 1 if one is broken."""
    broken = False
    for promise in PROMISES:
        value: Any = results
        for part in promise.path:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            print(f"{promise.name:46} not measured")
            continue
        value *= promise.factor
        kept = value <= promise.limit
        broken = broken or not kept
        state = "ok" if kept else "BROKEN"
        print(f"{promise.name:46} {value:9.1f} {promise.unit:3} <= {promise.limit:g}  {state}")
    return int(broken)
