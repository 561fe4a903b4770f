"""The figures of one turn, and the summary of many: medians and spreads, in summary.json.

The summary is committed, and all tables and pictures are drawn from it: see pages.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.product.contenders import MANAGER

SUMMARY_FILE = Path(__file__).with_name("summary.json")


class Turn(msgspec.Struct, frozen=True):
    """One turn of one contender."""

    scenario: str
    number: int
    contender: str
    """Its slug."""
    figures: dict[str, float]


class Results(msgspec.Struct, frozen=True):
    """One run of the race, as in bench/results."""

    started: str
    machine: dict[str, Any]
    versions: dict[str, str]
    turns: list[Turn]


class Spread(msgspec.Struct, frozen=True, array_like=True):
    median: float
    low: float
    high: float


class ScenarioSummary(msgspec.Struct, frozen=True):
    date: str
    machine: dict[str, Any]
    turns: int
    figures: dict[str, dict[str, Spread]]
    """By contender and figure."""
    ratios: dict[str, dict[str, Spread]]
    """The manager's figure over that of each other contender, turn by turn."""


@dataclass(frozen=True)
class Figure:
    title: str
    unit: str
    decimals: int = 0
    higher_is_better: bool = False

    def format(self, value: float) -> str:
        return f"{value:,.{self.decimals}f}"

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title


FIGURES: Mapping[str, Figure] = {
    "first_status_s": Figure("start to first status", "s", 2),
    "done_s": Figure("start to last status", "s", 2),
    "statuses_per_s": Figure("statuses per second", "", higher_is_better=True),
    "cpu_s": Figure("CPU of the whole run", "s", 2),
    "cpu_first_s": Figure("CPU until the first status", "s", 2),
    "cpu_ms": Figure("CPU per object", "ms", 2),
    "cpu_working_ms": Figure("CPU per object after the first write", "ms", 2),
    "peak_mib": Figure("peak memory", "MiB"),
    "rss_mib": Figure("memory at the end", "MiB"),
    "kib_per_object": Figure("memory per object", "KiB", 1),
    "apiserver_ms": Figure("API server's CPU per status", "ms", 2),
    "writes": Figure("writes per object", "", 2),
    "idle_s": Figure("start until idle", "s", 2),
    "changed": Figure("objects changed", ""),
    "requests": Figure("write requests", ""),
    "p50_ms": Figure("median", "ms", 1),
    "p99_ms": Figure("p99", "ms", 1),
    "max_ms": Figure("slowest", "ms", 1),
    "all_s": Figure("until all statuses are right", "s", 2),
}


def read_summary() -> dict[str, ScenarioSummary]:
    return msgspec.json.decode(SUMMARY_FILE.read_bytes(), type=dict[str, ScenarioSummary])


def write_summary(summary: Mapping[str, ScenarioSummary]) -> None:
    SUMMARY_FILE.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n")


def summarize(runs: Sequence[Results], scenario: str) -> ScenarioSummary:
    """The medians and spreads of all turns of a scenario, of one run or of several."""
    runs = [run for run in runs if any(turn.scenario == scenario for turn in run.turns)]
    by_turn = _figures_by_turn(runs, scenario)
    contenders = {contender: None for figures in by_turn for contender in figures}
    return ScenarioSummary(
        date=max(run.started for run in runs)[:10],
        machine=runs[-1].machine,
        turns=len(by_turn),
        figures={
            contender: _spreads([turn[contender] for turn in by_turn if contender in turn])
            for contender in contenders
        },
        ratios={
            contender: _spreads(
                [
                    _quotients(turn[MANAGER.slug], turn[contender])
                    for turn in by_turn
                    if MANAGER.slug in turn and contender in turn
                ]
            )
            for contender in contenders
            if contender != MANAGER.slug
        },
    )


def _figures_by_turn(
    runs: Sequence[Results], scenario: str
) -> list[dict[str, Mapping[str, float]]]:
    """For each turn, the figures by contender."""
    by_turn: dict[tuple[int, int], dict[str, Mapping[str, float]]] = {}
    for index, run in enumerate(runs):
        for turn in run.turns:
            if turn.scenario == scenario:
                by_turn.setdefault((index, turn.number), {})[turn.contender] = turn.figures
    return list(by_turn.values())


def _quotients(figures: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {name: value / others[name] for name, value in figures.items() if others.get(name)}


def _spreads(turns: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """The median, lowest and highest value of each figure."""
    values: dict[str, list[float]] = {}
    for figures in turns:
        for name, value in figures.items():
            values.setdefault(name, []).append(value)
    return {
        name: Spread(*(round(figure(of_name), 4) for figure in (median, min, max)))
        for name, of_name in values.items()
    }


def memory_per_object(
    small: ScenarioSummary, large: ScenarioSummary, added_objects: int
) -> ScenarioSummary:
    """The memory of an object, from cold starts of which one has `added_objects` more.

    The spread is from the smallest to the largest possible difference of their turns.
    """
    slopes = {}
    for contender in small.figures.keys() & large.figures.keys():
        before, after = small.figures[contender]["rss_mib"], large.figures[contender]["rss_mib"]
        differences = (
            after.median - before.median,
            after.low - before.high,
            after.high - before.low,
        )
        slopes[contender] = Spread(*(round(1024 * size / added_objects, 3) for size in differences))
    ours = slopes.get(MANAGER.slug)
    return ScenarioSummary(
        date=min(small.date, large.date),
        machine=large.machine,
        turns=min(small.turns, large.turns),
        figures={contender: {"kib_per_object": slope} for contender, slope in slopes.items()},
        ratios={
            contender: {"kib_per_object": Spread(*(3 * [round(ours.median / slope.median, 4)]))}
            for contender, slope in slopes.items()
            if ours and contender != MANAGER.slug and slope.median
        },
    )
