"""Turns a tall terminal picture of rich, with one screen below the other, into an animated one.

A line that stays the same in several frames is in the picture once, with a CSS animation that shows
it in those frames. Without CSS animations, or if the reader prefers reduced motion, the picture
shows the last frame.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

# What rich draws for a terminal: a background, and a text in a line with a number.
_RECT = re.compile(
    r'<rect fill="(#\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" '
    r'shape-rendering="crispEdges"/>'
)
_TEXT = re.compile(
    r'<text class="([\w-]+)" x="([\d.]+)" y="[\d.]+" textLength="([\d.]+)" '
    r'clip-path="url\(#[\w-]+-line-(\d+)\)">([^<]*)</text>'
)
_STYLE = re.compile(r"\.[\w-]+-(r\d+) \{ ([^}]*) \}")
_LINE_HEIGHT, _BASELINE, _CHARACTER_WIDTH = 24.4, 18.5, 12.2
_MARGIN, _TITLE_HEIGHT = 9, 41
# Space inside the window, as rich draws it.
_PADDING = 9


def animate(svg: str, height: int, seconds_per_frame: float) -> str:
    """`height` is the number of lines of one screen."""
    lines = _read_lines(svg)
    frame_count = -(-(max(lines) + 1) // height)
    # The frames in which a row shows a content.
    frames: dict[tuple[int, str], list[int]] = {}
    for line, content in sorted(lines.items()):
        frames.setdefault((line % height, content), []).append(line // height)
    return _write_svg(svg, frames, frame_count, height, seconds_per_frame)


def _read_lines(svg: str) -> dict[int, str]:
    """The elements of each line, at the height 0."""
    lines: dict[int, str] = {}
    for fill, x, y, width, _ in _RECT.findall(svg):
        line = round((float(y) - 1.5) / _LINE_HEIGHT)
        lines[line] = lines.get(line, "") + (
            f'<rect fill="{fill}" x="{x}" width="{width}" height="24.65"/>'
        )
    for style, x, length, line, text in _TEXT.findall(svg):
        if text.strip():
            lines[int(line)] = lines.get(int(line), "") + (
                f'<text class="{style.rpartition("-")[2]}" x="{x}" y="{_BASELINE}" '
                f'textLength="{length}">{text}</text>'
            )
    if not lines:
        raise ValueError("The picture has no terminal lines: rich writes them differently now.")
    return lines


def _write_svg(
    svg: str,
    frames: Mapping[tuple[int, str], Sequence[int]],
    frame_count: int,
    height: int,
    seconds_per_frame: float,
) -> str:
    duration = frame_count * seconds_per_frame
    names: dict[tuple[int, ...], str] = {}
    elements, rules = [], []
    for (row, content), shown in frames.items():
        attributes = ""
        if len(shown) < frame_count:
            key = tuple(shown)
            if key not in names:
                names[key] = f"f{len(names)}"
                rules.append(_keyframes(names[key], key, frame_count))
            last = " last" if shown[-1] == frame_count - 1 else ""
            attributes = f' class="f {names[key]}{last}"'
        y = round(row * _LINE_HEIGHT + 1.5, 1)
        elements.append(f'<g transform="translate(0 {y})"{attributes}>{content}</g>')
    columns = max(float(x) + float(w) for _, x, w, _, _ in _TEXT.findall(svg))
    width, total = columns + 2 * _MARGIN, height * _LINE_HEIGHT + _TITLE_HEIGHT + _PADDING
    styles = dict(_STYLE.findall(svg))
    newline = "\n"
    return f"""\
<svg viewBox="0 0 {width:g} {total:g}" xmlns="http://www.w3.org/2000/svg">
<title>The live view of make demo</title>
<style>
text {{ font-family: Fira Code, monospace; font-size: 20px; white-space: pre }}
{newline.join(f".{name} {{ {style} }}" for name, style in styles.items())}
.f {{ visibility: hidden; animation: {duration:g}s step-end infinite }}
.last {{ visibility: visible }}
{newline.join(rules)}
@media (prefers-reduced-motion: reduce) {{ .f {{ animation: none !important }} }}
</style>
<rect fill="#292929" x="1" y="1" width="{width - 2:g}" height="{total - 2:g}" rx="8"/>
<text fill="#c5c8c6" text-anchor="middle" x="{width / 2:g}" y="27">make demo</text>
<circle cx="26" cy="22" r="7" fill="#ff5f57"/>
<circle cx="48" cy="22" r="7" fill="#febc2e"/>
<circle cx="70" cy="22" r="7" fill="#28c840"/>
<g transform="translate({_MARGIN} {_TITLE_HEIGHT})">
{newline.join(elements)}
</g>
</svg>
"""


def _keyframes(name: str, shown: Sequence[int], frame_count: int) -> str:
    """Visible in the given frames, hidden in all others."""
    steps = []
    for frame in range(frame_count):
        if frame == 0 or (frame in shown) != (frame - 1 in shown):
            value = "visible" if frame in shown else "hidden"
            steps.append(f"{100 * frame / frame_count:.4g}% {{ visibility: {value} }}")
    return f".{name} {{ animation-name: {name} }} @keyframes {name} {{ {' '.join(steps)} }}"
