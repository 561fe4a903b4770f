"""Names of kinds, groups, versions and projects: which are valid, and what follows from them."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass

from ..errors import ConfigError
from ..plural import pluralize

_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# A name has at most 63 characters, and the list kind is the kind with "List" appended.
_KIND_PATTERN = re.compile(r"[A-Z][A-Za-z0-9]{0,58}")
_VERSION_PATTERN = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
# The generated modules import these names, so a class of the same name would hide them.
_RESERVED_KINDS = frozenset(
    [
        *("Annotated", "Column", "Controller", "Doc", "Done", "Resource", "Spec", "Status"),
        *("None", "True", "False", "Client", "ControlPlane", "Conversion", "Key", "Path"),
        *("Admission", "Int32", "Int64", "IntOrString", "Literal", "Object", "ObjectMeta"),
        *("PreserveUnknownFields", "Rejected", "Waiting", "Webhook"),
    ]
)
# Generated methods take an object as an argument named after its kind, next to these arguments.
_RESERVED_ARGUMENTS = frozenset({"self", "old", "request"})
_RESERVED_GROUPS = ("k8s.io", "kubernetes.io")
# A project's package of one of these names would hide a package that the project needs.
_RESERVED_PACKAGES = (
    frozenset({"kubewright", "tests", "aiohttp", "click", "msgspec", "pytest", "tomlkit", "yaml"})
    | sys.stdlib_module_names
)
_MAX_DOMAIN_LENGTH = 253
# The name of a Service has at most 63 characters; this is the longest suffix that is generated.
_MAX_PROJECT_NAME_LENGTH = 63 - len("-controller-manager-metrics-service")


@dataclass(frozen=True)
class ResourceNames:
    """One version of one kind, and the names that follow from it."""

    group: str
    version: str
    kind: str
    plural: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def module(self) -> str:
        return self.kind.lower()

    @property
    def sample_file(self) -> str:
        # As kubebuilder names it: with the first part of the group.
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
    qualified = qualify_group(group, domain)
    plural = plural or pluralize(kind)
    if not _is_name(plural):
        raise ConfigError(
            f'invalid plural "{plural}" of {kind}: must be lower-case letters, digits and dashes'
        )
    for name in short_names:
        if not _is_name(name):
            raise ConfigError(
                f'invalid short name "{name}": must be lower-case letters, digits and dashes, '
                "and begin with a letter"
            )
    return ResourceNames(qualified, version, kind, plural, short_names, namespaced)


def check_kind(kind: str) -> str:
    """The kind if it is valid; raises otherwise, as all `check_` functions here."""
    if not _KIND_PATTERN.fullmatch(kind):
        suggestion = re.sub(r"[^A-Za-z0-9]+(.)?", lambda match: (match[1] or "").upper(), kind)
        suggestion = suggestion[:1].upper() + suggestion[1:]
        hint = f", such as {suggestion}" if _KIND_PATTERN.fullmatch(suggestion) else ""
        raise ConfigError(
            f'invalid kind "{kind}": must be letters and digits, and begin with a capital{hint}'
        )
    is_reserved = kind in _RESERVED_KINDS or kind.lower() in _RESERVED_ARGUMENTS
    if is_reserved or keyword.iskeyword(kind.lower()):
        raise ConfigError(
            f'invalid kind "{kind}": reserved by Python or by the generated code; '
            f"choose another, such as My{kind}"
        )
    return kind


def check_class_name(name: str, kind: str) -> str:
    """The name of a type in the module of a kind."""
    suffixes = ("", "Spec", "Status", "Controller", "Conversion", "Webhook")
    if name in _RESERVED_KINDS or name in [f"{kind}{suffix}" for suffix in suffixes]:
        raise ConfigError(
            f'invalid type "{name}": the generated code has another class of this name; '
            f"choose another, such as {kind}{name}"
        )
    return name


def check_description(text: str) -> str:
    """The description of a kind, which becomes its docstring."""
    if '"""' in text or "\\" in text or text.endswith('"'):
        raise ConfigError(
            "invalid --description: it becomes a docstring, so it must not contain "
            '""" or a backslash, or end with "'
        )
    return text.strip()


def check_version(version: str) -> str:
    if not _VERSION_PATTERN.fullmatch(version):
        raise ConfigError(f'invalid version "{version}": must be like v1, v1alpha1 or v2beta3')
    return version


def qualify_group(group: str, domain: str) -> str:
    """The full group: one without a dot gets the project's domain appended."""
    qualified = f"{group}.{domain}" if domain and "." not in group else group
    if not _is_dns_name(qualified) or "." not in qualified:
        raise ConfigError(
            f'invalid group "{qualified}": must be a lower-case DNS name such as '
            "topology.example.com"
        )
    if any(f".{qualified}".endswith(f".{reserved}") for reserved in _RESERVED_GROUPS):
        # The API server requires the annotation api-approved.kubernetes.io for these groups.
        raise ConfigError(
            f'invalid group "{qualified}": it belongs to Kubernetes, '
            "which rejects CRDs in it without approval; use your own domain"
        )
    return qualified


def check_domain(domain: str) -> str:
    if not _is_dns_name(domain) or "." not in domain:
        raise ConfigError(f'invalid domain "{domain}": must be a DNS name such as example.com')
    return domain


def check_project_name(name: str) -> str:
    """The project's name: the prefix of cluster-scoped objects and of the namespace."""
    if not _is_name(name) or len(name) > _MAX_PROJECT_NAME_LENGTH:
        raise ConfigError(
            f'invalid project name "{name}": must be at most {_MAX_PROJECT_NAME_LENGTH} lower-case '
            "letters, digits and dashes, and begin with a letter; "
            "choose another with --project-name"
        )
    package_name(name)
    return name


def package_name(project: str) -> str:
    """The Python package of a project."""
    package = project.replace("-", "_")
    if keyword.iskeyword(package) or package in _RESERVED_PACKAGES:
        raise ConfigError(
            f'invalid project name "{project}": a Python package of this name already exists, '
            "or the name is reserved; choose another with --project-name"
        )
    return package


def _is_name(text: str) -> bool:
    return re.fullmatch(_DNS_LABEL, text) is not None and text[0].isalpha()


def _is_dns_name(text: str) -> bool:
    pattern = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
    return len(text) <= _MAX_DOMAIN_LENGTH and re.fullmatch(pattern, text) is not None
