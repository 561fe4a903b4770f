"""Prints findings as aligned text, wrapped to the terminal, or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from ..console import Style, apply_color, escape_control, wrap_text
from .finding import Finding, Level, SectionFinding

_LEVEL_WIDTH = 9
_SUBJECT_WIDTH = 13
_INDENT = " " * (2 + _LEVEL_WIDTH + _SUBJECT_WIDTH)
# Below this a message would be a column of one word each.
_MIN_WIDTH = 60
_LEVEL_STYLES: dict[Level, Style] = {"ok": "good", "warning": "busy", "problem": "alert"}


class TextReport:
    """Renders findings one by one; `columns` is the terminal's width, 0 without a terminal."""

    def __init__(self, *, columns: int = 0, color: bool = False) -> None:
        self._columns, self._color = columns, color
        self._section = ""

    def render_finding(self, entry: SectionFinding) -> Iterator[str]:
        """The lines of one finding, after the section's title if it is the first there."""
        section, finding = entry
        if section != self._section:
            if self._section:
                yield ""
            yield apply_color(escape_control(section), "head", color=self._color)
            self._section = section
        level = apply_color(
            finding.level.ljust(_LEVEL_WIDTH), _LEVEL_STYLES[finding.level], color=self._color
        )
        width = max(self._columns, _MIN_WIDTH) - len(_INDENT) if self._columns else 0
        first, *others = wrap_text(escape_control(finding.message), width)
        yield f"  {level}{escape_control(finding.subject):<{_SUBJECT_WIDTH}}{first}"
        yield from (_INDENT + line for line in others)
        if finding.fix:
            # A fix is never wrapped, so that it can be pasted.
            fix = escape_control(finding.fix)
            yield f"{_INDENT}{apply_color('fix:', 'head', color=self._color)} {fix}"


def summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.level for finding in findings)
    warnings = _format_count(counts["warning"], "warning")
    if counts["problem"]:
        return (
            f"{_format_count(counts['problem'], 'problem')}, {warnings}. "
            "Fix problems in the order shown; later ones may be caused by earlier ones."
        )
    return f"No problems, {warnings}."


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding of `-o json`. Scripts read these keys: they stay as they are."""

    section: str
    level: Level
    subject: str
    message: str
    fix: str = ""


class Document(Struct, frozen=True, kw_only=True):
    """The output of `-o json`; `healthy` is true if the exit code is 0."""

    healthy: bool
    findings: list[Entry]


def build_document(entries: Sequence[SectionFinding]) -> Document:
    return Document(
        healthy=all(finding.level != "problem" for _, finding in entries),
        findings=[
            Entry(section=section, **msgspec.structs.asdict(finding))
            for section, finding in entries
        ],
    )


def as_legacy_json(entries: Sequence[SectionFinding]) -> str:
    """The output of `-json`, with the keys of older releases, which scripts read."""
    findings = [
        {"chapter": section, **msgspec.to_builtins(finding)} for section, finding in entries
    ]
    healthy = all(finding.level != "problem" for _, finding in entries)
    return msgspec.json.format(
        msgspec.json.encode({"healthy": healthy, "findings": findings}), indent=2
    ).decode()
