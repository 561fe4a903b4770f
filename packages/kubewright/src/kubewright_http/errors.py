"""How a request can fail without a response. TLS failures are ssl.SSLError, and a time limit that
is exceeded is TimeoutError.

    HttpError
        ConnectError            no connection; `os_error` is the reason
            HostNotFound        the name of the host does not resolve
            ProxyUnreachable    no connection to the proxy
        ProxyRejected           the proxy does not open a tunnel; `status` is its response
        ConnectionBroken        the connection ended before the response did
        MalformedResponse       not HTTP, or a limit of this client was exceeded
"""

from __future__ import annotations


class HttpError(Exception):
    pass


class ConnectError(HttpError):
    def __init__(self, os_error: OSError) -> None:
        super().__init__(str(os_error))
        self.os_error = os_error


class HostNotFound(ConnectError):
    pass


class ProxyUnreachable(ConnectError):
    pass


class ProxyRejected(HttpError):
    def __init__(self, status: int) -> None:
        super().__init__(f"the proxy responds HTTP {status}")
        self.status = status


class ConnectionBroken(HttpError):
    pass


class MalformedResponse(HttpError):
    pass
