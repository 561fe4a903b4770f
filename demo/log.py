"""The end of the manager's log, a line of it for people: when, what, and which object it is about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsphere_operators.kubectl.table import fit_text

TAIL_BYTES = 16 * 1024
SERVING_METRICS = '"serving metrics"'


@dataclass(frozen=True)
class LogLine:
    """One line: its words, and what they are about."""

    prefix: str
    message: str
    fields: str = ""

    def fit_width(self, width: int) -> str:
        """In so many columns: the words give way first, down to half of the line, since what they are about stands at the end."""
        room = (
            max(width // 2, width - len(self.fields) - bool(self.fields))
            - len(self.prefix)
            - bool(self.prefix)
        )
        words = self.message if len(self.message) <= room else fit_text(self.message, room)
        return " ".join(filter(None, (self.prefix, words, self.fields)))


def read_log_tail(log: Path) -> list[LogLine]:
    """The last whole lines."""
    if not log.exists():
        return []
    start = max(log.stat().st_size - TAIL_BYTES, 0)
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").split("\n")
    # The tail may begin inside a line, at a brace even, and the last line may still be in writing.
    return [
        parse_log_line(each)
        for each in lines[1 if start else 0 : -1]
        if each.startswith("{") and each.endswith("}")
    ]


def parse_log_line(line: str) -> LogLine:
    """One line of JSON; one that is no record of the manager's as it is, since whatever the process prints goes there too."""
    try:
        said = json.loads(line)
        head, words = f"{str(said['ts'])[11:19]} {said['level']!s:<5}", str(said["msg"])
    except (ValueError, KeyError, RecursionError):
        return LogLine("", line)
    return LogLine(head, words, " ".join(f"{name}={text}" for name, text in select_fields(said)))


def select_fields(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Which object, or else which part, and why."""
    kind, name = (
        said.get("controllerKind", ""),
        said.get("name") or str(said.get("object", "")).rpartition("/")[2],
    )
    if name:
        yield "object", f"{kind}/{name}" if kind else name
    else:
        yield from (
            (each, str(said[each])) for each in ("controller", "vCenter", "node") if said.get(each)
        )
    if why := said.get("reason") or said.get("error"):
        yield "reason", str(why)


def find_metrics_address(log: Path) -> str:
    """Where the manager of this log serves its metrics; 0, which is nowhere, where it does not tell."""
    for line in log.read_text(errors="replace").splitlines():
        if SERVING_METRICS in line:
            return f"127.0.0.1:{json.loads(line)['port']}"
    return "0"
