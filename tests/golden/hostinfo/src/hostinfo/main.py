"""The `manager` command."""

from __future__ import annotations

from dataclasses import dataclass

from kubewright import Manager, command

from .kinds.hostinfo import HostInfoController


@dataclass(frozen=True)
class Settings(command.ManagerFlags):
    """The flags of the manager; add your own with `kubewright.flags.flag`."""


def build(manager: Manager, settings: Settings) -> None:
    """Add the controllers and webhooks of all kinds."""
    manager.add(HostInfoController())


def main() -> int:
    return command.run(Settings, build, name="hostinfo")


if __name__ == "__main__":
    raise SystemExit(main())
