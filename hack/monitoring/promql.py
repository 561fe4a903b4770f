"""Expressions that several dashboards use."""

from __future__ import annotations

from .model import JOB_SELECTOR


def p99(metric: str, label: str, selector: str = JOB_SELECTOR) -> str:
    buckets = f"rate({metric}_bucket{{{selector}}}[$__rate_interval])"
    return f"histogram_quantile(0.99, sum by ({label}, le) ({buckets}))"


def rate(metric: str, *labels: str, selector: str = JOB_SELECTOR) -> str:
    return f"sum by ({', '.join(labels)}) (rate({metric}{{{selector}}}[$__rate_interval]))"
