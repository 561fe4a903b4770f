"""The `manager` command: flags -> Manager -> run."""

from __future__ import annotations

from dataclasses import dataclass

from kubewright import Manager, command

from .kinds.hostinfo import HostInfoController


@dataclass(frozen=True)
class Settings(command.ManagerFlags):
    """The flags of every manager; add your own with `kubewright.flags.flag`."""


def build(manager: Manager, settings: Settings) -> None:
    """Every kind that this manager serves: one line each."""
    manager.add(HostInfoController())


def main() -> int:
    """Run the manager until a signal."""
    return command.run(Settings, build, name="hostinfo")


if __name__ == "__main__":
    raise SystemExit(main())
