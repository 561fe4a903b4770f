"""One object by what a person wrote: exactly that one, or words that say why not. Names are compared, never globbed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from .faults import Ambiguous, NotFound
from .index import Index
from .model import Entity
from .suggestions import Near

AnEntity = TypeVar("AnEntity", bound=Entity)
LONGEST_NAME = 100


class Lookup(Generic[AnEntity]):
    """Objects of one sort by one key. `what` is their word in messages, `having` how they have the key, `server` where they are."""

    def __init__(
        self, server: str, what: str, having: str, table: Mapping[str, AnEntity], index: Index, path: Callable[[str], str]
    ) -> None:
        self.server, self.what, self.having = server, what, having
        self.table, self.index, self.path = table, index, path
        self.near = Near(index)

    def one(self, key: str) -> AnEntity:
        """The only one with this key."""
        refs = self.index.of(key)
        if len(refs) == 1:
            return self.table[next(iter(refs))]
        raise self.ambiguous(key) if refs else self.not_found(key)

    def not_found(self, key: str) -> NotFound:
        """There is none."""
        near = ", ".join(f'"{each}"' for each in self.near.to(key))
        return NotFound(
            f'vCenter "{self.server}" has no {self.what} {self.having} "{key[:LONGEST_NAME]}". {f"Near to it: {near}. " if near else ""}'
            f"Correct it, letter case counts; or give this account a role in vCenter that sees the {self.what}. It is found by itself then."
        )

    def ambiguous(self, key: str) -> Ambiguous:
        """There are several."""
        paths = sorted(self.path(ref) for ref in self.index.of(key))
        return Ambiguous(
            f'vCenter "{self.server}" has {len(paths)} {self.what}s {self.having} "{key[:LONGEST_NAME]}": {", ".join(paths)}. '
            "Which one is meant cannot be told; rename all but one in vCenter.",
            paths,
        )
