"""The methods of the vSphere API that the manager calls."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from .collector import Collector, InvalidVersion, envelope, render_content
from .disks import ReplayedDisks
from .inventory import CUSTOM_FIELDS_MANAGER, ROOT_FOLDER, ReplayedInventory

_CALL = re.compile(rb"<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)")
_THIS = re.compile(rb"<_this[^>]*>([^<]+)</_this>")
_PROPERTY_SET = re.compile(rb"<propSet[^>]*>(.*?)</propSet>", re.DOTALL)
_OBJECT_SET = re.compile(rb"<objectSet[^>]*>\s*<obj[^>]*>([^<]+)</obj>", re.DOTALL)
# All other methods need a session.
_METHODS_WITHOUT_SESSION = ("RetrieveServiceContent", "Login")
_LOGIN = (
    b"<returnval><key>%s</key><userName>replay</userName><fullName>replay</fullName>"
    b"<loginTime>2026-01-01T00:00:00Z</loginTime><lastActiveTime>2026-01-01T00:00:00Z"
    b"</lastActiveTime><locale>en</locale><messageLocale>en</messageLocale></returnval>"
)
_MANAGERS = (
    ("rootFolder", "Folder", ROOT_FOLDER),
    ("propertyCollector", "PropertyCollector", "propertyCollector"),
    ("viewManager", "ViewManager", "ViewManager"),
    ("sessionManager", "SessionManager", "SessionManager"),
    ("scheduledTaskManager", "ScheduledTaskManager", "ScheduledTaskManager"),
    ("taskManager", "TaskManager", "TaskManager"),
    ("customFieldsManager", "CustomFieldsManager", CUSTOM_FIELDS_MANAGER),
    ("vStorageObjectManager", "VcenterVStorageObjectManager", "VStorageObjectManager"),
)


class Fault(Exception):
    """A SOAP fault with the name of its type."""


class ReplayedApi:
    def __init__(self, inventory: ReplayedInventory, disks: ReplayedDisks) -> None:
        self._inventory = inventory
        self._collectors: dict[str, Collector] = {}
        self._sessions: set[str] = set()
        self._created_count = 0
        self.unknown_methods: set[str] = set()
        self._methods: dict[str, Callable[[bytes], Awaitable[bytes] | bytes]] = {
            "RetrieveServiceContent": self._service_content,
            "CurrentTime": lambda _: (
                f"<returnval>{datetime.now(UTC).isoformat()}</returnval>".encode()
            ),
            "Logout": lambda _: b"",
            "CreateContainerView": lambda _: self._new_reference("ContainerView"),
            "DestroyView": lambda _: b"",
            "CreatePropertyCollector": self._create_collector,
            "DestroyPropertyCollector": self._destroy_collector,
            "CreateFilter": self._create_filter,
            "WaitForUpdatesEx": self._wait_for_updates,
            "RetrievePropertiesEx": self._retrieve_properties,
            "RetrieveEntityScheduledTask": lambda _: b"",
            "VslmListVStorageObjectForSpec": disks.list_page,
            "VslmRetrieveVStorageObjectAssociations": disks.list_associations,
            "VslmRetrieveVStorageObject": disks.read,
        }

    async def respond(self, request: bytes, session: str) -> tuple[int, bytes, str]:
        """The HTTP status, the body, and the key of a new session or ""."""
        match = _CALL.search(request[:4096])
        method = match[1].decode() if match else ""
        if method == "Login":
            key = f"session-{len(self._sessions) + 1}"
            self._sessions.add(key)
            return 200, envelope("Login", _LOGIN % key.encode()), key
        try:
            # The disk catalog has the session's key in the header of the envelope.
            is_vslm = method.startswith("Vslm")
            if (
                not is_vslm
                and method not in _METHODS_WITHOUT_SESSION
                and session not in self._sessions
            ):
                raise Fault("NotAuthenticated")
            if method not in self._methods:
                self.unknown_methods.add(method)
                raise Fault("NotSupported")
            result = self._methods[method](request)
            body = result if isinstance(result, bytes) else await result
            return 200, envelope(method, body), ""
        except Fault as fault:
            return 500, _render_fault(str(fault)), ""

    def _new_reference(self, type_name: str) -> bytes:
        self._created_count += 1
        ref = f"{type_name}-{self._created_count}"
        return f'<returnval type="{type_name}">{ref}</returnval>'.encode()

    def _service_content(self, _: bytes) -> bytes:
        managers = "".join(
            f'<{name} type="{type_name}">{ref}</{name}>' for name, type_name, ref in _MANAGERS
        )
        return (
            f"<returnval>{managers}<about><name>VMware vCenter Server</name>"
            "<fullName>VMware vCenter Server 8.0.3 build-24022515</fullName>"
            "<vendor>VMware, Inc.</vendor><version>8.0.3</version><build>24022515</build>"
            "<osType>linux-x64</osType><productLineId>vpx</productLineId>"
            "<apiType>VirtualCenter</apiType><apiVersion>8.0.3.0</apiVersion>"
            f"<instanceUuid>{self._inventory.instance_uuid}</instanceUuid></about></returnval>"
        ).encode()

    def _create_collector(self, _: bytes) -> bytes:
        result = self._new_reference("PropertyCollector")
        self._collectors[f"PropertyCollector-{self._created_count}"] = Collector(self._inventory)
        return result

    def _destroy_collector(self, request: bytes) -> bytes:
        if collector := self._collectors.pop(_read_this(request), None):
            collector.close()
        return b""

    def _create_filter(self, request: bytes) -> bytes:
        self._find_collector(request).add_filter(_read_property_sets(request))
        return self._new_reference("PropertyFilter")

    def _find_collector(self, request: bytes) -> Collector:
        collector = self._collectors.get(_read_this(request))
        if collector is None:
            raise Fault("ManagedObjectNotFound")
        return collector

    async def _wait_for_updates(self, request: bytes) -> bytes:
        try:
            return await self._find_collector(request).wait_for_updates(
                _read_field(request, b"version", ""),
                float(_read_field(request, b"maxWaitSeconds", "60")),
                int(_read_field(request, b"maxObjectUpdates", "100")),
            )
        except InvalidVersion:
            raise Fault("InvalidCollectorVersion") from None

    def _retrieve_properties(self, request: bytes) -> bytes:
        paths = _read_property_sets(request)
        contents = [
            render_content(obj, paths.get(obj.type, ()))
            for ref in _OBJECT_SET.findall(request)
            if (obj := self._inventory.objects.get(ref.decode()))
        ]
        return b"<returnval>%s</returnval>" % b"".join(contents) if contents else b""


def _read_this(request: bytes) -> str:
    match = _THIS.search(request)
    return match[1].decode() if match else ""


def _read_field(request: bytes, name: bytes, default: str) -> str:
    match = re.search(rb"<%s[^>]*>([^<]*)</%s>" % (name, name), request)
    return match[1].decode() if match else default


def _read_property_sets(request: bytes) -> dict[str, list[str]]:
    sets = {}
    for part in _PROPERTY_SET.findall(request):
        type_name = _read_field(part, b"type", "")
        sets[type_name] = [
            path.decode() for path in re.findall(rb"<pathSet[^>]*>([^<]+)</pathSet>", part)
        ]
    return sets


def _render_fault(type_name: str) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<soapenv:Envelope '
        'xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><soapenv:Fault>'
        f"<faultcode>ServerFaultCode</faultcode><faultstring>{type_name}</faultstring>"
        f'<detail><{type_name}Fault xmlns="urn:vim25" xsi:type="{type_name}"/></detail>'
        "</soapenv:Fault></soapenv:Body></soapenv:Envelope>"
    ).encode()
