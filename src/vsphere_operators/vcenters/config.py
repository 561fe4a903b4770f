"""Several vCenters in one YAML file: read, checked, and every fault told with the line that is wrong.

    vcenters:
      - name: west
        server: vc-west.example.com           # a host, host:port, an IP or an https URL
        credentials: /etc/vcenters/west       # a directory with a file for user and password each
        ca: /etc/vcenters/west/ca.crt
        insecure: false
        defaults: {datacenter: DC0, cluster: C0, resourcePool: small, folder: vms, datastore: fast}
        namespaces: {names: ["team-a-*"], labels: {vcenter: west}}
      - name: rest                            # without namespaces: it serves all the rest
        server: 192.0.2.7
        credentials: /etc/vcenters/rest

Relative paths are relative to the file. No message quotes a server, since people write passwords into addresses.
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

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DNS_NAME = re.compile(r"(?=.{1,254}$)\w([\w-]*\w)?(\.\w([\w-]*\w)?)*\.?", re.ASCII)
GLOB = re.compile(r"[-a-z0-9*?\[\]!]+", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


class PlacementDefaults(Struct, frozen=True, forbid_unknown_fields=True):
    """Where things go when an object does not say; names as vCenter shows them, "" for no default."""

    datacenter: Annotated[
        str, Meta(description="The datacenter for new VMs; without it the only one there is.")
    ] = ""
    cluster: Annotated[
        str, Meta(description="The cluster for new VMs; without it the template's own.")
    ] = ""
    resourcePool: Annotated[
        str, Meta(description="The resource pool for new VMs; without it the cluster's own.")
    ] = ""
    folder: Annotated[
        str,
        Meta(
            description="The folder that holds the groups' folders, by name or path; without it `vm-operator`."
        ),
    ] = ""
    datastore: Annotated[
        str, Meta(description="The datastore for new VMs; without it the template's own.")
    ] = ""


class NamespaceSelector(Struct, frozen=True, forbid_unknown_fields=True):
    """Which namespaces a vCenter serves: those that one of the globs names, and those that carry all of the labels."""

    names: Annotated[tuple[str, ...], Meta(description="Names or globs of namespaces.")] = ()
    labels: Annotated[
        dict[str, str], Meta(description="All of these labels, on the Namespace.")
    ] = {}


class VCenterEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One vCenter as it stands in the file. UNSET, where None would let a key without a value pass for one that is absent."""

    name: Annotated[str, Meta(description="A DNS label; messages and metrics call the vCenter so.")]
    server: Annotated[str, Meta(description="A host, host:port, an IP address or an https URL.")]
    credentials: Annotated[
        str, Meta(description="A directory with what to log in with, see below.")
    ]
    ca: Annotated[
        str, Meta(description="CA bundle to verify it with; without it that of `-vcenter-ca-file`.")
    ] = ""
    insecure: Annotated[
        bool | UnsetType,
        Meta(description="Do not verify its certificate; without it `-insecure` counts."),
    ] = UNSET
    defaults: Annotated[
        PlacementDefaults,
        Meta(description="Where VMs go when an object does not say: names as vCenter shows them."),
    ] = PlacementDefaults()
    namespaces: Annotated[
        NamespaceSelector | UnsetType,
        Meta(
            description="Whom it serves: those that one of the names fits, and those with all of the labels. Without it: all the rest."
        ),
    ] = UNSET


class VCenterFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    vcenters: Annotated[tuple[VCenterEntry, ...], Meta(description="The vCenters.")]


def parse_server_address(server: str, *, insecure: bool, ca_file: str) -> Address:
    """The address in what people write; ValueError says what is allowed, and never what was written."""
    try:
        found = parse_address(server, insecure=insecure, ca_file="" if insecure else ca_file)
        if not _DNS_NAME.fullmatch(found.host):
            ip_address(found.host)
        return found
    except ValueError:
        raise ValueError(
            "it has to be a host, host:port, an IP address or an https URL, without a user or password in it"
        ) from None


def read_vcenters(file: str) -> tuple[VCenterEntry, ...]:
    """The entries of the file; ConfigError has the line that is wrong."""
    return FILE_FORMAT.read(file).vcenters


