"""How far two clocks are apart."""

from __future__ import annotations

from datetime import datetime, timedelta

from .finding import Finding, ok, problem, warning

NOTICEABLE = timedelta(seconds=5)
# Tokens and certificates are given some minutes of slack, and no more; a SAML token of vCenter 10 at the most.
HARMFUL = timedelta(minutes=5)
SYNCHRONISE = "sudo timedatectl set-ntp true"


def skew(theirs: datetime, ours: datetime, whose: str) -> Finding:
    """What the difference means."""
    apart = abs(theirs - ours)
    how = f"the clock of {whose} is {spoken(apart)} {'ahead of' if theirs > ours else 'behind'} this machine's"
    if apart >= HARMFUL:
        return problem("clock", f"{how}: certificates and tokens will be refused as expired or not yet valid", SYNCHRONISE)
    if apart >= NOTICEABLE:
        return warning("clock", f"{how}: times in logs, statuses and leases do not fit together", SYNCHRONISE)
    return ok("clock", f"{whose} and this machine agree to {apart.total_seconds():.1f} s")


def spoken(length: timedelta) -> str:
    """A length of time in the unit that suits it."""
    seconds = int(length.total_seconds())
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
