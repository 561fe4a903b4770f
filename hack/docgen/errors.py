"""The page of errors: the two error trees, the findings of `manager doctor`, and exit codes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from kubewright.errors import ApiError, KubewrightError
from kubewright.flags import FlagError
from vsphere_operators.console import SIGPIPE_EXIT_CODE
from vsphere_operators.vsphere.faults import VCenterError

from .page import code, page, table
from .source_messages import find_messages

_DOCTOR_PACKAGE = "src/vsphere_operators/doctor"
_ERROR_MODULES = ("kubewright.errors", "kubewright.flags", "vsphere_operators.vsphere.faults")
_INTRODUCTION = """
Each error contains the message of the server, without credentials, and what to do if that message
does not include it. In a status, the name of the error is the reason of Ready;
[conditions](conditions.md) lists the reasons that kinds define themselves.
"""
_EXIT_CODES = (
    ("0", "a signal stopped the manager in time; `manager doctor` found no problem"),
    (
        "1",
        "the manager failed, or did not stop within `-graceful-shutdown-timeout`; its last line "
        "has the reason. `manager doctor` found a problem",
    ),
    (str(FlagError.exit_code), "a flag, or an environment variable for one, is invalid"),
    ("128 + n", "a second signal, with the number n, arrived before the manager had stopped"),
    ("130", "Ctrl-C stopped `manager doctor`"),
    (str(SIGPIPE_EXIT_CODE), "the output of `manager doctor` was closed, as `| head` does"),
)
_FINDINGS_TEXT = """
`manager doctor` reports these findings, each with the fix as a command to paste if there is one.
The table leaves out fixes that depend on the installation, such as a command of Helm or kubectl.
`<name>` stands for a value.
"""


def _error_rows(root: type[Exception], depth: int = 0) -> Iterator[tuple[str, ...]]:
    """A row for each error, subclasses indented."""
    status = f"{root.code}" if issubclass(root, ApiError) and root.code else ""
    meaning = (inspect.getdoc(root) or "").partition("\n\n")[0]
    yield f"{'&nbsp;&nbsp;' * depth}{code(root.__name__)}", status, meaning
    for error in root.__subclasses__():
        # Other modules, tests and tools define errors of their own.
        if error.__module__ in _ERROR_MODULES:
            yield from _error_rows(error, depth + 1)


def _finding_rows() -> Iterator[tuple[str, ...]]:
    for message in find_messages(_DOCTOR_PACKAGE, ("problem", "warning")):
        subject, text, *fixes = message.argument_texts
        # Some fixes are built by a function.
        fix = "".join(fix for fix in fixes if not re.fullmatch(r"<[^>]*>", fix))
        if not subject.startswith("<"):
            yield code(subject), message.callee, text, code(fix)


def render() -> str:
    vcenter_rows = [(name, meaning) for name, _, meaning in _error_rows(VCenterError)]
    return page(
        "Errors",
        _INTRODUCTION,
        "## Kubernetes and the runtime",
        table(("error", "HTTP", "meaning"), _error_rows(KubewrightError)),
        "## vCenter",
        table(("error", "meaning"), vcenter_rows),
        "## Findings of the doctor",
        _FINDINGS_TEXT,
        table(("subject", "level", "finding", "fix"), _finding_rows()),
        "## Exit codes",
        table(("code", "when"), _EXIT_CODES),
    )
