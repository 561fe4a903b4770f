"""Flags and environment -> Settings. The only reader of os.environ and argv."""

from __future__ import annotations

from dataclasses import dataclass

from kubewright.command import ManagerFlags
from kubewright.flags import flag


@dataclass(frozen=True)
class Settings(ManagerFlags):
    """What the manager is told from outside; the contract's names, in Go's syntax."""

    insecure: bool = flag("insecure", False, "Do not verify the vCenter's TLS certificate. Kubernetes' is always verified.")
