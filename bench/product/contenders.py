"""The programs of the race. All of them get the same environment: see environment.py."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import which

_BINARIES = Path(__file__).parents[2] / ".testenv" / "bin"


@dataclass(frozen=True)
class Contender:
    name: str
    slug: str
    command: tuple[str, ...]
    follows_vcenter: bool = False
    """It reads the vCenter itself and follows changes; others read facts from a file."""
    reconciles: bool = True
    """It watches objects and leaves those that are done alone."""

    @property
    def is_built(self) -> bool:
        return all(Path(part).exists() for part in self.command if part.startswith(str(_BINARIES)))


MANAGER = Contender(
    "vsphere-operators",
    "manager",
    # The console script, as in the image. All flags have their defaults, but the port of /metrics.
    (str(Path(sys.executable).parent / "manager"), "-metrics-addr=127.0.0.1:0"),
    follows_vcenter=True,
)
GO = Contender(
    "controller-runtime", "go", (str(_BINARIES / "infocontrollerruntime"),), follows_vcenter=True
)
RUST = Contender("kube-rs", "rust", (str(_BINARIES / "infokubers"),))
JAVA = Contender(
    "JOSDK", "java", (which("java") or "java", "-jar", str(_BINARIES / "infojosdk.jar"))
)
KOPF = Contender("kopf, tuned", "kopf", (sys.executable, "-m", "bench.contenders.info_kopf"))
BARE = Contender(
    "bare loop", "bare", (sys.executable, "-m", "bench.contenders.info_bare"), reconciles=False
)
CONTENDERS = (MANAGER, GO, RUST, JAVA, KOPF, BARE)
BY_SLUG = {contender.slug: contender for contender in CONTENDERS}
