"""The response of RetrieveServiceContent: the managers of a vCenter, and what it is.

One manager or one field of `about` that is newer than this program, or does not decode, must not
reject the whole response: without it, nothing else can be called.
"""

from __future__ import annotations

from msgspec import Struct

from .decode_errors import ReportUndecodable
from .updates import Ref, decode_result_fields

_METHOD = "RetrieveServiceContent"


class AboutInfo(Struct, frozen=True):
    """What this vCenter is; names as on the wire."""

    name: str = ""
    fullName: str = ""
    version: str = ""
    build: str = ""
    apiType: str = ""
    apiVersion: str = ""
    instanceUuid: str = ""


class ServiceContent(Struct, frozen=True, kw_only=True):
    """The managers that this program calls; names as on the wire."""

    # Every vCenter has them, and every call needs them.
    rootFolder: Ref
    propertyCollector: Ref
    sessionManager: Ref
    viewManager: Ref | None = None
    taskManager: Ref | None = None
    customFieldsManager: Ref | None = None
    scheduledTaskManager: Ref | None = None
    authorizationManager: Ref | None = None
    vStorageObjectManager: Ref | None = None
    about: AboutInfo = AboutInfo()


_MANAGER_NAMES = frozenset(ServiceContent.__struct_fields__) - {"about"}
_REQUIRED = ("rootFolder", "propertyCollector", "sessionManager")


def decode_service_content(body: bytes, report: ReportUndecodable) -> ServiceContent | None:
    """None if the response is not of the vSphere API."""
    result = decode_result_fields(body, _METHOD, report)
    managers = dict[str, Ref]()
    for name, value in result.items():
        if isinstance(value, Ref):
            if name in _MANAGER_NAMES:
                managers[name] = value
        elif name in _MANAGER_NAMES:
            report(_METHOD, name, "", TypeError("it is not a reference"))
    if not all(name in managers for name in _REQUIRED):
        return None
    about = result.get("about")
    texts = dict[str, str]()
    for name, text in about.items() if isinstance(about, dict) else ():
        if name not in AboutInfo.__struct_fields__:
            continue
        if isinstance(text, str):
            texts[name] = text
        else:
            report(_METHOD, f"about.{name}", "", TypeError("it is not text"))
    return ServiceContent(**managers, about=AboutInfo(**texts))
