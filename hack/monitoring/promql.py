"""Expressions that several dashboards use."""

from __future__ import annotations

from .model import JOB_SELECTOR

VCENTER = 'vcenter=~"$vcenter"'
# A name is not unique in vSphere, so the reference and the vCenter are part of each key.
HOST_KEYS = "vcenter, host, host_id"


def p99(metric: str, label: str, selector: str = JOB_SELECTOR) -> str:
    buckets = f"rate({metric}_bucket{{{selector}}}[$__rate_interval])"
    return f"histogram_quantile(0.99, sum by ({label}, le) ({buckets}))"


def rate(metric: str, *labels: str, selector: str = JOB_SELECTOR) -> str:
    return f"sum by ({', '.join(labels)}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def max_by(keys: str, metric: str) -> str:
    """Without the labels of the manager, which change with the leader."""
    return f"max by ({keys}) ({metric}{{{VCENTER}}})"
