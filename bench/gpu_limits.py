"""What is promised of GPUInfo at 500 Nodes and 1,000 objects."""

from __future__ import annotations

LIMIT_CPU_MS, LIMIT_STALL_MS = 50.0, 250.0


def verdict(kept: bool) -> int:
    """Say whether the promise was kept; returns the exit code."""
    print("kept" if kept else "NOT KEPT", f"(limits: {LIMIT_CPU_MS:.0f} ms of CPU, {LIMIT_STALL_MS:.0f} ms of stall)")
    return 0 if kept else 1
