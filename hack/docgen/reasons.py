"""The reasons of conditions and Events, from the `Reason` enums and from where they are used.

A member's docstring is its meaning; without one, the message that is raised with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .source_messages import SourceModule, callee_name, load_modules

# A message that consists of placeholders explains nothing.
_MIN_WORD_COUNT = 3
_REASON = re.compile(r"[A-Z][A-Za-z]+")
# Calls with a reason that may be a plain text: the position of the reason.
_REASON_ARGUMENTS = {
    "Terminal": 0,
    "Done": 0,
    "Retry": 0,
    "CloneBlocked": 0,
    "ready_condition": 1,
}
_ENUM_SUFFIXES = ("Reason", "PressureType")
# Reasons of the runtime, which has no enum of them.
_RUNTIME_MEANINGS = {
    "TimedOut": "The reconcile, or a call in it, took longer than allowed.",
    "Error": "An unexpected exception; the log has its traceback.",
}


@dataclass
class ReasonUse:
    """A reason, and the calls that use it."""

    module: str
    value: str
    meaning: str = ""
    callees: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    @property
    def description(self) -> str:
        """Raises ValueError if neither a docstring nor a message explains the reason."""
        description = (
            self.meaning or _RUNTIME_MEANINGS.get(self.value) or "".join(self.messages[:1])
        )
        if description:
            return description
        raise ValueError(
            f"{self.module}: {self.value} has no docstring, and no message explains it: "
            "add a docstring below the member of its enum"
        )


def read_reasons(package: str) -> list[ReasonUse]:
    """The members of all `Reason` enums of a package and plain reasons, with their uses."""
    modules = load_modules(package)
    reasons = [reason for module in modules for reason in _read_enum(module)]
    values = {reason.value for reason in reasons}
    for module in modules:
        for call in module.calls:
            value = _plain_reason(module, call)
            if value and value not in values:
                values.add(value)
                reasons.append(ReasonUse(module.name, value))
    for module in modules:
        for call in module.calls:
            _add_use(module, call, reasons)
    return reasons


def _plain_reason(module: SourceModule, call: ast.Call) -> str:
    position = _REASON_ARGUMENTS.get(callee_name(call))
    if position is None or position >= len(call.args):
        return ""
    text = module.text_of(call.args[position])
    return text if _REASON.fullmatch(text) else ""


def _read_enum(module: SourceModule) -> Iterator[ReasonUse]:
    for node in module.tree.body:
        if not isinstance(node, ast.ClassDef) or not node.name.endswith(_ENUM_SUFFIXES):
            continue
        for member, following in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(member, ast.Assign) and isinstance(member.value, ast.Constant):
                meaning = ""
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                    meaning = " ".join(str(following.value.value).split())
                yield ReasonUse(module.name, str(member.value.value), meaning)


def _add_use(module: SourceModule, call: ast.Call, reasons: list[ReasonUse]) -> None:
    """Notes the call at each reason that is one of its arguments."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    texts = [
        module.text_of(argument) for argument in arguments if not isinstance(argument, ast.Starred)
    ]
    package = module.name.rpartition("/")[0]
    for reason in (reason for reason in reasons if reason.value in texts):
        # Two kinds may have a reason of the same value.
        if module.name == reason.module or reason.module.startswith(f"{package}/"):
            reason.callees.append(callee_name(call))
            sentences = [text for text in texts if _word_count(text) >= _MIN_WORD_COUNT]
            reason.messages += sentences[:1]


def _word_count(text: str) -> int:
    """Counts only text outside of placeholders."""
    inside, count = False, 0
    for word in text.replace("<", " < ").replace(">", " > ").split():
        if word in "<>":
            inside = word == "<"
        elif not inside:
            count += 1
    return count
