"""How far two clocks are apart."""

from __future__ import annotations

from datetime import datetime, timedelta

from .finding import Finding, ok, problem, warning

_WARNING_SKEW = timedelta(seconds=5)
# Tokens and certificates are given some minutes of slack, and no more; a SAML token of vCenter 10 at the most.
_PROBLEM_SKEW = timedelta(minutes=5)
_ENABLE_NTP_COMMAND = "sudo timedatectl set-ntp true"


def check_clock_skew(theirs: datetime, ours: datetime, whose: str) -> Finding:
    """What the difference means."""
    apart = abs(theirs - ours)
    how = f"the clock of {whose} is {format_duration(apart)} {'ahead of' if theirs > ours else 'behind'} this machine's"
    if apart >= _PROBLEM_SKEW:
        return problem(
            "clock",
            f"{how}: certificates and tokens will be refused as expired or not yet valid",
            _ENABLE_NTP_COMMAND,
        )
    if apart >= _WARNING_SKEW:
        return warning(
            "clock",
            f"{how}: times in logs, statuses and leases do not fit together",
            _ENABLE_NTP_COMMAND,
        )
    return ok("clock", f"{whose} and this machine agree to {apart.total_seconds():.1f} s")


def format_duration(length: timedelta) -> str:
    """A length of time in the unit that suits it."""
    seconds = int(length.total_seconds())
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
