"""Medians of the turns, the table, and whether each target is met."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any, Literal

import msgspec

from bench.contender import BARE, BASELINE, CONTENDERS, KOPF, RUNTIME, Result
from bench.restart import RestartResult

_SMALL, _LARGE = 1_000, 10_000
_NOISY_SHARE = 0.10
_COLUMN_TITLES = (
    "contender",
    "turns",
    "statuses/s",
    "of bare",
    "of kopf",
    "start to done s",
    "CPU ms/object",
    "of bare",
    "whole CPU ms/object",
    "RSS MiB",
    "writes/object",
)


@dataclass(frozen=True)
class MedianResult:
    """The medians of a contender at one N."""

    contender: str
    objects: int
    turns: int
    statuses_per_second: float
    start_to_done_seconds: float
    cpu_working_ms: float
    cpu_whole_ms: float
    peak_rss_mib: float
    writes_per_object: float


@dataclass(frozen=True)
class Target:
    """A target of the runtime, and the measured value."""

    text: str
    value: float
    comparison: Literal["<=", ">="]
    limit: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit if self.comparison == "<=" else self.value >= self.limit


def medians_of(results: Sequence[Result]) -> dict[tuple[str, int], MedianResult]:
    """One entry for each contender and N."""
    # After the contender, the objects and the turns; a Result has the same names.
    figures = [field.name for field in fields(MedianResult)][3:]
    grouped: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        grouped.setdefault((result.contender, result.objects), []).append(result)
    return {
        key: MedianResult(
            *key,
            len(group),
            *(median(getattr(result, figure) for result in group) for figure in figures),
        )
        for key, group in grouped.items()
    }


def targets_for(
    medians: dict[tuple[str, int], MedianResult], settled: Sequence[RestartResult]
) -> list[Target]:
    """The targets for which this run has results."""
    return [
        *_relative_targets(medians),
        *_baseline_targets(medians),
        *_absolute_targets(medians),
        *_restart_targets(settled),
    ]


def _relative_targets(medians: dict[tuple[str, int], MedianResult]) -> Iterator[Target]:
    bare, ours, kopf = (
        medians.get((contender.name, _SMALL)) for contender in (BARE, RUNTIME, KOPF)
    )
    at_small = f"N = {_SMALL:,}"
    if ours and bare:
        share = ours.statuses_per_second / bare.statuses_per_second
        yield Target(f"statuses/s, of the bare loop, {at_small}", share, ">=", 0.85, "x")
    if ours and kopf:
        share = ours.statuses_per_second / kopf.statuses_per_second
        yield Target(f"statuses/s, of kopf, {at_small}", share, ">=", 3.0, "x")
    if ours and bare:
        share = ours.cpu_working_ms / bare.cpu_working_ms
        yield Target(f"CPU per object, of the bare loop, {at_small}", share, "<=", 1.8, "x")


def _baseline_targets(medians: dict[tuple[str, int], MedianResult]) -> Iterator[Target]:
    """A change of the runtime may cost at most 5 % more CPU and memory."""
    ours, before = (medians.get((c.name, _SMALL)) for c in (RUNTIME, BASELINE))
    if ours and before:
        cpu = ours.cpu_working_ms / before.cpu_working_ms
        yield Target(f"CPU per object, of the baseline, N = {_SMALL:,}", cpu, "<=", 1.05, "x")
        rss = ours.peak_rss_mib / before.peak_rss_mib
        yield Target(f"peak RSS, of the baseline, N = {_SMALL:,}", rss, "<=", 1.05, "x")


def _absolute_targets(medians: dict[tuple[str, int], MedianResult]) -> Iterator[Target]:
    small, large = (medians.get((RUNTIME.name, count)) for count in (_SMALL, _LARGE))
    if small:
        yield Target(f"peak RSS, N = {_SMALL:,}", small.peak_rss_mib, "<=", 80.0, " MiB")
    if large:
        yield Target(f"peak RSS, N = {_LARGE:,}", large.peak_rss_mib, "<=", 130.0, " MiB")
    if small and large:
        growth = large.cpu_working_ms / small.cpu_working_ms
        yield Target(
            f"CPU per object at N = {_LARGE:,}, of that at {_SMALL:,}", growth, "<=", 1.15, "x"
        )


def _restart_targets(settled: Sequence[RestartResult]) -> Iterator[Target]:
    for restart in settled:
        start = f"second start, N = {restart.objects:,}"
        yield Target(f"{start}: statuses written", restart.status_writes, "<=", 0)
        yield Target(f"{start}: objects changed", restart.changed_objects, "<=", 0)
        idle = f"idle, N = {restart.objects:,}: of a core in {restart.idle_seconds:g} s"
        yield Target(idle, restart.idle_cpu_percent, "<=", 1.0, " %")


# Text


def format_text(results: Sequence[Result], settled: Sequence[RestartResult]) -> str:
    medians = medians_of(results)
    targets = targets_for(medians, settled)
    parts = [
        _format_table(count, medians) for count in sorted({result.objects for result in results})
    ]
    parts += [
        _growth_lines(medians),
        _spread_lines(results),
        _noise_lines(results),
        target_lines(targets),
    ]
    return "\n\n".join(part for part in parts if part)


def _format_table(count: int, medians: dict[tuple[str, int], MedianResult]) -> str:
    """One table for each number of objects."""
    at_count = {name: median for (name, objects), median in medians.items() if objects == count}
    order = [median for contender in CONTENDERS if (median := at_count.get(contender.name))]
    rows = [
        _COLUMN_TITLES,
        *(_format_row(row, at_count.get(BARE.name), at_count.get(KOPF.name)) for row in order),
    ]
    return "\n".join([f"N = {count:,}, medians of the turns", *align_columns(rows)])


def _format_row(
    median: MedianResult, bare: MedianResult | None, kopf: MedianResult | None
) -> tuple[str, ...]:
    return (
        median.contender,
        str(median.turns),
        f"{median.statuses_per_second:.0f}",
        _format_ratio(median, bare, lambda m: m.statuses_per_second),
        _format_ratio(median, kopf, lambda m: m.statuses_per_second),
        f"{median.start_to_done_seconds:.2f}",
        f"{median.cpu_working_ms:.3f}",
        _format_ratio(median, bare, lambda m: m.cpu_working_ms),
        f"{median.cpu_whole_ms:.3f}",
        f"{median.peak_rss_mib:.1f}",
        f"{median.writes_per_object:.2f}",
    )


def _format_ratio(
    median: MedianResult, other: MedianResult | None, figure: Callable[[MedianResult], float]
) -> str:
    return f"{figure(median) / figure(other):.2f}x" if other else "-"


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligns names to the left and numbers to the right."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([name.ljust(first), *map(str.rjust, cells, others)]) for name, *cells in rows]


def _growth_lines(medians: dict[tuple[str, int], MedianResult]) -> str:
    """How the time per object grows with N; not a target, since most of it is the API server's."""
    pairs = [
        (c.name, medians.get((c.name, _SMALL)), medians.get((c.name, _LARGE)))
        for c in (BARE, RUNTIME, KOPF)
    ]
    growth = [
        f"{name} {small.statuses_per_second / large.statuses_per_second:.2f}x"
        for name, small, large in pairs
        if small and large
    ]
    title = f"time per object at N = {_LARGE:,}, of that at {_SMALL:,}"
    return f"{title}: {', '.join(growth)}" if growth else ""


