"""Settings -> the vCenters of this manager, each with its services and metrics; nothing is asked of them before the manager runs."""

from __future__ import annotations

from kubewright import Manager
from kubewright.log import Log
from kubewright.manager import Runnable

from .settings.flags import Settings
from .settings.reload import ConfigFileWatcher, read_config_files
from .vcenters.config import VCenterConfig
from .vcenters.metrics import VCenterMetrics
from .vcenters.registry import CONFIGURATION_HINT, VCenterRegistry
from .vsphere.stats_throttle import StatsThrottle
from .vsphere.vcenter import VCenter


class NoVCenterWarning:
    """Says at the start that there is none: the manager runs all the same, for the kinds that need none."""

    async def run(self) -> None:
        """One line, when the manager runs and not when somebody only asks what it would need."""
        Log("setup").warning(
            f"no vCenter is configured; objects that need one will say so. {CONFIGURATION_HINT}"
        )


def build_vcenters(manager: Manager, settings: Settings) -> VCenterRegistry:
    """All vCenters that the settings name, as services of the manager."""
    said = read_config_files(settings, Log("setup").warning)
    configs = said.vcenter_configs
    metrics = VCenterMetrics(manager.metrics)
    opened = {config.name: _build_vcenter(config, settings, metrics) for config in configs}
    vcenters = VCenterRegistry(
        opened,
        configs,
        manager.cache,
        lambda: StatsThrottle(settings.stats_interval_seconds, settings.stats_change_percent / 100),
    )
    for config in configs:
        if config.address.insecure:
            Log("setup").warning(
                "the certificate of this vCenter is not verified: whoever is between here and there can read the password",
                vCenter=config.name,
            )
    services: list[Runnable] = [*opened.values(), *vcenters.publishers.values()]
    for service in services or [NoVCenterWarning()]:
        manager.add_runnable(service)
    if settings.credentials_directory or settings.vcenters_file or settings.limits_file:
        manager.add_runnable(ConfigFileWatcher(settings, said))
    return vcenters


def _build_vcenter(config: VCenterConfig, settings: Settings, metrics: VCenterMetrics) -> VCenter:
    """One vCenter, watched by the metrics."""
    vcenter = VCenter(
        config.name,
        config.address,
        config.build_credential_source(),
        Log("vcenter", vCenter=config.name),
        metrics.for_vcenter(config.name),
        disk_interval_seconds=settings.disk_refresh_seconds,
        tag_interval_seconds=settings.tag_refresh_seconds,
        max_running_tasks=settings.operations_at_once,
    )
    metrics.register_gauges(vcenter)
    return vcenter
