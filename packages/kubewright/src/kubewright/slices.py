"""Splits work for many items into slices, between which the event loop runs other tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

# About 2 ms of enqueueing.
_SLICE_SIZE = 500


def call_in_slices(call: Callable[[T], object], items: Iterable[T]) -> None:
    """Call the function for each item: for the first 500 now, and for others in later iterations
    of the event loop. The iterable must not change until then.
    """
    iterator = iter(items)

    def call_slice() -> None:
        items_of_slice = list(islice(iterator, _SLICE_SIZE))
        for item in items_of_slice:
            call(item)
        if len(items_of_slice) == _SLICE_SIZE:
            asyncio.get_running_loop().call_soon(call_slice)

    call_slice()