def _spread_lines(results: Sequence[Result]) -> str:
    """The results of three turns each show how reliable such a short run would be."""
    ours = _medians_of_three(results, RUNTIME.name)
    lines = []
    for name in (BARE.name, BASELINE.name, KOPF.name):
        ratios = [
            f"{mine / other:.2f}x"
            for mine, other in zip(ours, _medians_of_three(results, name), strict=False)
        ]
        if len(ratios) > 1:
            lines.append(
                f"statuses/s of {name}, by each three turns at N = {_SMALL:,}: {', '.join(ratios)}"
            )
    return "\n".join(lines)


def _medians_of_three(results: Sequence[Result], contender: str) -> list[float]:
    """The median statuses/s of the first three turns, of the next three, and so on."""
    rates = [
        result.statuses_per_second
        for result in results
        if result.objects == _SMALL and result.contender == contender
    ]
    return [median(rates[at : at + 3]) for at in range(0, len(rates) - 2, 3)]


def _noise_lines(results: Sequence[Result]) -> str:
    """A warning if other processes used much of the machine."""
    share = max(result.other_processes_cpu_share for result in results)
    if share <= _NOISY_SHARE:
        return ""
    return (
        f"Other processes used up to {100 * share:.0f} % of this machine's CPU during a turn: "
        "run it again on a quiet machine."
    )


def target_lines(targets: Sequence[Target]) -> str:
    """Each target with its value and its limit."""
    if not targets:
        return f"No target is checked: the targets are for N = {_SMALL:,} and {_LARGE:,}."
    rows = [
        (
            p.text,
            f"{p.value:.4g}{p.unit}",
            f"{p.comparison} {p.limit:g}{p.unit}",
            "ok" if p.is_met else "FAILED",
        )
        for p in targets
    ]
    return "\n".join(["Targets", *align_columns(rows)])


# JSON


def format_json(
    results: Sequence[Result], settled: Sequence[RestartResult], started: str, *, complete: bool
) -> bytes:
    """All results and the machine; `whole` is False for a run that was interrupted."""
    medians = medians_of(results)
    document = {
        "started": started,
        "whole": complete,
        "machine": machine_info(),
        "versions": installed_versions("kubewright", "aiohttp", "msgspec", "kopf"),
        "turns": list(results),
        "medians": list(medians.values()),
        "settled": list(settled),
        "promises": [
            msgspec.to_builtins(p) | {"kept": p.is_met} for p in targets_for(medians, settled)
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def machine_info() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def installed_versions(*names: str) -> dict[str, str]:
    """The installed versions of the compared packages."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
