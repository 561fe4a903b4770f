"""The end of the manager's log, one short line per record: time, message and object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsphere_operators.kubectl.table import fit_text

TAIL_BYTES = 16 * 1024


@dataclass(frozen=True)
class LogLine:
    prefix: str
    message: str
    fields: str = ""

    def fit_width(self, width: int) -> str:
        """Cuts the message first, down to half of the line: the fields at the end name the
        object.
        """
        room = (
            max(width // 2, width - len(self.fields) - bool(self.fields))
            - len(self.prefix)
            - bool(self.prefix)
        )
        message = self.message if len(self.message) <= room else fit_text(self.message, room)
        return " ".join(filter(None, (self.prefix, message, self.fields)))


def read_log_tail(log: Path) -> list[LogLine]:
    """The last complete lines."""
    if not log.exists():
        return []
    start = max(log.stat().st_size - TAIL_BYTES, 0)
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").split("\n")
    # The tail may begin inside a line, even at a brace, and the last line may be incomplete.
    return [
        parse_log_line(line)
        for line in lines[1 if start else 0 : -1]
        if line.startswith("{") and line.endswith("}")
    ]


def parse_log_line(line: str) -> LogLine:
    try:
        record = json.loads(line)
        prefix = f"{str(record['ts'])[11:19]} {record['level']!s:<5}"
        message = str(record["msg"])
    except (ValueError, KeyError, RecursionError):
        # Everything that the process prints is in this file, not only log records.
        return LogLine("", line)
    return LogLine(
        prefix, message, " ".join(f"{name}={text}" for name, text in _select_fields(record))
    )


def _select_fields(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The object, or else the component, and the reason."""
    kind = record.get("controllerKind", "")
    name = record.get("name") or str(record.get("object", "")).rpartition("/")[2]
    if name:
        yield "object", f"{kind}/{name}" if kind else name
    else:
        for field in ("controller", "vCenter", "node"):
            if record.get(field):
                yield field, str(record[field])
    if reason := record.get("reason") or record.get("error"):
        yield "reason", str(reason)
