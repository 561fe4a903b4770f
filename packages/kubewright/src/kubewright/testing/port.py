"""A port that stays ours while the server on it dies and comes back."""

from __future__ import annotations

import socket


class ReservedPort:
    """A free port of 127.0.0.1, held by a bound socket that never listens.

    A server started with SO_REUSEPORT may listen there; nobody else is given the number in between, and while no server listens,
    connections are refused as they should be.
    """

    def __init__(self) -> None:
        self._reserved_socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._reserved_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved_socket.bind(("127.0.0.1", 0))
        self.number: int = self._reserved_socket.getsockname()[1]

    def release(self) -> None:
        """Let the number go."""
        self._reserved_socket.close()
