"""The flags and environment variables of the manager, and the vCenters that they configure.

The vCenters are those of the -vcenters file, and one of the environment (or of
-vcenter-credentials) for all other namespaces. To configure none is not an error: kinds that do not
need one work, and the conditions of the others explain what to set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET

from kubewright.command import ManagerFlags
from kubewright.errors import ConfigError
from kubewright.flags import Duration, flag, format_duration, invalid_value

from ..kinds.gpuinfo.flags import GPUFlags
from ..kinds.vmgroup.limits import find_template_path_error
from ..node_labels.flags import NodeLabelFlags
from ..vcenters.config import VCENTERS_FORMAT, VCenterConfig, VCenterEntry, parse_server_address
from ..vsphere.address import Address
from .environment import SERVER_KEYS, Environment, Warn, read_server

_MIN_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class Settings(ManagerFlags):
    """The flags of the manager. Those of the original operators keep their names and defaults."""

    insecure_flag: bool | None = flag(
        "insecure",
        None,
        "Do not verify the TLS certificate of vCenter. That of Kubernetes is always verified.",
        env="GOVMOMI_INSECURE",
    )
    ca_file: str = flag(
        "vcenter-ca-file",
        "",
        "CA bundle to verify vCenters; by default that of the system.",
        env="VC_CA_FILE",
    )
    credentials_directory: str = flag(
        "vcenter-credentials",
        "",
        "Directory of a mounted Secret with files named like the environment variables; it takes "
        "precedence over them.",
    )
    vcenters_file: str = flag(
        "vcenters", "", "YAML file with several vCenters and the namespaces that they serve."
    )
    stats_interval_seconds: Duration = flag(
        "stats-interval",
        60.0,
        "Interval at which small changes of usage are written to the status.",
    )
    stats_change_percent: float = flag(
        "stats-change-percent",
        5.0,
        "Change of usage, in percent of the total, that is written to the status at once.",
    )
    disk_refresh_seconds: Duration = flag(
        "disk-refresh-interval", 60.0, "Interval at which First Class Disks are listed."
    )
    tag_refresh_seconds: Duration = flag(
        "tag-refresh-interval", 300.0, "Interval at which the tags of hosts are read."
    )
    # "operations" is the original operator's word for vCenter's tasks.
    max_running_tasks: int = flag(
        "vcenter-operations",
        3,
        "Maximum number of VMs that are cloned, changed or destroyed at once in each vCenter.",
    )
    load_timeout_seconds: Duration = flag(
        "vcenter-load-timeout",
        600.0,
        "How long it may take to read the whole inventory of a vCenter.",
    )
    limits_file: str = flag(
        "vmgroup-limits",
        "",
        "YAML file with the templates, placements and quotas allowed for VmGroups per namespace.",
    )
    allowed_templates: tuple[str, ...] = flag(
        "vmgroup-allowed-template",
        (),
        "Full inventory path of a template, or of a folder with templates. If set, VmGroups can "
        "use no others, neither by name nor by path. Namespaces with templateFolders in "
        "-vmgroup-limits use those instead.",
    )
    missing_vm_timeout_seconds: Duration = flag(
        "vmgroup-missing-vm-timeout",
        300.0,
        "Time after which a VM of a VmGroup that is missing in vCenter counts as deleted and is "
        "replaced, if nothing shows earlier that it was deleted.",
    )
    cluster_id: str = flag(
        "cluster-id",
        "",
        "ID that marks the VMs of this cluster; by default the uid of namespace kube-system.",
    )
    webhooks: bool = flag(
        "webhooks",
        False,
        "Warn at `kubectl apply` about names that vCenter does not have; no object is rejected.",
    )
    inventory_metrics: bool = flag(
        "inventory-metrics",
        False,
        "Serve metrics of hosts, datastores, clusters, and VMs that are Nodes or replicas of a "
        "VmGroup.",
    )
    inventory_metrics_all_vms: bool = flag(
        "inventory-metrics-all-vms", False, "Serve metrics of all VMs, with -inventory-metrics."
    )
    inventory_metrics_limit: int = flag(
        "inventory-metrics-limit",
        5000,
        "Maximum number of objects of each type and vCenter that have metrics; others are counted.",
    )
    ui_bind_address: str = flag(
        "ui-bind-address",
        "",
        "Address of the page with the topology. On a loopback address, such as 127.0.0.1:9090, it "
        "is reached by kubectl port-forward; any other address has HTTPS with authentication and "
        "authorization. If empty, the page is disabled.",
        env="UI_BIND_ADDRESS",
    )
    ui_certificate_dir: str = flag(
        "ui-cert-path",
        "",
        "Directory with tls.crt and tls.key of the page, if it is not on a loopback address. "
        "If empty, a self-signed certificate is generated.",
    )
    gpu: GPUFlags = field(default_factory=GPUFlags)
    node_labels: NodeLabelFlags = field(default_factory=NodeLabelFlags)
    environment: Environment = field(default_factory=Environment)

    def __post_init__(self) -> None:
        intervals = {
            "stats-interval": self.stats_interval_seconds,
            "disk-refresh-interval": self.disk_refresh_seconds,
            "tag-refresh-interval": self.tag_refresh_seconds,
            "vmgroup-missing-vm-timeout": self.missing_vm_timeout_seconds,
            "vcenter-load-timeout": self.load_timeout_seconds,
        }
        for name, seconds in intervals.items():
            if seconds < _MIN_INTERVAL_SECONDS:
                raise invalid_value(name, format_duration(seconds), "must be at least 1s")
        for path in self.allowed_templates:
            if error := find_template_path_error(path):
                raise invalid_value("vmgroup-allowed-template", path, error)
        if not 1 <= self.max_running_tasks <= 100:
            raise invalid_value(
                "vcenter-operations", str(self.max_running_tasks), "must be from 1 to 100"
            )
        if self.inventory_metrics_all_vms and not self.inventory_metrics:
            raise invalid_value(
                "inventory-metrics-all-vms", "true", "requires -inventory-metrics, which is off"
            )
        if self.inventory_metrics_limit < 1:
            raise invalid_value(
                "inventory-metrics-limit", str(self.inventory_metrics_limit), "must be at least 1"
            )
        if not 0 <= self.stats_change_percent <= 100:
            raise invalid_value(
                "stats-change-percent", f"{self.stats_change_percent:g}", "must be from 0 to 100"
            )

    @property
    def insecure(self) -> bool:
        """The flag, else GOVMOMI_INSECURE (the flag's variable), else VC_INSECURE."""
        return self.environment.vc_insecure if self.insecure_flag is None else self.insecure_flag

    def read_vcenter_configs(
        self, warn: Warn, *, check_files: bool = True
    ) -> tuple[VCenterConfig, ...]:
        """Read the configured vCenters from files and the environment. It blocks.

        With `check_files`, it warns of a CA bundle and credentials that do not exist.
        """
        listed = (
            tuple(map(self._build_listed_config, VCENTERS_FORMAT.read(self.vcenters_file).vcenters))
            if self.vcenters_file
            else ()
        )
        default = self._build_default_config(warn)
        if default is not None:
            _reject_conflicts(default, listed, self.vcenters_file)
        configs = (*listed, default) if default else listed
        for config in configs if check_files else ():
            _warn_of_missing_files(config, warn)
        return configs

    def _build_listed_config(self, entry: VCenterEntry) -> VCenterConfig:
        """An entry of the file; its paths are relative to the file, and flags are its defaults."""
        folder = Path(self.vcenters_file).parent
        insecure = self.insecure if entry.insecure is UNSET else entry.insecure
        return VCenterConfig(
            name=entry.name,
            address=parse_server_address(
                entry.server,
                insecure=insecure,
                ca_file=str(folder / entry.ca) if entry.ca else self.ca_file,
            ),
            credentials_directory=str(folder / entry.credentials),
            defaults=entry.defaults,
            namespaces=None if entry.namespaces is UNSET else entry.namespaces,
            load_timeout_seconds=self.load_timeout_seconds,
        )

    def _build_default_config(self, warn: Warn) -> VCenterConfig | None:
        """The vCenter of -vcenter-credentials, else of the environment; None if neither has one."""
        if self.credentials_directory:
            return self._build_directory_config(warn)
        login = self.environment.choose_login(warn)
        if login is None:
            return None
        address = self._parse_address(login.variable_names[0], login.server)
        return VCenterConfig(
            address.host,
            address,
            username=login.username,
            password=login.password,
            load_timeout_seconds=self.load_timeout_seconds,
        )

    def _build_directory_config(self, warn: Warn) -> VCenterConfig | None:
        key, server = read_server(self.credentials_directory)
        if not server:
            key, server = self.environment.choose_server(warn)
        if not server:
            warn(
                f"-vcenter-credentials {self.credentials_directory}: neither the directory nor the "
                "environment has the address of a vCenter, so none is used. Put it into "
                f"{SERVER_KEYS[0]} or {SERVER_KEYS[-1]}; the manager reloads it automatically."
            )
            return None
        address = self._parse_address(key, server)
        return VCenterConfig(
            address.host,
            address,
            credentials_directory=self.credentials_directory,
            load_timeout_seconds=self.load_timeout_seconds,
        )

    def _parse_address(self, key: str, server: str) -> Address:
        try:
            return parse_server_address(server, insecure=self.insecure, ca_file=self.ca_file)
        except ValueError as error:
            raise ConfigError(f"{key} is not the address of a vCenter: {error}") from None


def _reject_conflicts(default: VCenterConfig, listed: Sequence[VCenterConfig], file: str) -> None:
    for config in listed:
        if config.namespaces is None:
            raise ConfigError(
                f'two vCenters would be the default for all other namespaces: "{config.name}" of '
                f"{file}, which has no `namespaces`, and {default.name} of the environment or "
                f'-vcenter-credentials. Give "{config.name}" its namespaces, or remove the other.'
            )
        if config.name == default.name:
            raise ConfigError(
                f'"{default.name}" is the name of a vCenter in {file} and the host of the one in '
                "the environment; rename the one in the file"
            )


def _warn_of_missing_files(config: VCenterConfig, warn: Warn) -> None:
    # Not an error: a Secret may be mounted before it has any keys.
    directory, ca_file = config.credentials_directory, config.address.ca_file
    if directory and not Path(directory).is_dir():
        warn(
            f"vCenter {config.name}: the credentials directory {directory} does not exist (yet); "
            "logins fail until it does"
        )
    if ca_file and not Path(ca_file).is_file():
        warn(
            f"vCenter {config.name}: the CA bundle {ca_file} does not exist (yet); "
            "connections fail until it does"
        )
