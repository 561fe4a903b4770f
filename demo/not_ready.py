"""The messages of objects that are not Ready: complete, wrapped, and by turns if not all fit."""

from __future__ import annotations

from collections.abc import Sequence

from vsphere_operators.console import escape_control, wrap_text

from .expected import ready_condition
from .snapshot import Snapshot

_MIN_WIDTH = 10


def not_ready_messages(snapshot: Snapshot) -> list[str]:
    """One for each object with a Ready condition that is not True."""
    messages = []
    for (kind, name), obj in sorted(snapshot.objects.items()):
        condition = ready_condition(obj)
        if condition and condition["status"] != "True":
            messages.append(f"{kind}/{name} {condition['reason']}: {condition['message']}")
    return messages


def fit_messages(messages: Sequence[str], width: int, height: int, rotation: int) -> list[str]:
    """The lines of as many complete messages as fit; if not all do, they take turns."""
    blocks = [_wrap(message, width) for message in messages]
    if sum(map(len, blocks)) <= height:
        return [line for block in blocks for line in block]
    blocks = [
        _wrap(f"[{number}/{len(messages)}] {message}", width)
        for number, message in enumerate(messages, 1)
    ]
    first = rotation % len(blocks)
    lines: list[str] = []
    for block in (*blocks[first:], *blocks[:first]):
        if lines and len(lines) + len(block) > height:
            break
        lines += block
    return lines[:height]


def max_message_height(messages: Sequence[str], width: int) -> int:
    """The height of the longest message, with its number."""
    number = f"[{len(messages)}/{len(messages)}]"
    return max((len(_wrap(f"{number} {message}", width)) for message in messages), default=0)


def _wrap(message: str, width: int) -> list[str]:
    text = escape_control(message)
    return wrap_text(text, max(width, _MIN_WIDTH), indent="  ", break_long_words=True)
