"""The page of flags and variables, from the declaration of Settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from kubewright.command import ManagerFlags
from kubewright.flags import Option, collect_options, format_default, format_type
from vsphere_operators.settings.flags import Settings

from .page import code, page, table

INTRODUCTION = """
Go's syntax: `-x`, `--x`, `-x=true` and `-x value` all work. The command line goes before the environment, and that before the default.
An empty variable counts as not set. `manager -help` prints the same list, and `manager doctor` takes the same flags.
"""
EXIT_CODES_TEXT = """
The exit code is 0 after a signal, 1 if the manager could not go on or did not end in time, 2 for a wrong flag. A second signal ends it at
once. [Errors](errors.md) has what it says then.
"""
VARIABLES_TEXT = """
These have no flag: every user of a machine can read the arguments of its processes. [Settings](settings.md) says which go together.
"""
GROUP_TITLES = {
    "every": "Every manager that is made with kubewright",
    "logs": "Logs",
    "vsphere": "vCenter and VmGroup",
    "gpu": "GPUInfo",
}


def group_of(option: Option) -> str:
    """Under which heading a flag stands: by where it is declared."""
    first = option.path[0]
    if first in ("logs", "gpu"):
        return first
    return "every" if first in {each.name for each in fields(ManagerFlags)} else "vsphere"


def flag_row(option: Option) -> tuple[str, ...]:
    """One flag."""
    names = ", ".join(code(f"-{name}") for name in option.names)
    default = (
        ""
        if option.default in (None, "", ())
        else format_default(option).strip('"').removesuffix(".0")
    )
    return (
        names,
        format_type(option).strip() or "bool",
        code(option.flag.env),
        code(default),
        option.flag.help,
    )


def flag_table(options: Iterable[Option]) -> str:
    """The table of some flags."""
    return table(("flag", "type", "environment", "default", "what"), map(flag_row, options))


def render() -> str:
    """The page."""
    options = list(collect_options(Settings))
    parts = [INTRODUCTION]
    for name, title in GROUP_TITLES.items():
        parts += [
            f"## {title}",
            flag_table(each for each in options if each.flag.name and group_of(each) == name),
        ]
    alone = [(code(each.flag.env), each.flag.help) for each in options if not each.flag.name]
    parts += [
        "## Variables without a flag",
        VARIABLES_TEXT,
        table(("variable", "what"), alone),
        "## Exit codes",
        EXIT_CODES_TEXT,
    ]
    return page("Flags and variables of the manager", *parts)
