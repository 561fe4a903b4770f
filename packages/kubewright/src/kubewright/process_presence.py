"""Proves that a process on this machine has ended, so that its lease need not expire first.

How is it proven?  A process binds an abstract Unix socket that is named after its identity. The
    kernel frees the name when the process ends, also after a kill, and not while the process is
    only stopped. If another process can bind that name, the first one has ended.
Where is the name valid?  In one network namespace of one boot of one kernel: its scope. All
    containers of a Pod share it, and a container that is restarted keeps it. Elsewhere the name
    proves nothing, so the process publishes the scope together with the name: its address.
And without Linux, or if the scope cannot be read?  Then no address is published and nothing is
    proven: a lease has to expire.
Can the name be free while the process lives?  No: the socket is kept until the process ends. A
    process that could not bind it publishes nothing.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

_NAME_LENGTH = 32
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_NETWORK_NAMESPACE_FILE = Path("/proc/self/ns/net")


def read_socket_scope() -> str:
    """Where socket names of this process are valid; "" if that is unknown."""
    try:
        boot_id = _BOOT_ID_FILE.read_text(encoding="ascii").strip()
        namespace = os.stat(_NETWORK_NAMESPACE_FILE).st_ino
    except (OSError, ValueError):
        return ""
    # The host name is that of the Pod. Sandboxes that emulate Linux may report one boot ID and one
    # namespace for all Pods.
    return f"{boot_id}/{namespace}/{socket.gethostname()}" if boot_id else ""


class ProcessPresence:
    """The presence of this process under an identity, until the process ends."""

    def __init__(self, identity: str, scope: str | None = None) -> None:
        self._scope = read_socket_scope() if scope is None else scope
        own_socket = _bind(identity) if self._scope else None
        # Detached, so that it stays open until the process ends, and not only as long as this
        # object: the process may still act.
        self._descriptor = own_socket.detach() if own_socket is not None else None
        self.address = self._address_of(identity) if self._descriptor is not None else ""
        """Of the socket, which this process publishes; "" if its end cannot be proven."""

    def has_ended(self, identity: str, address: str) -> bool:
        """Whether the process that published this identity and address has certainly ended."""
        if not self._scope or address != self._address_of(identity):
            return False
        probe = _bind(identity)
        if probe is None:
            return False
        probe.close()
        return True

    def _address_of(self, identity: str) -> str:
        return f"{self._scope}/{_socket_name(identity)}"


def _socket_name(identity: str) -> str:
    # The name of an abstract socket has at most 107 bytes.
    return hashlib.sha256(identity.encode()).hexdigest()[:_NAME_LENGTH]


def _bind(identity: str) -> socket.socket | None:
    """The socket with the name of this identity; None if another process has it."""
    presence = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        presence.bind(f"\0kubewright/{_socket_name(identity)}")
    except OSError:
        presence.close()
        return None
    return presence
