"""The files that the settings name, followed: other vCenters or limits take effect without anybody's hand.

Another address is another vCenter: every inventory, session and operation belongs to the old one. So nothing is exchanged piece by piece:
the manager ends, and is built and run again in the same process. Credentials are no part of it; the session follows those.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from kubewright.errors import ConfigError, RestartRequired
from kubewright.log import Log

from ..kinds.vmgroup.limits import read_limits
from ..vcenters.config import VCenterConfig
from .environment import Warn
from .flags import Settings

POLL_SECONDS = 2.0
"""As often as credentials are looked at."""


class FileContents(Struct, frozen=True):
    """What the files say."""

    vcenter_configs: tuple[VCenterConfig, ...]
    limits_yaml: bytes


def read_config_files(settings: Settings, warn: Warn) -> FileContents:
    """What they say now, `warn` gets what is odd but works; raises ConfigError for what cannot be used."""
    read_limits(settings.limits_file)
    return FileContents(
        settings.read_vcenter_configs(warn),
        Path(settings.limits_file).read_bytes() if settings.limits_file else b"",
    )


class ConfigFileWatcher:
    """Starts the manager anew when the files say something else, or name a vCenter at last: a Secret may come after the manager.

    What cannot be used is told, and nothing changes; nor does it when no vCenter is named any more, as while a Secret is exchanged.
    """

    def __init__(
        self, settings: Settings, before: FileContents, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self.settings, self.loaded, self.poll_seconds, self.last_error = (
            settings,
            before,
            poll_seconds,
            "",
        )

    async def run(self) -> NoReturn:
        """Look until there is a change."""
        while True:
            await asyncio.sleep(self.poll_seconds)
            now = await asyncio.to_thread(self._try_read)
            if (
                now is not None
                and now != self.loaded
                and (now.vcenter_configs or not self.loaded.vcenter_configs)
            ):
                names = ", ".join(each.name for each in now.vcenter_configs) or "none"
                raise RestartRequired(
                    f"the files of the settings have changed; the vCenters are: {names}"
                )

    def _try_read(self) -> FileContents | None:
        """What the files say; None where that cannot be used, which is told once."""
        now, words = None, ""
        try:
            now = read_config_files(self.settings, lambda warning: None)
        except (ConfigError, OSError) as error:
            words = f"the files of the settings have changed, and cannot be used; so nothing changes here: {error}"
        if words and words != self.last_error:
            Log("setup").error(words)
        self.last_error = words
        return now
