"""Connections that clients of the tests leave to the next client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kubewright.testing.cluster_access import HttpClient, HttpError, IdleConnections


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Respond with the port of the client: each connection has its own."""
        body = str(self.client_address[1]).encode()
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        # As a server that ends: without a header that announces it.
        self.close_connection = self.path == "/last"

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def idle() -> Iterator[IdleConnections]:
    idle = IdleConnections()
    yield idle
    idle.close()


def test_next_client_uses_the_idle_connection(url: str, idle: IdleConnections) -> None:
    ports = list[str]()
    for _ in range(3):
        with HttpClient(url, idle=idle) as client:
            ports.append(client.call("GET", "/"))
    assert len(set(ports)) == 1


def test_error_response_leaves_the_connection_usable(url: str, idle: IdleConnections) -> None:
    with HttpClient(url, idle=idle) as client:
        port = client.call("GET", "/")
        with pytest.raises(HttpError):
            client.call("GET", "/missing")
    with HttpClient(url, idle=idle) as client:
        assert client.call("GET", "/") == port


def test_clients_at_the_same_time_have_connections_of_their_own(
    url: str, idle: IdleConnections
) -> None:
    with HttpClient(url, idle=idle) as first, HttpClient(url, idle=idle) as second:
        assert first.call("GET", "/") != second.call("GET", "/")


def test_closed_connection_is_not_used(url: str, idle: IdleConnections) -> None:
    with HttpClient(url, idle=idle) as client:
        port = client.call("GET", "/last")
        assert client.connection.sock is not None
        # Until the end of the stream is here.
        client.connection.sock.recv(1)
    with HttpClient(url, idle=idle) as client:
        assert client.call("GET", "/") != port
