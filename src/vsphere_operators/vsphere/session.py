"""One login to one vCenter, shared by all calls.

    await session.call(lambda: soap.invoke(SERVICE_INSTANCE, "CurrentTime", {}))

How do 500 calls that find the session ended lead to one login?  Each remembers the number of
    logins when it began and passes it to `renew`. The first starts the login, the others wait for
    it, and late ones see that the number has grown.
Why is a rejected password not simply tried again?  vCenter locks an account after 5 failures in 180
    s, and rejects a locked account with the same message as a wrong password. A leader and a
    standby may both be trying. `FailedLoginLimiter` has the rules.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import NoReturn, TypeVar

from .converters import require_text
from .credentials import Credentials, CredentialSource
from .faults import Denied, NotAuthenticated, VCenterError, WrongLogin
from .log import Log
from .soap_request import encode_call, encode_token_header
from .transport import SERVICE_INSTANCE, SoapClient
from .updates import decode_results

T = TypeVar("T")

# The default of vCenter: 5 failures in 180 s lock an account.
LOCKOUT_WINDOW_SECONDS = 180.0
# Longer than the window: a wrong password causes one failure of each manager in it. With a leader
# and a standby, two more failures do not lock the account.
SAME_CREDENTIALS_RETRY_SECONDS = 185.0
MAX_LOGIN_FAILURES = 3
_UNREADABLE_RETRY_SECONDS = 10.0
_OLD_SESSION_LOGOUT_SECONDS = 2.0
# vCenter ends an idle session after 30 minutes.
_KEEP_ALIVE_SECONDS = 300.0


class FailedLoginLimiter:
    """Limits failed logins: the same credentials once in 185 s, all together 3 times in 180 s."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.rejected_at: dict[Credentials, float] = {}
        self.failure_times: deque[float] = deque(maxlen=MAX_LOGIN_FAILURES)

    def add_failure(self, credentials: Credentials) -> None:
        now = self._clock()
        recent = {
            rejected: at
            for rejected, at in self.rejected_at.items()
            if now - at < SAME_CREDENTIALS_RETRY_SECONDS
        }
        self.rejected_at = {**recent, credentials: now}
        self.failure_times.append(now)

    def wait_seconds(self, credentials: Credentials) -> float:
        """How long to wait before trying these credentials; 0 if they may be tried now."""
        allowed_at = [self._clock()]
        if credentials in self.rejected_at:
            allowed_at.append(self.rejected_at[credentials] + SAME_CREDENTIALS_RETRY_SECONDS)
        if len(self.failure_times) == MAX_LOGIN_FAILURES:
            allowed_at.append(self.failure_times[0] + LOCKOUT_WINDOW_SECONDS)
        return max(allowed_at) - allowed_at[0]


