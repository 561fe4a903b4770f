"""What is not Ready, and what to do about it: whole messages, wrapped, and one after the other where there is no room for all. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from .expected import ready_condition
from .snapshot import Snapshot


def not_ready_messages(snapshot: Snapshot) -> list[str]:
    """A sentence for each object that has an answer, and is not Ready."""
    found = (
        (kind, name, ready_condition(obj)) for (kind, name), obj in sorted(snapshot.objects.items())
    )
    return [
        f"{kind}/{name} {why['reason']}: {why['message']}"
        for kind, name, why in found
        if why and why["status"] != "True"
    ]


def fit_messages(texts: Sequence[str], width: int, height: int, turn: int) -> list[str]:
    """As many of them as fit, each whole; where not all do, others at each turn, and numbers that tell so."""
    blocks = [wrap_message(each, width) for each in texts]
    if sum(map(len, blocks)) <= height:
        return [line for block in blocks for line in block]
    blocks = [
        wrap_message(f"[{number}/{len(texts)}] {each}", width)
        for number, each in enumerate(texts, 1)
    ]
    first = turn % len(blocks)
    lines: list[str] = []
    for block in (*blocks[first:], *blocks[:first]):
        if lines and len(lines) + len(block) > height:
            break
        lines += block
    return lines[:height]


def wrap_message(text: str, width: int) -> list[str]:
    """The lines of one; those after the first are set in."""
    return textwrap.wrap(text, max(width, 10), subsequent_indent="  ", break_on_hyphens=False)


def max_message_height(texts: Sequence[str], width: int) -> int:
    """How many lines the longest takes with its number."""
    return max(
        (len(wrap_message(f"[{len(texts)}/{len(texts)}] {each}", width)) for each in texts),
        default=0,
    )
