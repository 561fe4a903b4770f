"""From turns to what a person reads: medians, the table, and whether each promise holds."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any, Literal

import msgspec
import psutil

from bench.settled import Settled
from bench.turn import BARE, CONTENDERS, KOPF, RUNTIME, Result

SMALL, LARGE = 1_000, 10_000
NOISY_SHARE = 0.10
FIGURES = ("statuses_per_second", "start_to_done_seconds", "cpu_working_ms", "cpu_whole_ms", "peak_rss_mib", "writes_per_object")
HEADS = (
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
class Median:
    """The medians of one contender's turns at one N."""

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
class Promise:
    """One promise of the runtime, beside what was measured."""

    text: str
    value: float
    sign: Literal["<=", ">="]
    limit: float
    unit: str = ""

    @property
    def kept(self) -> bool:
        return self.value <= self.limit if self.sign == "<=" else self.value >= self.limit


def medians_of(results: Sequence[Result]) -> dict[tuple[str, int], Median]:
    """One line a contender and N."""
    grouped: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        grouped.setdefault((result.contender, result.objects), []).append(result)
    return {
        key: Median(*key, len(group), *(median(getattr(result, figure) for result in group) for figure in FIGURES))
        for key, group in grouped.items()
    }


def promises_of(medians: dict[tuple[str, int], Median], settled: Sequence[Settled]) -> list[Promise]:
    """Those promises for which this run has the figures."""
    return [*beside_others(medians), *by_itself(medians), *at_rest(settled)]


def beside_others(medians: dict[tuple[str, int], Median]) -> Iterator[Promise]:
    bare, ours, kopf = (medians.get((contender.name, SMALL)) for contender in (BARE, RUNTIME, KOPF))
    if ours and bare:
        yield Promise(f"statuses/s, of the bare loop, N = {SMALL:,}", ours.statuses_per_second / bare.statuses_per_second, ">=", 0.85, "x")
    if ours and kopf:
        yield Promise(f"statuses/s, of kopf, N = {SMALL:,}", ours.statuses_per_second / kopf.statuses_per_second, ">=", 3.0, "x")
    if ours and bare:
        yield Promise(f"CPU per object, of the bare loop, N = {SMALL:,}", ours.cpu_working_ms / bare.cpu_working_ms, "<=", 1.8, "x")


def by_itself(medians: dict[tuple[str, int], Median]) -> Iterator[Promise]:
    small, large = (medians.get((RUNTIME.name, count)) for count in (SMALL, LARGE))
    if small:
        yield Promise(f"peak RSS, N = {SMALL:,}", small.peak_rss_mib, "<=", 80.0, " MiB")
    if large:
        yield Promise(f"peak RSS, N = {LARGE:,}", large.peak_rss_mib, "<=", 130.0, " MiB")
    if small and large:
        growth = large.cpu_working_ms / small.cpu_working_ms
        yield Promise(f"CPU per object at N = {LARGE:,}, of that at {SMALL:,}", growth, "<=", 1.15, "x")


def at_rest(settled: Sequence[Settled]) -> Iterator[Promise]:
    for each in settled:
        yield Promise(f"second start, N = {each.objects:,}: statuses written", each.status_writes, "<=", 0)
        yield Promise(f"second start, N = {each.objects:,}: objects changed", each.changed_objects, "<=", 0)
        yield Promise(f"at rest, N = {each.objects:,}: of a core in {each.rest_seconds:g} s", each.rest_cpu_percent, "<=", 1.0, " %")


# Text


def text_of(results: Sequence[Result], settled: Sequence[Settled]) -> str:
    """The whole report."""
    medians = medians_of(results)
    promises = promises_of(medians, settled)
    parts = [table(count, medians) for count in sorted({result.objects for result in results})]
    parts += [growth_lines(medians), spread_lines(results), noise_lines(results), promise_lines(promises)]
    return "\n\n".join(part for part in parts if part)


