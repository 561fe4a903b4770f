"""Draws a scenario as SVG: one panel for each figure, one bar for each contender.

A bar ends at the median, and a line shows the lowest and the highest turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from bench.product.contenders import BY_SLUG, MANAGER
from bench.product.turns import FIGURES, ScenarioSummary, Spread

_WIDTH, _MARGIN, _NAME_WIDTH, _VALUE_WIDTH = 900, 20, 130, 70
_COLUMNS, _GAP = 2, 30
_BAR_HEIGHT, _ROW_HEIGHT, _HEADING_HEIGHT = 14, 22, 34
_STYLE = """\
  text { font: 13px system-ui, sans-serif; fill: #1f2430 }
  .small { font-size: 11px; fill: #50586a }
  .title { font-weight: 600 }
  .spread { stroke: #1f2430; stroke-width: 1.2; fill: none }"""
_MANAGER_COLOR, _PEER_COLOR = "#4a6fa5", "#b9b9ae"


def draw(title: str, summary: ScenarioSummary, figures: Sequence[str]) -> str:
    """The picture; figures that no contender has are left out."""
    panels = [
        (name, values)
        for name in figures
        if (values := _values_by_slug(summary, name))
        and any(value.high for value in values.values())
    ]
    panel_width = (_WIDTH - 2 * _MARGIN - (_COLUMNS - 1) * _GAP) / _COLUMNS
    rows = [panels[at : at + _COLUMNS] for at in range(0, len(panels), _COLUMNS)]
    parts, y = [], 56.0
    for row in rows:
        for column, (name, values) in enumerate(row):
            x = _MARGIN + column * (panel_width + _GAP)
            parts += _draw_panel(name, values, x, y, panel_width)
        y += _HEADING_HEIGHT + _ROW_HEIGHT * max(len(values) for _, values in row) + 14
    description = f"{title}: " + ", ".join(FIGURES[name].heading for name, _ in panels)
    turns = f"medians of {summary.turns} turns" if summary.turns > 1 else "one turn"
    subtitle = f"{turns}; lines from the lowest to the highest turn"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y:.0f}" role="img" '
            'aria-labelledby="title">',
            f'<title id="title">{escape(description)}</title>',
            f"<style>\n{_STYLE}\n</style>",
            f'<rect width="{_WIDTH}" height="{y:.0f}" fill="#ffffff"/>',
            f'<text x="{_MARGIN}" y="26" class="title">{escape(title)}</text>',
            f'<text x="{_MARGIN}" y="44" class="small">{escape(subtitle)}, {summary.date}</text>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _values_by_slug(summary: ScenarioSummary, figure: str) -> dict[str, Spread]:
    return {
        slug: summary.figures[slug][figure]
        for slug in BY_SLUG
        if figure in summary.figures.get(slug, {})
    }


def _draw_panel(
    name: str, values: Mapping[str, Spread], x: float, y: float, width: float
) -> list[str]:
    figure = FIGURES[name]
    hint = "more is better" if figure.higher_is_better else "less is better"
    scale = (width - _NAME_WIDTH - _VALUE_WIDTH) / max(value.high for value in values.values())
    parts = [
        f'<text x="{x:.0f}" y="{y + 18:.0f}" class="title">{escape(figure.heading)}'
        f'<tspan class="small" dx="8">{hint}</tspan></text>'
    ]
    for index, (slug, value) in enumerate(values.items()):
        top, left = y + _HEADING_HEIGHT - 6 + index * _ROW_HEIGHT, x + _NAME_WIDTH
        middle = top + _BAR_HEIGHT / 2
        low, high = left + scale * value.low, left + scale * value.high
        color = _MANAGER_COLOR if slug == MANAGER.slug else _PEER_COLOR
        parts += [
            f'<text x="{left - 8:.0f}" y="{middle + 4:.0f}" text-anchor="end">'
            f"{escape(BY_SLUG[slug].name)}</text>",
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{scale * value.median:.1f}" '
            f'height="{_BAR_HEIGHT}" fill="{color}"/>',
            f'<path class="spread" d="M{low:.1f} {middle:.1f} H{high:.1f} '
            f'M{low:.1f} {middle - 4:.1f} v8 M{high:.1f} {middle - 4:.1f} v8"/>',
            f'<text x="{high + 6:.1f}" y="{middle + 4:.0f}" class="small">'
            f"{figure.format(value.median)}</text>",
        ]
    return parts