def _validate_file(file: VCenterFile) -> Iterator[tuple[str, str]]:
    """What is wrong beyond types: the path, and what to do."""
    entries = file.vcenters
    if not entries:
        yield "$.vcenters", "the list is empty; name a vCenter, or leave -vcenters out"
    for index, entry in enumerate(entries):
        path = f"$.vcenters[{index}]"
        yield from _validate_entry(entry, path)
        yield from _find_conflicts(entry, path, entries[:index])


def _validate_entry(entry: VCenterEntry, path: str) -> Iterator[tuple[str, str]]:
    """What is wrong with one entry by itself."""
    if not DNS_LABEL.fullmatch(entry.name):
        yield (
            f"{path}.name",
            f'"{entry.name}" is no name for a vCenter: use lower-case letters, digits and -, 63 at most, no - at either end',
        )
    try:
        parse_server_address(entry.server, insecure=False, ca_file="")
    except ValueError as error:
        yield f"{path}.server", str(error)
    if not entry.credentials:
        yield (
            f"{path}.credentials",
            "it is empty; name the directory that has the user and the password in files",
        )
    if entry.namespaces is not UNSET:
        yield from _validate_namespaces(entry.namespaces, f"{path}.namespaces")


def _validate_namespaces(namespaces: NamespaceSelector, path: str) -> Iterator[tuple[str, str]]:
    """What can fit no namespace."""
    if not namespaces.names and not namespaces.labels:
        yield (
            path,
            "it serves no namespace; add `names` or `labels`, or leave `namespaces` out, to serve all the rest",
        )
    for index, glob in enumerate(namespaces.names):
        if not GLOB.fullmatch(glob):
            words = f'"{glob}" fits no namespace' if glob else "it is empty and fits no namespace"
            yield (
                f"{path}.names[{index}]",
                f"{words}: use lower-case letters, digits and -, and the globs * ? [..]",
            )
    for key, value in namespaces.labels.items():
        if not key or not _LABEL_VALUE.fullmatch(value):
            yield (
                f"{path}.labels.{key}",
                "no namespace can have this label; globs work in `names` only",
            )


def _find_conflicts(
    entry: VCenterEntry, path: str, before: Sequence[VCenterEntry]
) -> Iterator[tuple[str, str]]:
    """What an earlier entry has already."""
    mine = entry.namespaces
    for other in before:
        theirs = other.namespaces
        if entry.name == other.name:
            yield (
                f"{path}.name",
                f'"{entry.name}" is the name of an earlier vCenter; give each its own',
            )
        if mine is UNSET and theirs is UNSET:
            yield (
                path,
                f'it has no `namespaces`, and so would serve all the rest, as "{other.name}" does; give one of them `namespaces`',
            )
        if mine is UNSET or theirs is UNSET:
            continue
        for index, glob in enumerate(mine.names):
            if glob in theirs.names:
                yield (
                    f"{path}.namespaces.names[{index}]",
                    f'"{glob}" belongs to "{other.name}" already; remove one of them',
                )
        if mine.labels and mine.labels == theirs.labels:
            yield (
                f"{path}.namespaces.labels",
                f'"{other.name}" has the same labels; change one of them',
            )


FILE_FORMAT = FileFormat(
    flag="-vcenters",
    description="list of vCenters",
    root_type=VCenterFile,
    mapping_types={
        "$": VCenterFile,
        "$.vcenters[]": VCenterEntry,
        "$.vcenters[].defaults": PlacementDefaults,
        "$.vcenters[].namespaces": NamespaceSelector,
    },
    find_errors=_validate_file,
)


@dataclass(frozen=True)
class VCenterConfig:
    """One vCenter to use: where it is, where its credentials are, and whom it serves."""

    name: str
    address: Address
    credentials_directory: str = ""
    """Files that are read again when they change; "" when username and password are fixed."""
    username: str = ""
    password: str = field(default="", repr=False)
    defaults: PlacementDefaults = PlacementDefaults()
    namespaces: NamespaceSelector | None = None
    """None: every namespace that no other vCenter serves."""

    def build_credential_source(self) -> CredentialSource:
        """What to log in with."""
        if self.credentials_directory:
            return DirectoryCredentials(self.credentials_directory)
        return FixedCredentials(Credentials(self.username, self.password))
