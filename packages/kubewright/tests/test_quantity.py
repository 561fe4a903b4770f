"""Quantities in all their forms."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from kubewright.quantity import parse_quantity


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("500m", Fraction(1, 2)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("1.", 1),
        ("+2k", 2000),
        ("-1Ki", -1024),
        ("1E", 10**18),
        ("1E2", 100),
        ("5e-1", Fraction(1, 2)),
        ("1Ei", 2**60),
        ("1n", Fraction(1, 10**9)),
        ("100n", Fraction(1, 10**7)),
        ("1k", 1000),
        ("1Ki", 1024),
        ("0.5Gi", 512 * 1024**2),
        ("1e3", 1000),
        ("-1.5E-2", Fraction(-15, 1000)),
        ("1", 1),
        (2, 2),
        ("1500m", Fraction(3, 2)),
        (3, 3),
        (1.5, Fraction(3, 2)),
    ],
)
def test_quantity_is_the_number_that_it_means(value: Any, number: Fraction) -> None:
    assert parse_quantity(value) == number


@pytest.mark.parametrize(
    "value",
    [
        "",
        "m",
        "1K",
        "1Kx",
        "1..2",
        "1.2.3",
        "1Mi2",
        "1 Gi",
        "1e",
        True,
        None,
        "1e999999999",
        "9" * 999,
    ],
)
def test_other_values_are_no_quantities(value: Any) -> None:
    assert parse_quantity(value) is None
