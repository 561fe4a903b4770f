"""Selects the vCenter of a namespace by the rules of the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from fnmatch import fnmatchcase

from kubewright.errors import ConfigError

from .config import VCenterConfig


class _NamespaceMatch(IntEnum):
    """How closely the rule of a vCenter matches a namespace; the lowest wins."""

    NAME = 0
    GLOB = 1
    LABELS = 2
    DEFAULT = 3


_MATCH_DESCRIPTIONS = {
    _NamespaceMatch.NAME: "by its exact name",
    _NamespaceMatch.GLOB: "by a glob in `names`",
    _NamespaceMatch.LABELS: "by `labels`",
    _NamespaceMatch.DEFAULT: "because they have no `namespaces`",
}


def choose_vcenter(
    configs: Sequence[VCenterConfig], namespace: str, labels: Mapping[str, str]
) -> VCenterConfig | None:
    """The vCenter of a namespace: by exact name, then glob, then labels, then the default one."""
    matches = [
        (match, config)
        for config in configs
        if (match := _match_namespace(config, namespace, labels)) is not None
    ]
    best = min((match for match, _ in matches), default=_NamespaceMatch.DEFAULT)
    winners = [config for match, config in matches if match is best]
    if len(winners) > 1:
        names = " and ".join(f'"{config.name}"' for config in winners)
        raise ConfigError(
            f'Namespace "{namespace}" belongs to more than one vCenter: {names} claim it '
            f"{_MATCH_DESCRIPTIONS[best]}. Change `namespaces` in the -vcenters file so that only "
            "one matches. Exact names take precedence over globs, and globs over labels."
        )
    return winners[0] if winners else None


def _match_namespace(
    config: VCenterConfig, namespace: str, labels: Mapping[str, str]
) -> _NamespaceMatch | None:
    """How closely the rule of one vCenter matches; another's may match more closely."""
    rule = config.namespaces
    if rule is None:
        return _NamespaceMatch.DEFAULT
    if namespace in rule.names:
        return _NamespaceMatch.NAME
    if any(fnmatchcase(namespace, glob) for glob in rule.names):
        return _NamespaceMatch.GLOB
    return _NamespaceMatch.LABELS if rule.labels and rule.labels.items() <= labels.items() else None
