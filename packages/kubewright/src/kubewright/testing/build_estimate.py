"""Estimates how much of a Go build is done, by the size of its packages.

Why not by their number? A few packages take as long as hundreds of others, and the linker runs
after the last one, so that a count stands still for minutes and the estimate is too short.
Why the size of their sources? `go build` knows no times before the build. In a recorded build of
all binaries (Go 1.26, `go build -debug-actiongraph`), BASE and BYTES below explain @@ of the
variance of the compile times.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

# For `go list -deps -f`.
PACKAGE_FORMAT = '{{.Stale}}|{{.ImportPath}}|{{.Dir}}|{{join .GoFiles ","}}'
# Cost in bytes of source: the time of a package is proportional to its size plus this.
_PACKAGE_COST = 50_000
# The linker reads everything that is compiled, once for each program.
_LINK_SHARE = 0.05


class BuildEstimate:
    """The cost of the packages that are compiled, and of linking the programs."""

    def __init__(self, listed: Sequence[str], programs: int, processors: int = 0) -> None:
        """`listed` is what `go list` prints with PACKAGE_FORMAT."""
        sizes: dict[str, int] = {}
        self._costs: dict[str, int] = {}
        for line in listed:
            stale, separator, rest = line.strip().partition("|")
            if not separator:
                continue
            path, folder, names = rest.split("|")
            sizes[path] = _PACKAGE_COST + _size_of_files(Path(folder), names)
            # Go's cache has the others: another binary may share most packages.
            if stale == "true":
                self._costs[path] = sizes[path]
        self._link_cost = programs * _LINK_SHARE * sum(sizes.values())
        self._total = sum(self._costs.values()) + self._link_cost
        # Go compiles as many packages at once, and prints each when it begins.
        self._processors = processors or os.cpu_count() or 1
        self._printed = 0
        self._ended_cost = self._ended_seconds = 0.0

    def describe(self, packages: Sequence[str]) -> str:
        if len(packages) >= len(self._costs):
            return "linking"
        return f"{len(packages)} of {len(self._costs)} packages"

    def share(self, packages: Sequence[str], seconds: float) -> float:
        """The share that is done, 0 to 1, from the packages that were begun, and the time so far.

        Between two packages it grows at the rate so far: a large one or the linker takes long.
        """
        running = packages[-self._processors :]
        running_cost = float(sum(self._cost(package) for package in running))
        if len(packages) >= len(self._costs):
            running_cost += self._link_cost
        if len(packages) > self._printed:
            self._printed, self._ended_seconds = len(packages), seconds
            ended = packages[: -self._processors]
            self._ended_cost = float(sum(self._cost(package) for package in ended))
        rate = self._ended_cost / self._ended_seconds if self._ended_seconds else 0.0
        done = self._ended_cost + min(running_cost, rate * (seconds - self._ended_seconds))
        return min(done / self._total, 1.0) if self._total else 0.0

    def _cost(self, package: str) -> int:
        return self._costs.get(package, _PACKAGE_COST)


def _size_of_files(folder: Path, names: str) -> int:
    size = 0
    for name in filter(None, names.split(",")):
        try:
            size += (folder / name).stat().st_size
        except OSError:
            # Generated for cgo, or removed from the module cache meanwhile: only the estimate
            # is less exact.
            continue
    return size
