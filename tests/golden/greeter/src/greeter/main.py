"""The `manager` command."""

from __future__ import annotations

from dataclasses import dataclass

from kubewright import Manager, command

from .kinds.greeting import GreetingController
from .kinds.greeting_v2 import GreetingV2Conversion
from .kinds.greeting_webhook import GreetingWebhook
from .kinds.house import HouseController
from .kinds.house_webhook import HouseWebhook
from .kinds.pod import PodController
from .kinds.site import SiteController


@dataclass(frozen=True)
class Settings(command.ManagerFlags):
    """The flags of the manager; add your own with `kubewright.flags.flag`."""


def build(manager: Manager, settings: Settings) -> None:
    """Add the controllers and webhooks of all kinds."""
    manager.add(GreetingController())
    manager.add(GreetingV2Conversion())
    manager.add(GreetingWebhook())
    manager.add(HouseController())
    manager.add(HouseWebhook())
    manager.add(SiteController())
    manager.add(PodController())


def main() -> int:
    return command.run(Settings, build, name="greeter")


if __name__ == "__main__":
    raise SystemExit(main())
