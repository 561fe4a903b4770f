"""Restarts the manager, in the same process, when its configuration files change.

Why a restart?  A changed address is another vCenter, and every inventory, session and operation
    belongs to the old one. Credentials are not part of this: the session reads them again.
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

# As often as the session reads credentials.
_POLL_SECONDS = 2.0


class LoadedConfig(Struct, frozen=True):
    vcenter_configs: tuple[VCenterConfig, ...]
    limits_yaml: bytes


def read_config_files(settings: Settings, warn: Warn) -> LoadedConfig:
    # Only to validate: the bytes are what is compared.
    read_limits(settings.limits_file)
    return LoadedConfig(
        settings.read_vcenter_configs(warn),
        Path(settings.limits_file).read_bytes() if settings.limits_file else b"",
    )


class ConfigFileWatcher:
    """Raises RestartRequired when the files change; invalid files are logged and ignored."""

    def __init__(
        self, settings: Settings, loaded: LoadedConfig, poll_seconds: float = _POLL_SECONDS
    ) -> None:
        self._settings, self._loaded, self._poll_seconds = settings, loaded, poll_seconds
        self._last_error = ""

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._poll_seconds)
            contents = await asyncio.to_thread(self._try_read)
            if contents is None or contents == self._loaded:
                continue
            # While a Secret is replaced, no vCenter may be configured for a moment.
            if contents.vcenter_configs or not self._loaded.vcenter_configs:
                names = ", ".join(config.name for config in contents.vcenter_configs) or "none"
                raise RestartRequired(
                    f"the configuration files have changed; the vCenters are: {names}"
                )

    def _try_read(self) -> LoadedConfig | None:
        contents, error_message = None, ""
        try:
            contents = read_config_files(self._settings, lambda warning: None)
        except (ConfigError, OSError) as error:
            error_message = f"ignoring the changed configuration files: {error}"
        # Log each error once, not with every poll.
        if error_message and error_message != self._last_error:
            Log("setup").error(error_message)
        self._last_error = error_message
        return contents
