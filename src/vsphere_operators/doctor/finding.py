"""The result of a check: level, subject, message, and the fix as a command to paste."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import Struct

from kubewright.errors import KubewrightError

from ..vsphere.faults import VCenterError

Level = Literal["ok", "warning", "problem"]


# Scripts read the key `words` of `-json`.
class Finding(Struct, frozen=True, omit_defaults=True, kw_only=True, rename={"message": "words"}):
    level: Level
    subject: str
    message: str
    fix: str = ""


# The section of the report, and the finding in it.
SectionFinding = tuple[str, Finding]


def ok(subject: str, message: str) -> Finding:
    return Finding(level="ok", subject=subject, message=message)


def warning(subject: str, message: str, fix: str = "") -> Finding:
    """The manager works, but not everything is as it should be."""
    return Finding(level="warning", subject=subject, message=message, fix=fix)


def problem(subject: str, message: str, fix: str = "") -> Finding:
    """A part of the manager will not work."""
    return Finding(level="problem", subject=subject, message=message, fix=fix)


async def run_check(subject: str, check: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """The findings of a check. A check that fails is a finding too, so the next ones still run."""
    try:
        async for finding in check:
            yield finding
    except (KubewrightError, VCenterError) as error:
        yield problem(subject, str(error))
    except Exception as error:
        yield problem(
            subject,
            f"This check failed: {type(error).__name__}: {error}. "
            "This is a bug in the doctor; please report it.",
        )
