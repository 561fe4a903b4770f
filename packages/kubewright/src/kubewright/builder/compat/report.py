"""What `kubewright manifests` prints about breaking changes."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

from .crd_diff import CrdChange
from .rules import POLICIES, Rule

_WIDTH = 100


def format_breaking_changes(
    changes: Sequence[CrdChange], policies: Collection[str], source: str
) -> str:
    """The breaking changes, by what they break; empty without any.

    `source` names the CRDs that they were compared with.
    """
    by_rule: dict[Rule, list[CrdChange]] = {}
    for item in changes:
        if item.change.rule is not None and item.is_breaking(policies):
            by_rule.setdefault(item.change.rule, []).append(item)
    if not by_rule:
        return ""
    lines = []
    for rule, items in by_rule.items():
        lines += [f"breaking: {item}" for item in items]
        policy = f" (policy {rule.policy})" if rule.policy else ""
        text = f"{rule.effect} {rule.advice}{policy}"
        lines += textwrap.wrap(
            text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    lines += [
        f"Compared with the CRDs of {source}. "
        "If these changes are intended, use `--check --allow-breaking`."
    ]
    return "\n".join(lines)


def format_policies() -> str:
    """The policies as a list for --help."""
    width = max(map(len, POLICIES))
    return "\n".join(f"  {name.ljust(width)}  {text}" for name, text in POLICIES.items())
