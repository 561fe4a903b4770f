"""The versions of this installation, from the metadata of the packages."""

from __future__ import annotations

import sys

from msgspec import Struct

from kubewright.metrics import Metrics
from kubewright.version import read_version

_DISTRIBUTION = "vsphere-operators"


class _Versions(Struct, frozen=True, kw_only=True):
    """The fields are the keys of `kubectl vsphere version -o json`."""

    version: str
    kubewright: str
    python: str

    def __str__(self) -> str:
        return (
            f"{_DISTRIBUTION} {self.version} (kubewright {self.kubewright}, Python {self.python})"
        )


# Read at import: reading files in the event loop would block it.
VERSIONS = _Versions(
    version=read_version(_DISTRIBUTION),
    kubewright=read_version(),
    python=".".join(map(str, sys.version_info[:3])),
)


def register_build_info(metrics: Metrics) -> None:
    metrics.new_gauge(
        "vsphere_operators_build_info",
        "Always 1; the labels are the versions of the manager, of kubewright and of Python",
        ["version", "kubewright_version", "python_version"],
    ).labels(VERSIONS.version, VERSIONS.kubewright, VERSIONS.python).set(1)
