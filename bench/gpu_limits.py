"""The targets of GPUInfo at 500 Nodes and 1,000 objects."""

from __future__ import annotations

MAX_CPU_MS, MAX_STALL_MS = 50.0, 250.0


def print_result(kept: bool) -> int:
    """Returns the exit code."""
    print(
        "met" if kept else "NOT MET",
        f"(limits: {MAX_CPU_MS:.0f} ms of CPU, {MAX_STALL_MS:.0f} ms of stall)",
    )
    return 0 if kept else 1
