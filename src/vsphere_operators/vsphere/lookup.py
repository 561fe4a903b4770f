"""One object by what a person wrote: exactly that one, or words that say why not. Names are compared, never globbed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from .faults import Ambiguous, NotFound
from .index import Index
from .model import Entity
from .suggestions import Suggestions

EntityT = TypeVar("EntityT", bound=Entity)
_MAX_QUOTED_LENGTH = 100


class Lookup(Generic[EntityT]):
    """Objects of one sort by one key. `what` is their word in messages, `having` how they have the key, `server` where they are."""

    def __init__(
        self,
        server: str,
        what: str,
        having: str,
        table: Mapping[str, EntityT],
        index: Index,
        path: Callable[[str], str],
    ) -> None:
        self.vcenter_name, self._type_label, self._key_phrase = server, what, having
        self.table, self.index, self.path = table, index, path
        self.suggestions = Suggestions(index)

    def find(self, key: str) -> EntityT:
        """The only one with this key."""
        refs = self.index.get(key)
        if len(refs) == 1:
            return self.table[next(iter(refs))]
        raise self.ambiguous_error(key) if refs else self._not_found_error(key)

    def _not_found_error(self, key: str) -> NotFound:
        """There is none."""
        near = ", ".join(f'"{each}"' for each in self.suggestions.suggest(key))
        return NotFound(
            f'vCenter "{self.vcenter_name}" has no {self._type_label} {self._key_phrase} "{key[:_MAX_QUOTED_LENGTH]}". {f"Near to it: {near}. " if near else ""}'
            f"Correct it, letter case counts; or give this account a role in vCenter that sees the {self._type_label}. It is found by itself then."
        )

    def ambiguous_error(self, key: str) -> Ambiguous:
        """There are several."""
        paths = sorted(self.path(ref) for ref in self.index.get(key))
        return Ambiguous(
            f'vCenter "{self.vcenter_name}" has {len(paths)} {self._type_label}s {self._key_phrase} "{key[:_MAX_QUOTED_LENGTH]}": {", ".join(paths)}. '
            "Which one is meant cannot be told; rename all but one in vCenter.",
            paths,
        )
