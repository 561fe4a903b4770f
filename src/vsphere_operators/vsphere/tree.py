"""What is above what: the inventory tree by references alone."""

from __future__ import annotations

from collections.abc import Iterator, Set

from .index import Index


class Tree:
    """Parents and children. A parent may be unknown: updates come in any order, and rights may hide it."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}
        self._children_by_parent = Index()

    def set_parent(self, ref: str, parent: str) -> None:
        """Hang a node under another; under "" it hangs nowhere."""
        self._children_by_parent.move(ref, self.parents.pop(ref, ""), parent)
        if parent:
            self.parents[ref] = parent

    def children(self, ref: str) -> Set[str]:
        """What hangs directly under a node."""
        return self._children_by_parent.get(ref)

    def self_and_ancestors(self, ref: str) -> Iterator[str]:
        """The node, its parent, and so on; ends also when a move that is seen in halves makes a ring."""
        seen = set[str]()
        while ref and ref not in seen:
            seen.add(ref)
            yield ref
            ref = self.parents.get(ref, "")
