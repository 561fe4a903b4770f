"""The end of the manager's log, a line of it for people: when, what, and which object it is about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsphere_operators.kubectl.table import cut

TAIL_BYTES = 16 * 1024
SERVING = '"serving metrics"'


@dataclass(frozen=True)
class LogLine:
    """One line: its words, and what they are about."""

    head: str
    words: str
    about: str = ""

    def within(self, width: int) -> str:
        """In so many columns: the words give way first, down to half of the line, since what they are about stands at the end."""
        room = max(width // 2, width - len(self.about) - bool(self.about)) - len(self.head) - bool(self.head)
        words = self.words if len(self.words) <= room else cut(self.words, room)
        return " ".join(filter(None, (self.head, words, self.about)))


def log_lines(log: Path) -> list[LogLine]:
    """The last whole lines."""
    if not log.exists():
        return []
    start = max(log.stat().st_size - TAIL_BYTES, 0)
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").split("\n")
    # The tail may begin inside a line, at a brace even, and the last line may still be in writing.
    return [line_of_log(each) for each in lines[1 if start else 0 : -1] if each.startswith("{") and each.endswith("}")]


def line_of_log(line: str) -> LogLine:
    """One line of JSON; one that is no record of the manager's as it is, since whatever the process prints goes there too."""
    try:
        said = json.loads(line)
        head, words = f"{str(said['ts'])[11:19]} {said['level']!s:<5}", str(said["msg"])
    except (ValueError, KeyError, RecursionError):
        return LogLine("", line)
    return LogLine(head, words, " ".join(f"{name}={text}" for name, text in fields_of(said)))


def fields_of(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Which object, or else which part, and why."""
    kind, name = said.get("controllerKind", ""), said.get("name") or str(said.get("object", "")).rpartition("/")[2]
    if name:
        yield "object", f"{kind}/{name}" if kind else name
    else:
        yield from ((each, str(said[each])) for each in ("controller", "vCenter", "node") if said.get(each))
    if why := said.get("reason") or said.get("error"):
        yield "reason", str(why)


def metrics_address(log: Path) -> str:
    """Where the manager of this log serves its metrics; 0, which is nowhere, where it does not tell."""
    for line in log.read_text(errors="replace").splitlines():
        if SERVING in line:
            return f"127.0.0.1:{json.loads(line)['port']}"
    return "0"
