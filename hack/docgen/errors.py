"""The page of errors: the two trees of what can go wrong, what `manager doctor` finds, and exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from kubewright.errors import ApiError, KubewrightError
from kubewright.flags import FlagError
from vsphere_operators.terminal import SIGPIPE_EXIT_CODE
from vsphere_operators.vsphere.faults import VCenterError

from .page import code, page, table
from .source_messages import CallSignature, find_messages

DOCTOR_PACKAGE = "src/vsphere_operators/doctor"
ERROR_MODULES = ("kubewright.errors", "kubewright.flags", "vsphere_operators.vsphere.faults")
INTRODUCTION = """
Each error keeps the words of whoever refused, with what looks like a credential cut out, and says what to do where those words do not.
In a status its name is the reason of Ready; [conditions](conditions.md) has those that kinds give themselves.
"""
EXIT_CODES = (
    (
        "0",
        "the manager was stopped by a signal, and ended in time; `manager doctor` found no problem",
    ),
    (
        "1",
        "the manager could not go on, or did not end within `-graceful-shutdown-timeout`, and the last line says why; "
        "`manager doctor` found a problem",
    ),
    (str(FlagError.exit_code), "a flag, or a variable that stands for one, is wrong"),
    ("128 + n", "a second signal with the number n came before the manager had ended"),
    ("130", "Ctrl-C ended `manager doctor`"),
    (
        str(SIGPIPE_EXIT_CODE),
        "whoever reads what `manager doctor` writes has seen enough, as `| head` has",
    ),
)
FINDINGS_TEXT = """
`manager doctor` says these, each with what was found and, where there is one, the fix as a command to paste. What stands in braces is
filled in.
"""


def error_rows(root: type[Exception], depth: int = 0) -> Iterator[tuple[str, ...]]:
    """A row for each error, those below it indented."""
    status = f"{root.code}" if issubclass(root, ApiError) and root.code else ""
    yield f"{'&nbsp;&nbsp;' * depth}{code(root.__name__)}", status, first_paragraph(root)
    for each in root.__subclasses__():
        if each.__module__ in ERROR_MODULES:
            yield from error_rows(each, depth + 1)


def first_paragraph(kind: type[Exception]) -> str:
    """What an error means."""
    return (inspect.getdoc(kind) or "").partition("\n\n")[0]


def finding_rows() -> Iterator[tuple[str, ...]]:
    """What the doctor may say that is not ok."""
    for each in find_messages(
        DOCTOR_PACKAGE, {"problem": CallSignature(0, 1, 2), "warning": CallSignature(0, 1, 2)}
    ):
        if "{" not in each.reason:
            yield code(each.reason), each.callee, each.message, code(each.fix)


def render() -> str:
    """The page."""
    head = ("error", "HTTP", "what")
    two = [(name, what) for name, _, what in error_rows(VCenterError)]
    return page(
        "Errors",
        INTRODUCTION,
        "## Of Kubernetes and of the runtime",
        table(head, error_rows(KubewrightError)),
        "## Of vCenter",
        table(("error", "what"), two),
        "## What the doctor finds",
        FINDINGS_TEXT,
        table(("about", "level", "what", "fix"), finding_rows()),
        "## Exit codes",
        table(("code", "when"), EXIT_CODES),
    )
