"""Flags and environment -> Settings -> the vCenters to use. The only reader of os.environ and argv.

    for config in settings.vcenters(log.warning):          # it reads files: call it in a thread, or before the loop
        ...

Which vCenters: those of the -vcenters file, and the one of the environment (or of -vcenter-credentials) for all the rest. None at all is
no error: kinds that need none work, and the others say what to set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET

from kubewright.command import ManagerFlags
from kubewright.errors import ConfigError
from kubewright.flags import Duration, FlagError, flag, format_duration

from ..kinds.gpuinfo.options import GPUFlags
from ..vcenters.config import VCenterConfig, VCenterEntry, parse_server_address, read_vcenters
from ..vsphere.address import Address
from .environment import SERVER_KEYS, Environment, Warn, read_server

MIN_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class Settings(ManagerFlags):
    """What the manager is told from outside; the contract's names, in Go's syntax."""

    insecure_flag: bool | None = flag(
        "insecure",
        None,
        "Do not verify the vCenter's TLS certificate. Kubernetes' is always verified.",
        env="GOVMOMI_INSECURE",
    )
    ca_file: str = flag(
        "vcenter-ca-file",
        "",
        "CA bundle to verify vCenters with; the machine's own by default.",
        env="VC_CA_FILE",
    )
    credentials_directory: str = flag(
        "vcenter-credentials",
        "",
        "Directory of a mounted Secret with the variables' names as files; goes before the environment.",
    )
    vcenters_file: str = flag(
        "vcenters", "", "YAML file that lists several vCenters and the namespaces that they serve."
    )
    stats_interval_seconds: Duration = flag(
        "stats-interval", 60.0, "How often a status follows usage that moves a little."
    )
    stats_change_percent: float = flag(
        "stats-change-percent",
        5.0,
        "How far usage moves, in percent of the total, to be written at once.",
    )
    disk_refresh_seconds: Duration = flag(
        "disk-refresh-interval", 60.0, "How often First Class Disks are listed anew."
    )
    tag_refresh_seconds: Duration = flag(
        "tag-refresh-interval", 300.0, "How often the tags of hosts are read anew."
    )
    operations_at_once: int = flag(
        "vcenter-operations",
        3,
        "How many VMs are cloned, changed or destroyed at once in each vCenter.",
    )
    limits_file: str = flag(
        "vmgroup-limits",
        "",
        "YAML file with the templates, places and amounts that each namespace's VmGroups may use.",
    )
    cluster_id: str = flag(
        "cluster-id",
        "",
        "What VMs of this cluster are marked with; by default the uid of namespace kube-system.",
    )
    webhooks: bool = flag(
        "webhooks",
        False,
        "Warn, at `kubectl apply`, of names that vCenter does not have; nothing is refused.",
    )
    gpu: GPUFlags = field(default_factory=GPUFlags)
    environment: Environment = field(default_factory=Environment)

    def __post_init__(self) -> None:
        intervals = {
            "stats-interval": self.stats_interval_seconds,
            "disk-refresh-interval": self.disk_refresh_seconds,
            "tag-refresh-interval": self.tag_refresh_seconds,
        }
        for name, seconds in intervals.items():
            if seconds < MIN_INTERVAL_SECONDS:
                raise FlagError(
                    f'invalid value "{format_duration(seconds)}" for flag -{name}: it has to be at least 1s'
                )
        if not 1 <= self.operations_at_once <= 100:
            raise FlagError(
                f'invalid value "{self.operations_at_once}" for flag -vcenter-operations: it has to be from 1 to 100'
            )
        if not 0 <= self.stats_change_percent <= 100:
            raise FlagError(
                f'invalid value "{self.stats_change_percent:g}" for flag -stats-change-percent: it has to be from 0 to 100'
            )

    @property
    def insecure(self) -> bool:
        """Whether to skip the vCenter's TLS checks: the flag, then GOVMOMI_INSECURE, then VC_INSECURE."""
        return self.environment.vc_insecure if self.insecure_flag is None else self.insecure_flag

    def read_vcenter_configs(self, warn: Warn) -> tuple[VCenterConfig, ...]:
        """The vCenters to use, none if none is named; `warn` gets what is odd but works. It reads files, and so blocks."""
        listed = (
            tuple(self._build_listed_config(entry) for entry in read_vcenters(self.vcenters_file))
            if self.vcenters_file
            else ()
        )
        own = self._build_default_config(warn)
        if own is not None:
            _reject_conflicts(own, listed, self.vcenters_file)
        found = (*listed, own) if own else listed
        for config in found:
            _warn_of_missing_files(config, warn)
        return found

    def _build_listed_config(self, entry: VCenterEntry) -> VCenterConfig:
        """An entry of the file, with its paths and what it leaves to the flags filled in."""
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
        )

    def _build_default_config(self, warn: Warn) -> VCenterConfig | None:
        """The vCenter of the credentials directory, or else of the environment; None where neither names one."""
        if self.credentials_directory:
            return self._build_directory_config(warn)
        login = self.environment.choose_login(warn)
        if login is None:
            return None
        where = self.parse_server_address(login.variable_names[0], login.server)
        return VCenterConfig(where.host, where, username=login.username, password=login.password)

    def _build_directory_config(self, warn: Warn) -> VCenterConfig | None:
        """The vCenter of -vcenter-credentials."""
        key, server = read_server(self.credentials_directory)
        if not server:
            key, server = self.environment.choose_server(warn)
        if not server:
            warn(
                f"-vcenter-credentials {self.credentials_directory}: nothing there or in the environment names a vCenter, so none is used. "
                f"Put its address into {SERVER_KEYS[0]} or {SERVER_KEYS[-1]}; it is seen by itself."
            )
            return None
        where = self.parse_server_address(key, server)
        return VCenterConfig(where.host, where, credentials_directory=self.credentials_directory)

    def parse_server_address(self, key: str, server: str) -> Address:
        """The address that a variable or a file holds."""
        try:
            return parse_server_address(server, insecure=self.insecure, ca_file=self.ca_file)
        except ValueError as error:
            raise ConfigError(f"{key} does not name a vCenter: {error}") from None


def _reject_conflicts(own: VCenterConfig, listed: Sequence[VCenterConfig], file: str) -> None:
    """Refuse a second vCenter for the rest, or of the same name, beside the file's."""
    for other in listed:
        if other.namespaces is None:
            raise ConfigError(
                f'two vCenters would serve all the rest: "{other.name}" of {file}, which has no `namespaces`, and {own.name}, which '
                f'the environment or -vcenter-credentials names. Give "{other.name}" its namespaces, or take the other one away.'
            )
        if other.name == own.name:
            raise ConfigError(
                f'"{own.name}" is the name of a vCenter in {file} and the host of the environment\'s; rename the one in the file'
            )


def _warn_of_missing_files(config: VCenterConfig, warn: Warn) -> None:
    """Say which files are not there. It is no error: a Secret may be mounted before it is filled."""
    directory, ca_file = config.credentials_directory, config.address.ca_file
    if directory and not Path(directory).is_dir():
        warn(
            f"vCenter {config.name}: the credentials directory {directory} is not there (yet); nobody can log in before it is"
        )
    if ca_file and not Path(ca_file).is_file():
        warn(
            f"vCenter {config.name}: the CA bundle {ca_file} is not there (yet); no connection can be made before it is"
        )
