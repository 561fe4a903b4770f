"""The recorded figures of the benchmarks, and what is drawn from them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.guard import Limit, find_worse, format_report, read_limits
from bench.product.charts import draw
from bench.product.pages import SCENARIO_PAGES, render_files
from bench.product.turns import FIGURES, Results, Spread, Turn, read_summary, summarize

ROOT = Path(__file__).parents[1]
PATHS = sorted(render_files(read_summary()))


def run_of(started: str, **figures: list[float]) -> Results:
    """A run of one scenario; the figures of each contender are CPU times of its turns."""
    turns = [
        Turn("cold-1000", number, contender, {"cpu_s": value, "writes": 1.0})
        for contender, values in figures.items()
        for number, value in enumerate(values, start=1)
    ]
    return Results(started, {"cores": 2, "python": "3.11.2"}, {}, turns)


def test_summary_has_the_median_and_the_spread_of_all_runs() -> None:
    runs = [run_of("2026-01-01T00:00:00+00:00", manager=[1.0, 5.0])]
    runs.append(run_of("2026-01-02T00:00:00+00:00", manager=[2.0]))
    summary = summarize(runs, "cold-1000")
    assert summary.figures["manager"]["cpu_s"] == Spread(2.0, 1.0, 5.0)
    assert (summary.turns, summary.date) == (3, "2026-01-02")


def test_ratios_compare_the_same_turn() -> None:
    run = run_of("2026-01-01T00:00:00+00:00", manager=[1.0, 4.0], go=[2.0, 2.0])
    ratios = summarize([run], "cold-1000").ratios
    assert ratios["go"]["cpu_s"] == Spread(1.25, 0.5, 2.0)
    assert "manager" not in ratios


def test_a_contender_may_miss_a_turn() -> None:
    run = run_of("2026-01-01T00:00:00+00:00", manager=[1.0, 4.0], go=[2.0])
    summary = summarize([run], "cold-1000")
    assert summary.turns == 2
    assert summary.ratios["go"]["cpu_s"] == Spread(0.5, 0.5, 0.5)


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_pages_and_pictures_are_those_of_the_summary(path: Path) -> None:
    expected = render_files(read_summary())[path]
    assert (ROOT / path).read_text() == expected, "run: make bench-pages"


def test_picture_is_valid_and_names_the_contenders() -> None:
    run = run_of("2026-01-01T00:00:00+00:00", manager=[1.0, 4.0], go=[2.0, 2.0])
    picture = draw("1 < 2", summarize([run], "cold-1000"), ("cpu_s", "peak_mib"))
    texts = [element.text for element in ElementTree.fromstring(picture).iter()]
    assert {"vsphere-operators", "controller-runtime", "2.50", "2.00"} <= set(texts)


def test_pages_use_figures_that_exist() -> None:
    for page in SCENARIO_PAGES.values():
        assert set(page.figures) <= set(FIGURES)
    assert set(read_limits()) <= set(FIGURES)


def test_guard_fails_beyond_the_margin_only() -> None:
    limits = {"cpu_ms": Limit(ratio=2.0, margin=0.1), "peak_mib": Limit(ratio=1.0, margin=0.0)}
    assert find_worse({"cpu_ms": 2.19, "peak_mib": 1.0}, limits) == []
    assert find_worse({"cpu_ms": 2.21, "peak_mib": 0.5}, limits) == ["cpu_ms"]
    report = format_report({"cpu_ms": 2.21, "peak_mib": 0.5}, limits)
    assert report.count("WORSE") == 1
