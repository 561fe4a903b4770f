"""Flags and environment -> Settings -> the vCenters to use. The only reader of os.environ and argv.

    for config in settings.vcenters(log.warning):          # it reads files: call it in a thread, or before the loop
        ...

Which vCenters: those of the -vcenters file, and the one of the environment (or of -vcenter-credentials) for all the rest. None at all is
no error: kinds that need none work, and the others say what to set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import UNSET

from kubewright.command import ManagerFlags
from kubewright.errors import ConfigError
from kubewright.flags import Duration, FlagError, flag, in_words, variable

from ..kinds.gpuinfo.options import GPUFlags
from ..vcenters.config import Defaults, Entry, Namespaces, address, read
from ..vsphere.address import Address
from ..vsphere.credentials import Credentials, CredentialSource, DirectoryCredentials, FixedCredentials

Warn = Callable[[str], None]
SERVER_KEYS = ("GOVMOMI_URL", "GOVMOMI_HOSTNAME", "VC_HOST")
LONGEST_SERVER_BYTES = 4096
SHORTEST_INTERVAL_SECONDS = 1.0


class Rank(IntEnum):
    """How closely a vCenter's rule fits a namespace; the lowest wins."""

    NAME = 0
    GLOB = 1
    LABELS = 2
    REST = 3


WAYS = {
    Rank.NAME: "by its exact name",
    Rank.GLOB: "by a glob in `names`",
    Rank.LABELS: "by `labels`",
    Rank.REST: "because they name no namespaces",
}


