"""What is promised of GPUInfo at 500 Nodes and 1,000 objects."""

from __future__ import annotations

MAX_CPU_MS, MAX_STALL_MS = 50.0, 250.0


def print_verdict(kept: bool) -> int:
    """Say whether the promise was kept; returns the exit code."""
    print(
        "kept" if kept else "NOT KEPT",
        f"(limits: {MAX_CPU_MS:.0f} ms of CPU, {MAX_STALL_MS:.0f} ms of stall)",
    )
    return 0 if kept else 1
