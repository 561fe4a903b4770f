"""The configuration of vCenters, the YAML file that lists several, and the namespaces that each may
serve; registry.py chooses between them.

    vcenters:
      - name: west
        server: vc-west.example.com           # a host, host:port, an IP or an https URL
        credentials: /etc/vcenters/west       # a directory with files for user and password
        ca: /etc/vcenters/west/ca.crt
        insecure: false
        defaults: {datacenter: DC0, cluster: C0, resourcePool: small, folder: vms, datastore: fast}
        namespaces: {names: ["team-a-*"], labels: {vcenter: west}}
      - name: main                            # without namespaces: it serves all others
        server: 192.0.2.7
        credentials: /etc/vcenters/main

Relative paths are relative to the file. An error names the line. No message quotes a server, since
an address may contain a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ..vsphere.address import Address, parse_address
from ..vsphere.credentials import (
    Credentials,
    CredentialSource,
    DirectoryCredentials,
    FixedCredentials,
)
from ..yamlfile import FileFormat

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DNS_NAME = re.compile(r"(?=.{1,254}$)\w([\w-]*\w)?(\.\w([\w-]*\w)?)*\.?", re.ASCII)
_GLOB = re.compile(r"[-a-z0-9*?\[\]!]+", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


class PlacementDefaults(Struct, frozen=True, forbid_unknown_fields=True):
    """The placement of objects that do not set it; names as vCenter displays them."""

    datacenter: Annotated[
        str, Meta(description="Datacenter for new VMs; by default the only one.")
    ] = ""
    cluster: Annotated[
        str, Meta(description="Cluster for new VMs; by default that of the template.")
    ] = ""
    resourcePool: Annotated[
        str, Meta(description="Resource pool for new VMs; by default the cluster's root pool.")
    ] = ""
    folder: Annotated[
        str,
        Meta(
            description=(
                "Name or path of the folder that contains the folders of VmGroups; "
                "by default `vm-operator`."
            )
        ),
    ] = ""
    datastore: Annotated[
        str, Meta(description="Datastore for new VMs; by default that of the template.")
    ] = ""


class NamespaceSelector(Struct, frozen=True, forbid_unknown_fields=True):
    """The namespaces of a vCenter: those that match a name, and those that have all labels."""

    names: Annotated[tuple[str, ...], Meta(description="Names or globs of namespaces.")] = ()
    labels: Annotated[
        dict[str, str], Meta(description="Labels that the Namespace must have, all of them.")
    ] = {}


class VCenterEntry(Struct, frozen=True, forbid_unknown_fields=True):
    # UNSET and not None as a default: a key without a value is an error, not an absent key.

    name: Annotated[
        str, Meta(description="A DNS label; the name of the vCenter in messages and metrics.")
    ]
    server: Annotated[str, Meta(description="A host, host:port, an IP address or an https URL.")]
    credentials: Annotated[str, Meta(description="Directory with the credentials, see below.")]
    ca: Annotated[
        str, Meta(description="CA bundle to verify its certificate; by default `-vcenter-ca-file`.")
    ] = ""
    insecure: Annotated[
        bool | UnsetType,
        Meta(description="Do not verify its certificate; by default `-insecure`."),
    ] = UNSET
    defaults: Annotated[
        PlacementDefaults,
        Meta(description="Placement of VMs of objects that do not set it."),
    ] = PlacementDefaults()
    namespaces: Annotated[
        NamespaceSelector | UnsetType,
        Meta(
            description=(
                "Namespaces that it serves: those that match a name, and those with all labels. "
                "By default all others."
            )
        ),
    ] = UNSET


class VCenterFile(Struct, frozen=True, forbid_unknown_fields=True):
    vcenters: Annotated[tuple[VCenterEntry, ...], Meta(description="The vCenters.")]


def parse_server_address(server: str, *, insecure: bool, ca_file: str) -> Address:
    """The address of a server. The ValueError never quotes it."""
    try:
        address = parse_address(server, insecure=insecure, ca_file="" if insecure else ca_file)
        if not _DNS_NAME.fullmatch(address.host):
            ip_address(address.host)
        return address
    except ValueError:
        raise ValueError(
            "must be a host, host:port, an IP address or an https URL, without a user or password"
        ) from None


def _find_errors(file: VCenterFile) -> Iterator[tuple[str, str]]:
    """Pairs of the path of an invalid value and the error."""
    entries = file.vcenters
    if not entries:
        yield "$.vcenters", "the list is empty; add a vCenter, or omit -vcenters"
    for index, entry in enumerate(entries):
        path = f"$.vcenters[{index}]"
        yield from _validate_entry(entry, path)
        yield from _find_conflicts(entry, path, entries[:index])


def _validate_entry(entry: VCenterEntry, path: str) -> Iterator[tuple[str, str]]:
    if not _DNS_LABEL.fullmatch(entry.name):
        yield (
            f"{path}.name",
            f'"{entry.name}" is not a valid name: use at most 63 lower-case letters, digits and '
            "-, and begin and end with a letter or digit",
        )
    try:
        parse_server_address(entry.server, insecure=False, ca_file="")
    except ValueError as error:
        yield f"{path}.server", str(error)
    if not entry.credentials:
        yield (
            f"{path}.credentials",
            "must not be empty; set the directory with the files of user and password",
        )
    if entry.namespaces is not UNSET:
        yield from _validate_namespaces(entry.namespaces, f"{path}.namespaces")


def _validate_namespaces(namespaces: NamespaceSelector, path: str) -> Iterator[tuple[str, str]]:
    if not namespaces.names and not namespaces.labels:
        yield (
            path,
            "matches no namespace; add `names` or `labels`, or omit `namespaces` to serve all "
            "other namespaces",
        )
    for index, glob in enumerate(namespaces.names):
        if error := find_glob_error(glob):
            yield f"{path}.names[{index}]", error
    for key, value in namespaces.labels.items():
        if not key or not _LABEL_VALUE.fullmatch(value):
            yield (
                f"{path}.labels.{key}",
                "is not a valid label; globs are allowed only in `names`",
            )


def find_glob_error(glob: str) -> str:
    """Why a glob matches no namespace; "" if it is valid."""
    if _GLOB.fullmatch(glob):
        return ""
    problem = f'"{glob}" matches no namespace' if glob else "must not be empty"
    return f"{problem}: use lower-case letters, digits, - and the wildcards * ? [..]"


def _find_conflicts(
    entry: VCenterEntry, path: str, earlier: Sequence[VCenterEntry]
) -> Iterator[tuple[str, str]]:
    selector = entry.namespaces
    for other in earlier:
        other_selector = other.namespaces
        if entry.name == other.name:
            yield (
                f"{path}.name",
                f'"{entry.name}" is already the name of another vCenter; names must be unique',
            )
        if selector is UNSET and other_selector is UNSET:
            yield (
                path,
                f'has no `namespaces` and so serves all other namespaces, as "{other.name}" '
                "does; set `namespaces` of one of them",
            )
        if selector is UNSET or other_selector is UNSET:
            continue
        for index, glob in enumerate(selector.names):
            if glob in other_selector.names:
                yield (
                    f"{path}.namespaces.names[{index}]",
                    f'"{glob}" is already in "{other.name}"; remove one of them',
                )
        if selector.labels and selector.labels == other_selector.labels:
            yield (
                f"{path}.namespaces.labels",
                f'"{other.name}" has the same labels; change one of them',
            )


VCENTERS_FORMAT = FileFormat(
    flag="-vcenters",
    description="list of vCenters",
    root_type=VCenterFile,
    mapping_types={
        "$": VCenterFile,
        "$.vcenters[]": VCenterEntry,
        "$.vcenters[].defaults": PlacementDefaults,
        "$.vcenters[].namespaces": NamespaceSelector,
    },
    find_errors=_find_errors,
)


@dataclass(frozen=True)
class VCenterConfig:
    """One vCenter: its address, its credentials, and the namespaces that it serves."""

    name: str
    address: Address
    # Its files are read again when they change; "" if username and password are fixed.
    credentials_directory: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    defaults: PlacementDefaults = PlacementDefaults()
    # None: every namespace that no other vCenter serves.
    namespaces: NamespaceSelector | None = None
    # How long it may take to read the whole inventory.
    load_timeout_seconds: float = 600.0

    def build_credential_source(self) -> CredentialSource:
        if self.credentials_directory:
            return DirectoryCredentials(self.credentials_directory)
        return FixedCredentials(Credentials(self.username, self.password))
