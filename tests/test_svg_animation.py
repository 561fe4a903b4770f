"""The animated picture of the live view: every line in exactly its frames, each line once."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.text import Text

from hack.svg_animation import animate

NAMESPACE = {"svg": "http://www.w3.org/2000/svg"}
FRAMES = [("title", "load 10", ""), ("title", "load 20", "<new> & line"), ("title", "load 10", "")]


def render_frames() -> str:
    console = Console(
        file=io.StringIO(), record=True, width=40, height=3, force_terminal=True, color_system="256"
    )
    for lines in FRAMES:
        console.print(Text(lines[0], style="reverse"))
        for line in lines[1:]:
            console.print(Text(line, style="green"))
    return console.export_svg(title="x", unique_id="test")


@pytest.fixture(scope="module")
def picture() -> str:
    return animate(render_frames(), height=3, seconds_per_frame=0.5)


def line_groups(picture: str) -> dict[str, str]:
    """The classes of each line, by its text."""
    groups = ElementTree.fromstring(picture).findall(".//svg:g/svg:g", NAMESPACE)
    return {
        "".join(group.itertext()).replace("\xa0", " ").strip(): group.get("class", "")
        for group in groups
    }


def test_each_content_of_a_line_is_in_the_picture_once(picture: str) -> None:
    lines = line_groups(picture)
    assert set(lines) == {"title", "load 10", "load 20", "<new> & line"}
    assert picture.count("title</text>") == 1
    assert lines["title"] == ""


def visible_frames(picture: str, classes: str) -> list[bool]:
    """Whether a line is visible in each frame, from its CSS animation."""
    _, name, *_ = classes.split()
    (steps,) = re.findall(rf"@keyframes {name} {{ (.*) }}$", picture, re.MULTILINE)
    changes = [
        (float(percent), value == "visible")
        for percent, value in re.findall(r"([\d.]+)% { visibility: (\w+) }", steps)
    ]
    middles = [100 * (frame + 0.5) / len(FRAMES) for frame in range(len(FRAMES))]
    return [[value for at, value in changes if at <= middle][-1] for middle in middles]


def test_line_is_visible_in_its_frames(picture: str) -> None:
    lines = line_groups(picture)
    assert visible_frames(picture, lines["load 10"]) == [True, False, True]
    assert visible_frames(picture, lines["load 20"]) == [False, True, False]
    assert visible_frames(picture, lines["<new> & line"]) == [False, True, False]
    assert "animation: 1.5s step-end infinite" in picture


def test_last_frame_is_shown_without_animations(picture: str) -> None:
    lines = line_groups(picture)
    assert "last" in lines["load 10"].split()
    assert "last" not in lines["load 20"].split()
    assert "prefers-reduced-motion" in picture


def test_background_and_colors_are_kept(picture: str) -> None:
    assert re.search(r'<rect fill="#\w+" x="0" width="\d+', picture)
    (style,) = {
        text.get("class")
        for text in ElementTree.fromstring(picture).iterfind(".//svg:text", NAMESPACE)
        if "load" in (text.text or "")
    }
    assert f".{style} {{ fill: #" in picture


def test_picture_without_terminal_lines_is_an_error() -> None:
    with pytest.raises(ValueError, match="no terminal lines"):
        animate("<svg></svg>", height=3, seconds_per_frame=1)
