"""What a check found: how bad it is, what it is about, the words, and the fix as a command to paste."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import Struct

from kubewright.errors import KubewrightError

from ..vsphere.faults import VCenterError

Level = Literal["ok", "warning", "problem"]


class Finding(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of the report."""

    level: Level
    subject: str
    words: str
    fix: str = ""


def ok(subject: str, words: str) -> Finding:
    """All is well."""
    return Finding(level="ok", subject=subject, words=words)


def warning(subject: str, words: str, fix: str = "") -> Finding:
    """It works, but somebody should know."""
    return Finding(level="warning", subject=subject, words=words, fix=fix)


def problem(subject: str, words: str, fix: str = "") -> Finding:
    """Something will not work."""
    return Finding(level="problem", subject=subject, words=words, fix=fix)


async def run_check(subject: str, check: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """The findings of a check; one that fails is a finding too, so that nothing keeps the others from being made."""
    try:
        async for finding in check:
            yield finding
    except (KubewrightError, VCenterError) as error:
        yield problem(subject, str(error))
    except Exception as error:
        yield problem(
            subject,
            f"this check itself failed: {type(error).__name__}: {error}. That is a fault of the doctor; please report it.",
        )
