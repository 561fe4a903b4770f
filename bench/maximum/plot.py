"""Draws lines of measured points as SVG.

    python -m bench.maximum.plot FILE.json PICTURE.svg

The file has `title`, `x` and `y` (labels of the axes), `limit` (optional, a horizontal line), and
`series` (the points of each line, by its name). The colors suit light and dark pages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 360, 70, 20, 44, 52
_COLORS = ("#2f6fde", "#c2571a", "#2a8c4a", "#8a4fbf")
_STYLE = (
    "text{font:13px sans-serif;fill:#444}.grid{stroke:#8884}"
    ".limit{stroke:#c33;stroke-dasharray:6 4}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}}"
)
_TICKS = 5
Point = Sequence[float]


def draw(plot: Mapping[str, Any]) -> str:
    series: Mapping[str, Sequence[Point]] = plot["series"]
    points = [point for line in series.values() for point in line]
    limit = plot.get("limit")
    x_max = _round_up(max(point[0] for point in points))
    y_max = _round_up(max([point[1] for point in points] + ([limit] if limit else [])))

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + x / x_max * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - y / y_max * (_HEIGHT - _TOP - _BOTTOM),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(plot["title"])}"><style>{_STYLE}</style>',
        _text(_WIDTH / 2, 20, plot["title"], "middle"),
        _text(_WIDTH / 2, _HEIGHT - 10, plot["x"], "middle"),
        _text(8, _TOP - 12, plot["y"], "start"),
    ]
    for tick in range(_TICKS + 1):
        x, y = x_max * tick / _TICKS, y_max * tick / _TICKS
        (x_pixel, _), (_, y_pixel) = at(x, 0), at(0, y)
        parts += [
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y_pixel:.0f}" '
            f'y2="{y_pixel:.0f}"/>',
            _text(_LEFT - 8, y_pixel + 4, f"{y:,.0f}", "end"),
            _text(x_pixel, _HEIGHT - _BOTTOM + 18, f"{x:,.0f}", "middle"),
        ]
    if limit:
        _, y_pixel = at(0, limit)
        parts.append(
            f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y_pixel:.0f}" '
            f'y2="{y_pixel:.0f}"/>'
        )
    for number, (name, line) in enumerate(series.items()):
        color = _COLORS[number % len(_COLORS)]
        pixels = [at(*point) for point in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>' for x, y in pixels]
        y = _TOP + 16 + 18 * number
        parts.append(f'<rect x="{_LEFT + 12}" y="{y - 9}" width="14" height="4" fill="{color}"/>')
        parts.append(_text(_LEFT + 32, y - 2, name, "start"))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'


def _round_up(value: float) -> float:
    """A little more than the value, with ticks at round numbers."""
    step = 10.0 ** (len(str(int(value))) - 1)
    for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10):
        if factor * step >= value:
            return factor * step
    return value


def main() -> int:
    source, target = sys.argv[1:]
    Path(target).write_text(draw(json.loads(Path(source).read_text())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
