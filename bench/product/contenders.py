"""The programs of the race. They get the same environment variables: see environment.py."""

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
    """It reads the vCenter and follows its changes; other contenders read facts from a file."""
    reconciles: bool = True
    """It watches objects, and does not write those that have their status."""

    @property
    def is_built(self) -> bool:
        return all(Path(part).exists() for part in self.command if part.startswith(str(_BINARIES)))


MANAGER = Contender(
    "vsphere-operators",
    "manager",
    # The console script, as in the image. Only the port of /metrics is not the default.
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
