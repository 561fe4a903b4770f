"""Less memory for cached objects: equal parts of different objects are stored once.

Which parts?  The namespace, texts and lists of texts in `spec` and `status`, and conditions. A
    decoder creates all of them again for each object. Most texts in 10,000 statuses of hosts have
    only a few values: the cluster, the state, the version, the reason of a condition.
What about texts that differ in every object, such as an address?  To remember them costs memory and
    saves nothing. So the texts of each field are counted, and a field with mostly different texts
    is not shared any more.
Can the change of one object now change others?  No. Texts and conditions cannot be changed, and
    each object keeps its own lists and dictionaries.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from .condition import Condition
from .kind import Object

T = TypeVar("T", bound=Object)

# After this many texts of a field, at least this share of them must be repetitions.
_MIN_REPEATED_SHARES = ((1_000, 0.05), (10_000, 0.5))
_MAX_CONDITIONS = 2_000
_MAX_TEXTS = 20_000


class _TextPool:
    """The texts of one field."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._seen = 0
        self._checks = list(_MIN_REPEATED_SHARES)

    def share(self, text: str) -> str:
        self._seen += 1
        if len(self._texts) >= _MAX_TEXTS:
            # Most of them belong to objects that are gone by now.
            self._texts.clear()
        return self._texts.setdefault(text, text)

    @property
    def is_useless(self) -> bool:
        if not self._checks or self._seen < self._checks[0][0]:
            return False
        _, min_share = self._checks.pop(0)
        return 1 - len(self._texts) / self._seen < min_share


class PartSharer:
    """Shares the parts of the objects of one store."""

    def __init__(self) -> None:
        self._namespaces = _TextPool()
        self._conditions: dict[Condition, Condition] = {}
        # By the class of a spec or status, and by field. Fields that are not shared are removed.
        self._pools: dict[type[Struct], dict[str, _TextPool]] = {}

    def share(self, obj: T) -> T:
        """The object, with parts that are equal to those of others replaced by theirs."""
        force_setattr(obj.metadata, "namespace", self._namespaces.share(obj.metadata.namespace))
        for part in (getattr(obj, "spec", None), getattr(obj, "status", None)):
            if isinstance(part, Struct):
                self._share_texts(part)
        return obj

    def _share_texts(self, part: Struct) -> None:
        pools = self._pools.get(type(part))
        if pools is None:
            pools = {name: _TextPool() for name in part.__struct_fields__}
            self._pools[type(part)] = pools
        useless = []
        for name, pool in pools.items():
            value = getattr(part, name)
            if type(value) is str:
                force_setattr(part, name, pool.share(value))
            elif type(value) is list and value:
                self._share_items(value, pool)
            else:
                continue
            if pool.is_useless:
                useless.append(name)
        for name in useless:
            del pools[name]

    def _share_items(self, items: list[Any], pool: _TextPool) -> None:
        for position, item in enumerate(items):
            if type(item) is str:
                items[position] = pool.share(item)
            elif type(item) is Condition:
                items[position] = self._share_condition(item)

    def _share_condition(self, condition: Condition) -> Condition:
        shared = self._conditions.get(condition)
        if shared is None:
            if len(self._conditions) >= _MAX_CONDITIONS:
                # Conditions have transition times, so old ones are rarely repeated.
                self._conditions.clear()
            self._conditions[condition] = shared = condition
        return shared
