"""How old a read of vCenter may be when the call that depends on it is sent.

A user may attach a disk to a VM, or move a VM into a folder, after vCenter was read.
"""

from __future__ import annotations

from ...vsphere.faults import Busy

_MAX_AGE_SECONDS = 2.0
# In one step. After that, the usual back-off avoids more load on a slow vCenter.
_MAX_READS = 3


def accept_read(age_seconds: float, reads: int) -> bool:
    """Whether to act on a read; False means to read again. Raises Busy after too many reads."""
    if age_seconds <= _MAX_AGE_SECONDS:
        return True
    if reads < _MAX_READS:
        return False
    raise Busy(
        f"nothing was sent: {_MAX_READS} times in a row, vCenter took longer than "
        f"{_MAX_AGE_SECONDS:g} s to return the current state ({age_seconds:.1f} s the last time), "
        "which may have changed since. Check the load of vCenter"
    )


def seconds_left(age_seconds: float) -> float:
    """How long the call may wait for a connection."""
    # Not 0: aiohttp takes that as no limit.
    return max(0.001, _MAX_AGE_SECONDS - age_seconds)
