"""The parameter `shardSelector` of an API server with sharded list and watch (KEP-5866)."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...patch import Json
from ...shard_ranges import hash_field
from .failure import bad_request

_RANGE = re.compile(
    r"shardRange\(object\.metadata\.(uid|namespace), '0x([0-9a-f]{16})', "
    r"'0x([0-9a-f]{16}|10000000000000000)'\)"
)


def parse_shard_selector(selector: str) -> Callable[[Json], bool]:
    """Whether an object is selected; "" selects all."""
    if not selector:
        return lambda obj: True
    ranges = [_RANGE.fullmatch(part.strip()) for part in selector.split("||")]
    if None in ranges or len({match[1] for match in ranges if match}) > 1:
        raise bad_request("invalid shard selector")
    bounds = [(match[1], int(match[2], 16), int(match[3], 16)) for match in ranges if match]

    def matches(obj: Json) -> bool:
        return any(
            start <= hash_field(obj["metadata"].get(field, "")) < end
            for field, start, end in bounds
        )

    return matches
