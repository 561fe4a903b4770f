"""The page of flags and environment variables, from the declaration of Settings."""

from __future__ import annotations

from dataclasses import fields

from kubewright.command import ManagerFlags
from kubewright.flags import FlagField, collect_flag_fields, format_default, format_type
from vsphere_operators.doctor.command import DoctorSettings
from vsphere_operators.settings.flags import Settings

from .page import code, page, table

_INTRODUCTION = """
Flags have Go's syntax: `-x`, `--x`, `-x=value` and `-x value` all work, but a switch takes a value
only as `-x=false`. A flag overrides its environment variable, which overrides the default. An empty
variable counts as not set. `manager -help` prints the same list, and `manager doctor` accepts the
same flags and [two more](#only-manager-doctor).
"""
_DOCTOR_TEXT = """
[Debug](../howto/debug.md#the-doctor) shows how to use it, and [send a
recording](../howto/record.md) what `-record` writes.
"""
_EXIT_CODES_TEXT = """
The exit code is 0 after a signal, 1 if the manager failed or did not stop in time, and 2 for an
invalid flag. A second signal ends it immediately. [Errors](errors.md#exit-codes) has the details.
"""
_VARIABLES_TEXT = """
These have no flag, because every user of a machine can read the arguments of its processes.
[Settings](settings.md) explains which of them belong together.
"""
_GROUP_TITLES = {
    "every": "Every manager built with kubewright",
    "logs": "Logs",
    "vsphere": "vCenter and VmGroup",
    "gpu": "GPUInfo",
    "node_labels": "Labels and the condition of Nodes",
}


def _group_of(flag_field: FlagField) -> str:
    """The key of the heading; it follows from where the flag is declared."""
    first = flag_field.path[0]
    if first in ("logs", "gpu", "node_labels"):
        return first
    return "every" if first in {field.name for field in fields(ManagerFlags)} else "vsphere"


def _flag_row(flag_field: FlagField) -> tuple[str, ...]:
    names = ", ".join(code(f"-{name}") for name in flag_field.names)
    default = (
        ""
        if flag_field.default in (None, "", ())
        else format_default(flag_field).strip('"').removesuffix(".0")
    )
    return (
        names,
        format_type(flag_field).strip() or "bool",
        code(flag_field.flag.env),
        code(default),
        flag_field.flag.help,
    )


def render() -> str:
    flag_fields = list(collect_flag_fields(Settings))
    manager_names = {flag_field.names for flag_field in flag_fields}
    header = ("flag", "type", "environment", "default", "description")
    parts = [_INTRODUCTION]
    for name, title in _GROUP_TITLES.items():
        parts += [
            f"## {title}",
            table(
                header,
                (
                    _flag_row(flag_field)
                    for flag_field in flag_fields
                    if flag_field.flag.name and _group_of(flag_field) == name
                ),
            ),
        ]
    variables = [
        (code(flag_field.flag.env), flag_field.flag.help)
        for flag_field in flag_fields
        if not flag_field.flag.name
    ]
    parts += [
        "## Only manager doctor",
        _DOCTOR_TEXT,
        table(
            header,
            (
                _flag_row(flag_field)
                for flag_field in collect_flag_fields(DoctorSettings)
                if flag_field.names not in manager_names
            ),
        ),
        "## Variables without a flag",
        _VARIABLES_TEXT,
        table(("variable", "description"), variables),
        "## Exit codes",
        _EXIT_CODES_TEXT,
    ]
    return page("Flags and variables of the manager", *parts)
