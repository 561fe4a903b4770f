"""Similar names: which are suggested, and that no name makes the search expensive."""

from __future__ import annotations

import random
import time

import pytest

from vsphere_operators.vsphere.index import Index
from vsphere_operators.vsphere.lookup import (
    MAX_NAME_LENGTH,
    Suggestions,
    not_found_error,
    quote,
    suggest_names,
)

HOSTS = [f"esxi-{number:02}.rainpole.com" for number in range(40)]
# The event loop may stand still for 100 ms, and a reconcile does more than this.
MAX_SEARCH_SECONDS = 0.05


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("esxi-07.rainpole.con", ["esxi-07.rainpole.com"]),
        ("esx-07.rainpole.com", ["esxi-07.rainpole.com"]),
        ("exsi-07.rainpole.com", ["esxi-07.rainpole.com"]),
        ("ESXI-07.RAINPOLE.COM", ["esxi-07.rainpole.com"]),
        ("esxi-07", ["esxi-07.rainpole.com"]),
        ("esxi-07.rainpole.com.lan", ["esxi-07.rainpole.com"]),
    ],
)
def test_typing_errors_are_recognized(name: str, expected: list[str]) -> None:
    assert suggest_names(name, HOSTS)[:1] == expected


def test_unrelated_names_are_not_suggested() -> None:
    assert suggest_names("zookeeper", HOSTS) == []
    assert suggest_names("", HOSTS) == []
    assert suggest_names("a", []) == []


def test_names_beyond_the_limit_are_neither_searched_for_nor_suggested() -> None:
    longest = "a" * MAX_NAME_LENGTH
    assert suggest_names(longest, [longest + "b", "a" * (MAX_NAME_LENGTH - 1)]) == [longest[1:]]
    assert suggest_names(longest + "b", [longest]) == []


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("x" * 1_000_000, HOSTS),
        ("ab" * 500_000, ["ab" * 100 + f"{number}" for number in range(100)]),
        # difflib takes time in the third power of these lengths, and treats no letter as frequent.
        ("a" * 199, ["aab" * 66 + f"{number:02}" for number in range(40)]),
        ("a" * 199, [f"{number:02}" + "aab" * 66 for number in range(40)]),
        (
            "".join(random.Random(1).choices("ab", k=255)),
            ["".join(random.Random(seed).choices("ab", k=255)) for seed in range(2, 1000)],
        ),
    ],
)
def test_no_name_makes_the_search_expensive(name: str, others: list[str]) -> None:
    index = Index()
    for number, other in enumerate(others):
        index.add(other, f"host-{number}")
    seconds = list[float]()
    # A garbage collection may fall into one of them.
    for _ in range(3):
        began = time.thread_time()
        error = not_found_error("vc-1", "host", name, Suggestions(index))
        seconds.append(time.thread_time() - began)
    assert min(seconds) < MAX_SEARCH_SECONDS
    assert len(str(error)) < 2000


def test_messages_shorten_long_names() -> None:
    assert quote("esxi-1") == '"esxi-1"'
    assert quote("x" * 100) == f'"{"x" * 100}"'
    assert quote("x" * 1_000_000) == f'"{"x" * 100}..." (1000000 characters)'
