"""The files that the settings name, followed: other vCenters or limits take effect without anybody's hand.

Another address is another vCenter: every inventory, session and operation belongs to the old one. So nothing is exchanged piece by piece:
the manager ends, and is built and run again in the same process. Credentials are no part of it; the session follows those.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from kubewright.errors import ConfigError, StartAnew
from kubewright.log import Log

from ..kinds.vmgroup.limits_file import limits_in
from ..vcenters.config import VCenterConfig
from .environment import Warn
from .flags import Settings

LOOK_SECONDS = 2.0
"""As often as credentials are looked at."""


class Said(Struct, frozen=True):
    """What the files say."""

    vcenters: tuple[VCenterConfig, ...]
    limits: bytes


def said_by(settings: Settings, warn: Warn) -> Said:
    """What they say now, `warn` gets what is odd but works; raises ConfigError for what cannot be used."""
    limits_in(settings.limits_file)
    return Said(settings.vcenters(warn), Path(settings.limits_file).read_bytes() if settings.limits_file else b"")


class Following:
    """Starts the manager anew when the files say something else, or name a vCenter at last: a Secret may come after the manager.

    What cannot be used is told, and nothing changes; nor does it when no vCenter is named any more, as while a Secret is exchanged.
    """

    def __init__(self, settings: Settings, before: Said, look_seconds: float = LOOK_SECONDS) -> None:
        self.settings, self.before, self.look_seconds, self.told = settings, before, look_seconds, ""

    async def run(self) -> NoReturn:
        """Look until there is a change."""
        while True:
            await asyncio.sleep(self.look_seconds)
            now = await asyncio.to_thread(self.look)
            if now is not None and now != self.before and (now.vcenters or not self.before.vcenters):
                names = ", ".join(each.name for each in now.vcenters) or "none"
                raise StartAnew(f"the files of the settings have changed; the vCenters are: {names}")

    def look(self) -> Said | None:
        """What the files say; None where that cannot be used, which is told once."""
        now, words = None, ""
        try:
            now = said_by(self.settings, lambda warning: None)
        except (ConfigError, OSError) as error:
            words = f"the files of the settings have changed, and cannot be used; so nothing changes here: {error}"
        if words and words != self.told:
            Log("setup").error(words)
        self.told = words
        return now
