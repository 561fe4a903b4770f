"""`manager doctor`: flags in, report out, and the exit code."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from kubewright.errors import ConfigError
from kubewright.flags import FlagError, HelpRequested, flag, parse_command_line
from kubewright.log import configure_logging

from ..settings.flags import Settings
from ..terminal import discard_stdout, replace_unencodable
from .checks import DoctorRun, ManagerBuilder, SectionFinding
from .report import TextReport, as_json, summary

PROGRAM = "manager doctor"


@dataclass(frozen=True)
class DoctorSettings(Settings):
    """The manager's own flags, so that what is found is what the manager would meet."""

    json: bool = flag("json", False, "Write the findings as JSON.")


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    build: ManagerBuilder,
    out: TextIO | None = None,
) -> int:
    """Examine everything. 0: no problems, 1: some, 2: a wrong flag, 130: Ctrl-C, 141: nobody reads on."""
    out = out or sys.stdout
    try:
        settings = parse_command_line(DoctorSettings, argv, environ, program=PROGRAM)
        # What the manager would log is in the findings; somebody who wants both says so.
        configure_logging(replace(settings.logs, level=settings.logs.level or "panic"))
    except HelpRequested as wanted:
        print(wanted.usage, file=out)
        return 0
    except ConfigError as error:
        hint = f"\nRun `{PROGRAM} -help` for the flags." if isinstance(error, FlagError) else ""
        print(f"{PROGRAM}: {error}{hint}", file=sys.stderr)
        return 2
    replace_unencodable(out, machine_readable=settings.json)
    colour = out.isatty() and "NO_COLOR" not in environ
    try:
        lines = asyncio.run(
            _write_report(DoctorRun(settings, environ, build), settings, out, color=colour)
        )
    except BrokenPipeError:
        return discard_stdout()
    except KeyboardInterrupt:
        return 130
    return int(any(finding.level == "problem" for _, finding in lines))


async def _write_report(
    examination: DoctorRun, settings: DoctorSettings, out: TextIO, *, color: bool
) -> list[SectionFinding]:
    """All findings, written as they come, or all at once as JSON."""
    text = TextReport(
        columns=shutil.get_terminal_size().columns if out.isatty() else 0, color=color
    )
    lines = list[SectionFinding]()
    async for line in examination.findings():
        lines.append(line)
        if not settings.json:
            print(*text.render_finding(line), sep="\n", file=out, flush=True)
    print(
        as_json(lines) if settings.json else f"\n{summary([finding for _, finding in lines])}",
        file=out,
        flush=True,
    )
    return lines
