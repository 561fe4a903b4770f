"""Findings for people, aligned and wrapped where there is a terminal; and for programs, as JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from .checks import SectionFinding
from .finding import Finding, Level

_LEVEL_WIDTH = 9
_SUBJECT_WIDTH = 13
_MIN_WIDTH = 60
ANSI_CODES: dict[str, str] = {"ok": "32", "warning": "33", "problem": "1;31", "bold": "1"}


class TextReport:
    """Lines as they come; `columns` is the terminal's width, 0 for none to fit into."""

    def __init__(self, *, columns: int = 0, color: bool = False) -> None:
        self.columns, self.color = columns, color
        self._section = ""

    def render_finding(self, line: SectionFinding) -> Iterator[str]:
        """The lines of one finding; a new chapter begins with its title."""
        chapter, finding = line
        if chapter != self._section:
            yield from ([""] if self._section else [])
            yield self.apply_color(chapter, "bold")
            self._section = chapter
        head = f"{finding.level:<{_LEVEL_WIDTH}}{finding.subject:<{_SUBJECT_WIDTH}}"
        first, *rest = self.wrap(finding.words, len(head) + 2)
        yield f"  {self.apply_color(finding.level.ljust(_LEVEL_WIDTH), finding.level)}{finding.subject:<{_SUBJECT_WIDTH}}{first}"
        indent = " " * (len(head) + 2)
        yield from (indent + each for each in rest)
        if finding.fix:
            # Never wrapped: it is there to be pasted.
            yield f"{indent}{self.apply_color('fix:', 'bold')} {finding.fix}"

    def wrap(self, words: str, indent: int) -> list[str]:
        """The words in lines that fit."""
        if not self.columns:
            return [words]
        return textwrap.wrap(
            words,
            max(self.columns, _MIN_WIDTH) - indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]

    def apply_color(self, text: str, colour: str) -> str:
        """In colour, where there is any."""
        return f"\x1b[{ANSI_CODES[colour]}m{text}\x1b[0m" if self.color else text


def summary(findings: Sequence[Finding]) -> str:
    """How it stands, in a sentence."""
    counts = Counter(finding.level for finding in findings)
    if counts["problem"]:
        return f"{_format_count(counts, 'problem')}, {_format_count(counts, 'warning')}. Mend them from the top: what comes later may follow from it."
    return f"No problems, {_format_count(counts, 'warning')}."


def _format_count(counts: Counter[Level], level: Level) -> str:
    """`1 problem`, `2 problems`."""
    return f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}"


def as_json(lines: Sequence[SectionFinding]) -> str:
    """Everything, for programs."""
    findings = [{"chapter": chapter, **msgspec.to_builtins(finding)} for chapter, finding in lines]
    healthy = all(finding.level != "problem" for _, finding in lines)
    return msgspec.json.format(
        msgspec.json.encode({"healthy": healthy, "findings": findings}), indent=2
    ).decode()
