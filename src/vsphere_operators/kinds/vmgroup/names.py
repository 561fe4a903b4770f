"""Names that vCenter takes: at most 80 characters, nothing that it escapes, and always the same for the same group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Container
from string import ascii_lowercase

_MAX_NAME_LENGTH = 80
_SUFFIX_LENGTH = 8
_HASH_LENGTH = 10
# `%`, `/` and `\` count three times and must be escaped on the wire; the others cannot be typed into a search.
_UNSAFE_CHARACTERS = re.compile(r"[%/\\]|[^ -~]")


def escaped_length(name: str) -> int:
    """The length of a name as vCenter counts it."""
    return len(name) + 2 * sum(name.count(each) for each in "%/\\")


def _make_valid_name(text: str, longest: int = _MAX_NAME_LENGTH) -> str:
    """The text itself if vCenter takes it, else the beginning of it and a hash of all of it."""
    plain = _UNSAFE_CHARACTERS.sub("-", text).strip()
    if plain == text and 0 < len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{plain[: longest - _HASH_LENGTH - 1].rstrip()}-{digest}"


def folder_name(namespace: str, name: str) -> str:
    """The group's folder. Two groups may have the same one (`a`, `b-c` and `a-b`, `c`): see folder.py."""
    return _make_valid_name(f"{namespace}-{name}")


def replica_name(group: str, suffix: str) -> str:
    """A replica's name."""
    ending = f"-replica-{suffix}"
    return f"{_make_valid_name(group, _MAX_NAME_LENGTH - len(ending))}{ending}"


def generate_replica_name(group: str, choose: Callable[[str], str], used: Container[str]) -> str:
    """A replica's name that is not used yet; `choose` picks a letter, such as random.SystemRandom().choice."""
    while True:
        name = replica_name(group, "".join(choose(ascii_lowercase) for _ in range(_SUFFIX_LENGTH)))
        if name not in used:
            return name