@dataclass(frozen=True)
class VCenterConfig:
    """One vCenter to use: where it is, where its credentials are, and whom it serves."""

    name: str
    address: Address
    credentials_directory: str = ""
    """Files that are read again when they change; "" when username and password are fixed."""
    username: str = ""
    password: str = field(default="", repr=False)
    defaults: Defaults = Defaults()
    namespaces: Namespaces | None = None
    """None: every namespace that no other vCenter serves."""

    def credentials(self) -> CredentialSource:
        """What to log in with."""
        if self.credentials_directory:
            return DirectoryCredentials(self.credentials_directory)
        return FixedCredentials(Credentials(self.username, self.password))

    def rank(self, namespace: str, labels: Mapping[str, str]) -> Rank | None:
        """How closely this vCenter's rule fits the namespace, None if not at all."""
        if self.namespaces is None:
            return Rank.REST
        if namespace in self.namespaces.names:
            return Rank.NAME
        if any(fnmatchcase(namespace, glob) for glob in self.namespaces.names):
            return Rank.GLOB
        wanted = self.namespaces.labels
        return Rank.LABELS if wanted and wanted.items() <= labels.items() else None

    def serves(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether its rule fits the namespace; another vCenter's may fit more closely, which `choose` knows."""
        return self.rank(namespace, labels) is not None


def choose(configs: Sequence[VCenterConfig], namespace: str, labels: Mapping[str, str]) -> VCenterConfig | None:
    """The vCenter of a namespace: by exact name, then glob, then labels, then the one for the rest; two of a rank are an error."""
    ranked = [(rank, config) for config in configs if (rank := config.rank(namespace, labels)) is not None]
    best = min((rank for rank, _ in ranked), default=Rank.REST)
    winners = [config for rank, config in ranked if rank is best]
    if len(winners) > 1:
        names = " and ".join(f'"{config.name}"' for config in winners)
        raise ConfigError(
            f'namespace "{namespace}" belongs to more than one vCenter: {names} claim it {WAYS[best]}. '
            "Change `namespaces` in the -vcenters file so that one of them fits; an exact name goes before globs, and those before labels."
        )
    return winners[0] if winners else None


@dataclass(frozen=True)
class Login:
    """One set of variables, GOVMOMI_* or VC_*, with the keys of server, user and password."""

    keys: tuple[str, str, str]
    server: str
    username: str
    password: str = field(repr=False)

    @property
    def values(self) -> tuple[str, str, str]:
        """In the order of the keys; two spellings of one server are equal."""
        return normal(self.server), self.username, self.password

    def differs_from(self, other: Login) -> list[str]:
        """The pairs of keys that both are set, and say different things."""
        each = zip(self.keys, other.keys, self.values, other.values, strict=True)
        return [f"{mine} and {theirs}" for mine, theirs, left, right in each if left and right and left != right]

    def filled_from(self, other: Login) -> Login:
        """The same set, with what it lacks taken from the other."""
        return Login(self.keys, self.server or other.server, self.username or other.username, self.password or other.password)


def normal(server: str) -> str:
    """The server in the one form that all its spellings share."""
    try:
        found = address(server, insecure=False, ca_file="")
        return f"{found.root}{found.path}"
    except ValueError:
        return server


@dataclass(frozen=True)
class Environment:
    """The variables that name one vCenter; a Secret may hold either set of them."""

    govmomi_url: str = variable("GOVMOMI_URL", "", "The vCenter: a host, host:port, an IP address or an https URL.")
    govmomi_hostname: str = variable("GOVMOMI_HOSTNAME", "", "The same, when there is no GOVMOMI_URL.")
    govmomi_username: str = variable("GOVMOMI_USERNAME", "", "Who logs in to the vCenter.")
    govmomi_password: str = variable("GOVMOMI_PASSWORD", "", "The password.", secret=True)
    vc_host: str = variable("VC_HOST", "", "The vCenter, when the GOVMOMI_ variables are not all set.")
    vc_user: str = variable("VC_USER", "", "Who logs in there.")
    vc_pass: str = variable("VC_PASS", "", "The password.", secret=True)
    vc_insecure: bool = variable("VC_INSECURE", False, "As -insecure, when neither that nor GOVMOMI_INSECURE is given.")

    @property
    def govmomi(self) -> Login:
        """The set GOVMOMI_*; a password that `echo` wrote into a Secret ends with a newline."""
        server_key = "GOVMOMI_HOSTNAME" if self.govmomi_hostname and not self.govmomi_url else "GOVMOMI_URL"
        keys = (server_key, "GOVMOMI_USERNAME", "GOVMOMI_PASSWORD")
        server = self.govmomi_url or self.govmomi_hostname
        return Login(keys, server.strip(), self.govmomi_username.strip(), self.govmomi_password.rstrip("\r\n"))

    @property
    def vc(self) -> Login:
        """The set VC_*."""
        return Login(("VC_HOST", "VC_USER", "VC_PASS"), self.vc_host.strip(), self.vc_user.strip(), self.vc_pass.rstrip("\r\n"))

    def login(self, warn: Warn) -> Login | None:
        """The first complete set, or both together where they agree; None when nothing is set, ConfigError when something is missing."""
        differing = self.govmomi.differs_from(self.vc)
        for chosen in (self.govmomi, self.vc):
            if all(chosen.values):
                if differing:
                    warn(f"the environment names two vCenters or users: {', '.join(differing)} differ; {', '.join(chosen.keys)} are used")
                return chosen
        if not any((*self.govmomi.values, *self.vc.values)):
            return None
        # A password must not go to a server that it was not meant for.
        together = self.govmomi if differing else self.govmomi.filled_from(self.vc)
        if not all(together.values):
            raise incomplete(together, self.vc)
        return together

    def server(self, warn: Warn) -> tuple[str, str]:
        """The variable that names the vCenter and what it says, for who has the credentials from elsewhere."""
        mine, theirs = self.govmomi, self.vc
        chosen = mine if mine.server else theirs
        if mine.server and theirs.server and normal(mine.server) != normal(theirs.server):
            warn(f"the environment names two vCenters: {mine.keys[0]} and {theirs.keys[0]} differ; {chosen.keys[0]} is used")
        return chosen.keys[0], chosen.server


def incomplete(login: Login, other: Login) -> ConfigError:
    """The error for a set of variables that lacks some."""
    missing = [f"{key} (or {alias})" for key, alias, value in zip(login.keys, other.keys, login.values, strict=True) if not value]
    return ConfigError(
        f"the environment names a vCenter, but not all that is needed: {', '.join(missing)} not set. "
        "Set what is missing, in a cluster as a key of Secret vc-creds; or unset the rest, to run without a vCenter."
    )


def server_in(directory: str) -> tuple[str, str]:
    """The file of the directory that names the vCenter and what it says; both "" where there is none."""
    for path in (Path(directory) / key for key in SERVER_KEYS):
        try:
            text = path.read_bytes()[:LONGEST_SERVER_BYTES].decode(errors="replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ConfigError(f"-vcenter-credentials: {path} cannot be read: {error.strerror}") from None
        if text:
            return str(path), text
    return "", ""


@dataclass(frozen=True)
class Settings(ManagerFlags):
    """What the manager is told from outside; the contract's names, in Go's syntax."""

    insecure_given: bool | None = flag(
        "insecure", None, "Do not verify the vCenter's TLS certificate. Kubernetes' is always verified.", env="GOVMOMI_INSECURE"
    )
    ca_file: str = flag("vcenter-ca-file", "", "CA bundle to verify vCenters with; the machine's own by default.", env="VC_CA_FILE")
    credentials_directory: str = flag(
        "vcenter-credentials", "", "Directory of a mounted Secret with the variables' names as files; goes before the environment."
    )
    vcenters_file: str = flag("vcenters", "", "YAML file that lists several vCenters and the namespaces that they serve.")
    stats_interval_seconds: Duration = flag("stats-interval", 60.0, "How often a status follows usage that moves a little.")
    stats_change_percent: float = flag("stats-change-percent", 5.0, "How far usage moves, in percent of the total, to be written at once.")
    disk_refresh_seconds: Duration = flag("disk-refresh-interval", 60.0, "How often First Class Disks are listed anew.")
    tag_refresh_seconds: Duration = flag("tag-refresh-interval", 300.0, "How often the tags of hosts are read anew.")
    operations_at_once: int = flag("vcenter-operations", 3, "How many VMs are cloned, changed or destroyed at once in each vCenter.")
    limits_file: str = flag(
        "vmgroup-limits", "", "YAML file with the templates, places and amounts that each namespace's VmGroups may use."
    )
    cluster_id: str = flag("cluster-id", "", "What VMs of this cluster are marked with; by default the uid of namespace kube-system.")
    webhooks: bool = flag("webhooks", False, "Warn, at `kubectl apply`, of names that vCenter does not have; nothing is refused.")
    gpu: GPUFlags = field(default_factory=GPUFlags)
    environment: Environment = field(default_factory=Environment)

    def __post_init__(self) -> None:
        intervals = {
            "stats-interval": self.stats_interval_seconds,
            "disk-refresh-interval": self.disk_refresh_seconds,
            "tag-refresh-interval": self.tag_refresh_seconds,
        }
        for name, seconds in intervals.items():
            if seconds < SHORTEST_INTERVAL_SECONDS:
                raise FlagError(f'invalid value "{in_words(seconds)}" for flag -{name}: it has to be at least 1s')
        if not 1 <= self.operations_at_once <= 100:
            raise FlagError(f'invalid value "{self.operations_at_once}" for flag -vcenter-operations: it has to be from 1 to 100')
        if not 0 <= self.stats_change_percent <= 100:
            raise FlagError(f'invalid value "{self.stats_change_percent:g}" for flag -stats-change-percent: it has to be from 0 to 100')

    @property
    def insecure(self) -> bool:
        """Whether to skip the vCenter's TLS checks: the flag, then GOVMOMI_INSECURE, then VC_INSECURE."""
        return self.environment.vc_insecure if self.insecure_given is None else self.insecure_given

    def vcenters(self, warn: Warn) -> tuple[VCenterConfig, ...]:
        """The vCenters to use, none if none is named; `warn` gets what is odd but works. It reads files, and so blocks."""
        listed = tuple(self.listed(entry) for entry in read(self.vcenters_file)) if self.vcenters_file else ()
        own = self.own(warn)
        if own is not None:
            refuse_clash(own, listed, self.vcenters_file)
        found = (*listed, own) if own else listed
        for config in found:
            warn_of_missing_files(config, warn)
        return found

    def listed(self, entry: Entry) -> VCenterConfig:
        """An entry of the file, with its paths and what it leaves to the flags filled in."""
        folder = Path(self.vcenters_file).parent
        insecure = self.insecure if entry.insecure is UNSET else entry.insecure
        return VCenterConfig(
            name=entry.name,
            address=address(entry.server, insecure=insecure, ca_file=str(folder / entry.ca) if entry.ca else self.ca_file),
            credentials_directory=str(folder / entry.credentials),
            defaults=entry.defaults,
            namespaces=None if entry.namespaces is UNSET else entry.namespaces,
        )

    def own(self, warn: Warn) -> VCenterConfig | None:
        """The vCenter of the credentials directory, or else of the environment; None where neither names one."""
        if self.credentials_directory:
            return self.from_directory(warn)
        login = self.environment.login(warn)
        if login is None:
            return None
        where = self.address_in(login.keys[0], login.server)
        return VCenterConfig(where.host, where, username=login.username, password=login.password)

    def from_directory(self, warn: Warn) -> VCenterConfig | None:
        """The vCenter of -vcenter-credentials."""
        key, server = server_in(self.credentials_directory)
        if not server:
            key, server = self.environment.server(warn)
        if not server:
            warn(
                f"-vcenter-credentials {self.credentials_directory}: nothing there or in the environment names a vCenter, so none is used. "
                f"Put its address into {SERVER_KEYS[0]} or {SERVER_KEYS[-1]}; it is seen by itself."
            )
            return None
        where = self.address_in(key, server)
        return VCenterConfig(where.host, where, credentials_directory=self.credentials_directory)

    def address_in(self, key: str, server: str) -> Address:
        """The address that a variable or a file holds."""
        try:
            return address(server, insecure=self.insecure, ca_file=self.ca_file)
        except ValueError as error:
            raise ConfigError(f"{key} does not name a vCenter: {error}") from None


def refuse_clash(own: VCenterConfig, listed: Sequence[VCenterConfig], file: str) -> None:
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


def warn_of_missing_files(config: VCenterConfig, warn: Warn) -> None:
    """Say which files are not there. It is no error: a Secret may be mounted before it is filled."""
    directory, ca_file = config.credentials_directory, config.address.ca_file
    if directory and not Path(directory).is_dir():
        warn(f"vCenter {config.name}: the credentials directory {directory} is not there (yet); nobody can log in before it is")
    if ca_file and not Path(ca_file).is_file():
        warn(f"vCenter {config.name}: the CA bundle {ca_file} is not there (yet); no connection can be made before it is")
