"""Names: which are allowed, what follows from them, and plain words for those that are not."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass

from ..errors import ConfigError
from ..kind import pluralize

DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_KIND_PATTERN = re.compile(r"[A-Z][A-Za-z0-9]{0,58}")  # 63 with "List" behind it
_VERSION_PATTERN = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
# What the modules of a kind, of its tests and of its webhook import under these names would hide the kind's own class, or be hidden by it.
_RESERVED_KINDS = frozenset(
    {
        *(
            "Annotated",
            "Column",
            "Controller",
            "Doc",
            "Done",
            "Resource",
            "Spec",
            "Status",
            "None",
            "True",
            "False",
        ),
        *(
            "Client",
            "ControlPlane",
            "Conversion",
            "Key",
            "Path",
            "Admission",
            "ObjectMeta",
            "Rejected",
            "Webhook",
        ),
    }
)
# Objects are arguments by the name of their kind; these are arguments already.
_RESERVED_ARGUMENTS = frozenset({"self", "old", "request"})
_RESERVED_GROUPS = ("k8s.io", "kubernetes.io")
# Packages that a project stands on: one of the same name would hide them.
_RESERVED_PACKAGES = (
    frozenset({"kubewright", "tests", "aiohttp", "click", "msgspec", "pytest", "tomlkit", "yaml"})
    | sys.stdlib_module_names
)
_MAX_DOMAIN_LENGTH = 253
# A Service's name has at most 63 characters, and the longest of ours is "<name>-controller-manager-metrics-service".
_MAX_PROJECT_NAME_LENGTH = 63 - len("-controller-manager-metrics-service")


@dataclass(frozen=True)
class ResourceNames:
    """One version of one kind, and the names that follow."""

    group: str
    version: str
    kind: str
    plural: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As a manifest has it."""
        return f"{self.group}/{self.version}"

    @property
    def module(self) -> str:
        """The kind's module among the kinds."""
        return self.kind.lower()

    @property
    def sample_file(self) -> str:
        """The sample's file, as kubebuilder names it: by the first part of the group."""
        return f"{self.group.split('.')[0]}_{self.version}_{self.module}.yaml"


def build_resource_names(
    group: str,
    domain: str,
    version: str,
    kind: str,
    *,
    plural: str = "",
    short_names: tuple[str, ...] = (),
    namespaced: bool = True,
) -> ResourceNames:
    """The names of a kind, all of them checked."""
    check_kind(kind)
    check_version(version)
    whole = qualify_group(group, domain)
    return ResourceNames(
        whole,
        version,
        kind,
        _check_plural(plural or pluralize(kind), kind),
        _check_short_names(short_names),
        namespaced,
    )


def check_kind(kind: str) -> str:
    """A kind, or in plain words why not."""
    if not _KIND_PATTERN.fullmatch(kind):
        better = re.sub(r"[^A-Za-z0-9]+(.)?", lambda found: (found[1] or "").upper(), kind)
        better = better[:1].upper() + better[1:]
        hint = f", such as {better}" if _KIND_PATTERN.fullmatch(better) else ""
        raise ConfigError(
            f'the kind "{kind}" has to be letters and digits that begin with a capital{hint}'
        )
    if (
        keyword.iskeyword(kind.lower())
        or kind in _RESERVED_KINDS
        or kind.lower() in _RESERVED_ARGUMENTS
    ):
        raise ConfigError(
            f'the kind "{kind}" cannot be a module or a class of Python: the word is reserved; take another, as My{kind}'
        )
    return kind


def check_version(version: str) -> str:
    """A version, or in plain words why not."""
    if not _VERSION_PATTERN.fullmatch(version):
        raise ConfigError(f'the version "{version}" has to be like v1, v1alpha1 or v2beta3')
    return version


def qualify_group(group: str, domain: str) -> str:
    """The whole group: `topology` with the project's domain behind it; one with a dot is whole already."""
    whole = group if "." in group else f"{group}.{domain}" if domain else group
    if not _is_dns_name(whole) or "." not in whole:
        raise ConfigError(
            f'the group "{whole}" has to be a DNS name such as topology.example.com, all lower-case'
        )
    if any(f".{whole}".endswith(f".{reserved}") for reserved in _RESERVED_GROUPS):
        raise ConfigError(
            f'the group "{whole}" belongs to Kubernetes, which takes no CRD in it unapproved; use your own domain'
        )
    return whole


def check_domain(domain: str) -> str:
    """A domain, or in plain words why not."""
    if not _is_dns_name(domain) or "." not in domain:
        raise ConfigError(f'the domain "{domain}" has to be a DNS name such as example.com')
    return domain


def check_project_name(name: str) -> str:
    """A project's name: it begins the names of cluster-wide objects and names the namespace."""
    if (
        not re.fullmatch(DNS_LABEL, name)
        or not name[0].isalpha()
        or len(name) > _MAX_PROJECT_NAME_LENGTH
    ):
        raise ConfigError(
            f'the project\'s name "{name}" has to be at most {_MAX_PROJECT_NAME_LENGTH} lower-case letters, digits and dashes, '
            "and to begin with a letter; give another with --project-name"
        )
    package_name(name)
    return name


def package_name(project: str) -> str:
    """The Python package of a project."""
    package = project.replace("-", "_")
    if keyword.iskeyword(package) or package in _RESERVED_PACKAGES:
        raise ConfigError(
            f'the project\'s name "{project}" cannot be a package of Python, where it is taken; give another with --project-name'
        )
    return package


def _check_plural(plural: str, kind: str) -> str:
    """A plural, or in plain words why not."""
    if not re.fullmatch(DNS_LABEL, plural) or not plural[0].isalpha():
        raise ConfigError(
            f'the plural "{plural}" of {kind} has to be lower-case letters, digits and dashes'
        )
    return plural


def _check_short_names(short: tuple[str, ...]) -> tuple[str, ...]:
    """Short names, or in plain words why not."""
    for each in short:
        if not re.fullmatch(DNS_LABEL, each) or not each[0].isalpha():
            raise ConfigError(
                f'the short name "{each}" has to be lower-case letters, digits and dashes, and to begin with a letter'
            )
    return short


def _is_dns_name(text: str) -> bool:
    """Whether it is a DNS name."""
    return (
        len(text) <= _MAX_DOMAIN_LENGTH
        and re.fullmatch(rf"{DNS_LABEL}(\.{DNS_LABEL})*", text) is not None
    )