def table(count: int, medians: dict[tuple[str, int], Median]) -> str:
    """One table a number of objects."""
    here = {name: each for (name, objects), each in medians.items() if objects == count}
    order = [each for contender in CONTENDERS if (each := here.get(contender.name))]
    rows = [HEADS, *(row(each, here.get(BARE.name), here.get(KOPF.name)) for each in order)]
    return "\n".join([f"N = {count:,}, medians of the turns", *aligned(rows)])


def row(each: Median, bare: Median | None, kopf: Median | None) -> tuple[str, ...]:
    """One contender's line."""
    return (
        each.contender,
        str(each.turns),
        f"{each.statuses_per_second:.0f}",
        ratio(each, bare, lambda m: m.statuses_per_second),
        ratio(each, kopf, lambda m: m.statuses_per_second),
        f"{each.start_to_done_seconds:.2f}",
        f"{each.cpu_working_ms:.3f}",
        ratio(each, bare, lambda m: m.cpu_working_ms),
        f"{each.cpu_whole_ms:.3f}",
        f"{each.peak_rss_mib:.1f}",
        f"{each.writes_per_object:.2f}",
    )


def ratio(each: Median, other: Median | None, figure: Callable[[Median], float]) -> str:
    return f"{figure(each) / figure(other):.2f}x" if other else "-"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of one width each: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([r[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(r[1:], widths[1:], strict=True))]) for r in rows]


def growth_lines(medians: dict[tuple[str, int], Median]) -> str:
    """How the time an object takes grows with N, for each; no promise, since most of it is the API server's."""
    pairs = [(c.name, medians.get((c.name, SMALL)), medians.get((c.name, LARGE))) for c in (BARE, RUNTIME, KOPF)]
    told = [f"{name} {small.statuses_per_second / large.statuses_per_second:.2f}x" for name, small, large in pairs if small and large]
    return f"time per object at N = {LARGE:,}, of that at {SMALL:,}: {', '.join(told)}" if told else ""


def spread_lines(results: Sequence[Result]) -> str:
    """What runs of three turns would have said: how far to trust one."""
    ours = by_threes(results, RUNTIME.name)
    lines = []
    for name in (BARE.name, KOPF.name):
        ratios = [f"{mine / other:.2f}x" for mine, other in zip(ours, by_threes(results, name), strict=False)]
        if len(ratios) > 1:
            lines.append(f"statuses/s of {name}, by each three turns at N = {SMALL:,}: {', '.join(ratios)}")
    return "\n".join(lines)


def by_threes(results: Sequence[Result], contender: str) -> list[float]:
    """The median statuses/s of the first three turns, of the next three, and so on."""
    paces = [result.statuses_per_second for result in results if result.objects == SMALL and result.contender == contender]
    return [median(paces[at : at + 3]) for at in range(0, len(paces) - 2, 3)]


def noise_lines(results: Sequence[Result]) -> str:
    """A warning where others had much of the machine."""
    share = max(result.others_cpu_share for result in results)
    if share <= NOISY_SHARE:
        return ""
    return f"Other processes had up to {100 * share:.0f} % of this machine's CPU during a turn: run it again on a quiet machine."


def promise_lines(promises: Sequence[Promise]) -> str:
    """Each promise with its value and its limit."""
    if not promises:
        return f"No promise is judged: they are made for N = {SMALL:,} and {LARGE:,}."
    rows = [(p.text, f"{p.value:.4g}{p.unit}", f"{p.sign} {p.limit:g}{p.unit}", "ok" if p.kept else "FAILED") for p in promises]
    return "\n".join(["Promises", *aligned(rows)])


# JSON


def json_of(results: Sequence[Result], settled: Sequence[Settled], started: str, *, whole: bool) -> bytes:
    """Everything measured, turn by turn, and what it was measured on; `whole` is False where the run broke off."""
    medians = medians_of(results)
    document = {
        "started": started,
        "whole": whole,
        "machine": machine(),
        "versions": versions("kubewright", "aiohttp", "msgspec", "kopf"),
        "turns": list(results),
        "medians": list(medians.values()),
        "settled": list(settled),
        "promises": [msgspec.to_builtins(p) | {"kept": p.kept} for p in promises_of(medians, settled)],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def versions(*names: str) -> dict[str, str]:
    """The installed versions of what is compared."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
