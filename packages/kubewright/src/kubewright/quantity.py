"""The numbers that quantities of Kubernetes mean: "500m" is a half, "1Ki" is 1024."""

from __future__ import annotations

import re
from fractions import Fraction

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)"
)
_DECIMAL_SUFFIXES = {
    suffix: Fraction(1000) ** power
    for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), start=-3)
}
_BINARY_SUFFIXES = {
    f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)
}
_MULTIPLIERS = _DECIMAL_SUFFIXES | _BINARY_SUFFIXES
# Any client may write "1e999999999", a number with as many digits. No real quantity has that many.
_MAX_LENGTH, _MAX_EXPONENT = 256, 999


def parse_quantity(value: object) -> Fraction | None:
    """The number that a quantity means; None for any other value."""
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None or isinstance(value, bool):
        return None
    number, exponent, suffix = match.groups()
    if exponent is None:
        return Fraction(number) * _MULTIPLIERS[suffix or ""]
    if abs(int(exponent)) > _MAX_EXPONENT:
        return None
    return Fraction(number) * Fraction(10) ** int(exponent)