class Session:
    """The session with one vCenter. After `logout`, calls fail: they would leave a session open."""

    def __init__(
        self,
        soap: SoapClient,
        credentials: CredentialSource,
        log: Log,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.soap, self.credentials, self.log, self.clock = soap, credentials, log, clock
        self.login_count = 0
        self.logged_in = False
        self.closed = False
        self.failed_login_limiter = FailedLoginLimiter(clock)
        self.attempted_credentials: Credentials | None = None
        self._last_rejection = "a login was rejected"
        self.login_task: asyncio.Task[VCenterError | None] | None = None

    async def call(self, request: Callable[[], Awaitable[T]]) -> T:
        """Run a call. If the session has ended, log in and run it again."""
        await self.login()
        login_count = self.login_count
        try:
            return await request()
        except NotAuthenticated:
            self.log.debug(
                "the session has ended",
                vCenter=self.soap.address.display_name,
                generation=login_count,
            )
        # Outside the handler, so that a failure of the second run does not chain the first one.
        await self.renew(login_count)
        return await request()

    async def renew(self, login_count: int) -> None:
        """Log in again, unless another login was made since `login_count` was read."""
        if login_count == self.login_count:
            self.logged_in = False
        await self.login()

    async def login(self) -> None:
        """Return when logged in: join a running login, or start one."""
        if self.closed:
            raise self._closed_error()
        if self.logged_in:
            return
        if self.login_task is None:
            self.login_task = asyncio.create_task(
                self._attempt_login(), name=f"vcenter login: {self.soap.address.display_name}"
            )
            self.login_task.add_done_callback(self._on_login_done)
        login = self.login_task
        # Not `await login`: that would cancel it together with this caller, and others wait for it.
        await asyncio.wait([login])
        if login.cancelled():
            raise self._closed_error()
        if error := login.result():
            raise _copy_error(error)

    def _closed_error(self) -> NotAuthenticated:
        return NotAuthenticated(
            f"The session with vCenter {self.soap.address.display_name} is closed: this program is "
            "stopping."
        )

    def _on_login_done(self, login: asyncio.Task[VCenterError | None]) -> None:
        self.login_task = None
        if not login.cancelled():
            # All callers may have been cancelled, and asyncio complains about an unread exception.
            login.exception()

    async def _attempt_login(self) -> VCenterError | None:
        """Log in once. A failure is returned, so that each caller raises an error of its own."""
        try:
            self.attempted_credentials = credentials = await self._read_credentials()
            self.check_failed_login_limit(credentials)
        except WrongLogin as error:
            return error
        if failure := await self._login_with(credentials):
            return failure
        self.login_count += 1
        self.logged_in = True
        self.log.info(
            "logged in",
            vCenter=self.soap.address.display_name,
            user=credentials.description,
            generation=self.login_count,
        )
        return None

    async def _read_credentials(self) -> Credentials:
        # Unreadable credentials count as rejected, and as changed as soon as they can be read.
        self.attempted_credentials = None
        try:
            return await asyncio.to_thread(self.credentials.read)
        except Denied as error:
            raise WrongLogin(str(error), retry_after_seconds=_UNREADABLE_RETRY_SECONDS) from error

    def check_failed_login_limit(self, credentials: Credentials) -> None:
        """Raise WrongLogin while another failure could lock the account; also for REST logins."""
        if wait := self.failed_login_limiter.wait_seconds(credentials):
            raise WrongLogin(
                self._rejection_message(credentials),
                fault="InvalidLogin",
                retry_after_seconds=wait,
                cause=self._rejection_cause(credentials),
            )

    def count_failed_login(self, credentials: Credentials | None = None) -> None:
        """Count a login that was rejected elsewhere, such as over REST: it may lock the account.

        Credentials that work over SOAP stay allowed there, even if the REST endpoint rejects them.
        """
        rejected = credentials or self.attempted_credentials or Credentials()
        if self.logged_in and rejected == self.attempted_credentials:
            self.failed_login_limiter.failure_times.append(self.clock())
        else:
            self.failed_login_limiter.add_failure(rejected)

    async def _login_with(self, credentials: Credentials) -> VCenterError | None:
        """Log in; returns the error with secrets redacted and without __cause__."""
        try:
            await self._send_login(credentials)
        except WrongLogin as error:
            self.failed_login_limiter.add_failure(credentials)
            self._last_rejection = credentials.remove_secrets(str(error).partition(": ")[2])
            wait = self.failed_login_limiter.wait_seconds(credentials)
            return WrongLogin(
                self._rejection_message(credentials),
                fault=error.fault,
                retry_after_seconds=wait,
                cause=self._rejection_cause(credentials),
            )
        except VCenterError as error:
            return type(error)(credentials.remove_secrets(str(error)), fault=error.fault)
        return None

    async def _send_login(self, credentials: Credentials) -> None:
        await self._end_previous_session()
        # With the cookie of a session that is still alive, vCenter rejects a login (InvalidLogin).
        self.soap.clear_session()
        manager = (await self.soap.get_service_content()).sessionManager
        if credentials.saml_token:
            method = "LoginByToken"
            header = encode_token_header(credentials.saml_token)
            response = await self.soap.invoke(manager, method, {}, header=header)
        elif credentials.extension_key:
            method = "LoginExtensionByCertificate"
            response = await self.soap.post_through_tunnel(
                encode_call(manager, method, {"extensionKey": credentials.extension_key}),
                method=method,
                certificate_file=credentials.certificate_file,
                key_file=credentials.key_file,
            )
        else:
            method = "Login"
            login = {"userName": credentials.username, "password": credentials.password}
            response = await self.soap.invoke(manager, method, login)
        # Only whether it is a response matters. A part that does not decode is not reported: the
        # response of a broken server may repeat the request, with the password.
        if not decode_results(response, method):
            raise self.soap.not_vsphere_error(method)

    async def _end_previous_session(self) -> None:
        # If only one endpoint rejected the last session, it is still open on the server.
        if not self.login_count or not self.soap.cookie:
            return
        with suppress(VCenterError, TimeoutError):
            async with asyncio.timeout(_OLD_SESSION_LOGOUT_SECONDS):
                await self._send_logout()

    async def _send_logout(self) -> None:
        manager = (await self.soap.get_service_content()).sessionManager
        await self.soap.invoke(manager, "Logout", {})

    async def ensure_alive(self) -> None:
        """Renew the session if it has ended."""
        await self._request_time()

    async def read_server_time(self) -> datetime:
        results = decode_results(await self._request_time(), "CurrentTime")
        try:
            return datetime.fromisoformat(require_text(results[0]))
        except (LookupError, TypeError, ValueError) as error:
            raise self.soap.not_vsphere_error("CurrentTime") from error

    async def _request_time(self) -> bytes:
        # CurrentTime is the cheapest call, and needs no privilege.
        return await self.call(lambda: self.soap.invoke(SERVICE_INSTANCE, "CurrentTime", {}))

    def _rejection_cause(self, credentials: Credentials) -> str:
        return (
            f"vCenter {self.soap.address.display_name} rejects {credentials.description}: "
            f"{self._last_rejection}. The user or password is wrong, or the account is locked; "
            "vCenter does not report which."
        )

    def _rejection_message(self, credentials: Credentials) -> str:
        # Without the seconds until the next attempt: every status shows the message, and would
        # change with it.
        return (
            f"{self._rejection_cause(credentials)} {credentials.advice}. So that vCenter does not "
            "lock the account, the manager tries the same password again after about "
            f"{round(SAME_CREDENTIALS_RETRY_SECONDS / 60)} minutes, and lets at "
            f"most {MAX_LOGIN_FAILURES} logins fail in {LOCKOUT_WINDOW_SECONDS / 60:.0f} minutes."
        )

    async def wait_for_credentials_change(self) -> None:
        """Wait until the credentials can be read and differ from those of the last login."""
        await self.credentials.wait_for_change(self.attempted_credentials or Credentials())

    async def keep_alive(self, every_seconds: float = _KEEP_ALIVE_SECONDS) -> NoReturn:
        """Call vCenter if no other call did for a while.

        In practice WaitForUpdatesEx, every 15 s, keeps the session alive.
        """
        while True:
            await asyncio.sleep(every_seconds)
            if not self.logged_in or time.monotonic() - self.soap.last_response_at < every_seconds:
                continue
            try:
                await self.ensure_alive()
            except VCenterError as error:
                # The next real call reports what is wrong.
                self.log.debug(
                    "the session could not be kept alive",
                    vCenter=self.soap.address.display_name,
                    error=error,
                )

    async def logout(self, timeout_seconds: float = 5) -> None:
        """End the session on the server, with its filters and views."""
        self.closed = True
        try:
            # Not asyncio.timeout: the caller has mostly been cancelled, and before Python 3.11.3
            # that would hide the TimeoutError.
            await asyncio.wait_for(self._end_session(), timeout_seconds)
        except NotAuthenticated:
            pass
        except (VCenterError, TimeoutError) as error:
            self.log.warning(
                "could not log out; vCenter ends the session when it is idle",
                vCenter=self.soap.address.display_name,
                error=error,
            )
        finally:
            self.logged_in = False
            self.soap.clear_session()

    async def _end_session(self) -> None:
        if self.login_task is not None:
            # Without the response to the login, the session key is unknown.
            login = self.login_task
            try:
                await asyncio.wait([login])
            finally:
                login.cancel()
        if self.logged_in:
            await self._send_logout()


def _copy_error(error: VCenterError) -> VCenterError:
    # One error object raised in many tasks would collect the tracebacks of all.
    if isinstance(error, WrongLogin):
        return WrongLogin(
            str(error),
            fault=error.fault,
            retry_after_seconds=error.retry_after_seconds,
            cause=error.cause,
        )
    return type(error)(str(error), fault=error.fault)
