"""Names of folders and replicas that vCenter accepts, for any group."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsphere_operators.kinds.vmgroup.ownership import (
    folder_name,
    generate_replica_name,
    replica_name,
)

ANY_TEXT = st.text(max_size=320)


def escaped_length(name: str) -> int:
    """The length of a name as vCenter counts it."""
    return len(name) + 2 * sum(name.count(character) for character in "%/\\")


def test_ordinary_names_are_those_of_the_contract() -> None:
    assert folder_name("default", "vg-1") == "default-vg-1"
    assert replica_name("vg-1", "lbzgbaic") == "vg-1-replica-lbzgbaic"
    # Two groups with the same folder name: see find_conflicting_owner.
    assert folder_name("a", "b-c") == folder_name("a-b", "c") == "a-b-c"


@pytest.mark.parametrize(
    "name", ["x" * 253, "../../x", "*", "%2f", "a\nb", "\U0001f600", "\ud800", " ", "", "a/b"]
)
def test_hostile_names_become_valid(name: str) -> None:
    for valid_name in (folder_name("ns", name), replica_name(name, "abcdefgh")):
        assert re.fullmatch("[ -~]+", valid_name)
        assert not set(valid_name) & set("%/\\")
        assert escaped_length(valid_name) <= 80
        assert valid_name == valid_name.strip()


def test_long_names_are_stable_and_differ_where_the_end_differs() -> None:
    one, two = "x" * 200 + "1", "x" * 200 + "2"
    assert folder_name("ns", one) == folder_name("ns", one)
    assert folder_name("ns", one) != folder_name("ns", two)
    assert replica_name(one, "abcdefgh") != replica_name(two, "abcdefgh")
    assert folder_name("ns", one) == f"ns-{'x' * 66}-a246133238"
    assert len(replica_name("x" * 63, "abcdefgh")) == 80
    assert replica_name("x" * 63, "abcdefgh").startswith("x" * 63 + "-replica-")


@given(ANY_TEXT, ANY_TEXT)
def test_any_name_becomes_valid(namespace: str, name: str) -> None:
    assert 0 < escaped_length(folder_name(namespace, name)) <= 80
    assert re.fullmatch(r"[ -~]+-replica-[a-z]{8}", replica_name(name, "abcdefgh"))


@given(ANY_TEXT, ANY_TEXT)
def test_different_groups_have_different_names(one: str, two: str) -> None:
    assert (folder_name("", one) == folder_name("", two)) == (one == two)


def test_an_unused_name_is_generated() -> None:
    generator = random.Random(1)
    first = generate_replica_name("web", generator.choice, set().__contains__)
    again = generate_replica_name("web", random.Random(1).choice, {first}.__contains__)
    assert re.fullmatch("web-replica-[a-z]{8}", first)
    assert re.fullmatch("web-replica-[a-z]{8}", again)
    assert first != again
