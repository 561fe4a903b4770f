"""One login to one vCenter, shared by all who call.

    await session.call(lambda: vim.VirtualMachine("vm-12", soap.stub).PowerOn())

How can 500 calls that find the session dead lead to one login? Each remembers the generation in which it began, and says that this
generation is dead. The first starts the login, all others wait for the same one, and latecomers see that the generation has grown.

Why is a refused password not simply tried again? vCenter locks an account after 5 failures in 180 s, and a locked account is told the
same as a wrong password. A leader and a standby may both be trying. `Budget` has the rules.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from pyVmomi import vim

from .credentials import Credentials, CredentialSource
from .faults import Denied, NotAuthenticated, VCenterError, WrongLogin
from .transport import Log, SoapClient, SoapStub

T = TypeVar("T")

LOCKOUT_WINDOW_SECONDS = 180.0  # vCenter's default: 5 failures in 180 s lock an account
# Longer than the window: of the same wrong password each manager has one failure in it, which leaves three for mistakes in mending it.
SAME_CREDENTIALS_RETRY_SECONDS = 185.0
MAX_LOGIN_FAILURES = 3
_UNREADABLE_RETRY_SECONDS = 10.0
_OLD_SESSION_LOGOUT_SECONDS = 2.0
KEEP_ALIVE_SECONDS = 300.0  # an idle session ends after 30 minutes


class LoginBudget:
    """How often a login may fail: what was refused not again for 185 s, and whatever it was, 3 times in 180 s at the most."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.rejected_at: dict[Credentials, float] = {}
        self.failure_times: deque[float] = deque(maxlen=MAX_LOGIN_FAILURES)

    def add_failure(self, credentials: Credentials) -> None:
        """They were refused."""
        recent = {
            each: at
            for each, at in self.rejected_at.items()
            if self.clock() - at < SAME_CREDENTIALS_RETRY_SECONDS
        }
        self.rejected_at = {**recent, credentials: self.clock()}
        self.failure_times.append(self.clock())

    def wait_seconds(self, credentials: Credentials) -> float:
        """How long to wait before trying these; 0 is now."""
        refused_at = self.rejected_at.get(credentials)
        same = (
            0.0
            if refused_at is None
            else refused_at + SAME_CREDENTIALS_RETRY_SECONDS - self.clock()
        )
        return max(same, self._lockout_wait_seconds())

    def _lockout_wait_seconds(self) -> float:
        """How long to wait before trying anything at all."""
        full = len(self.failure_times) == MAX_LOGIN_FAILURES
        return (
            max(self.failure_times[0] + LOCKOUT_WINDOW_SECONDS - self.clock(), 0.0) if full else 0.0
        )


class Session:
    """Who we are to one vCenter. `logout` is its end: a call that comes later must not leave a session behind."""

    def __init__(
        self,
        soap: SoapClient,
        credentials: CredentialSource,
        log: Log,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.soap, self.credentials, self.log, self.clock = soap, credentials, log, clock
        self.generation = 0
        self.logged_in = False
        self.closed = False
        self.budget = LoginBudget(clock)
        self.attempted_credentials: Credentials | None = None
        self._last_rejection = "a login was refused"
        self.login_task: asyncio.Task[VCenterError | None] | None = None

    async def call(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run a call; one that finds the session dead is run again in a new one."""
        await self.login()
        generation = self.generation
        try:
            return await make()
        except NotAuthenticated:
            self.log.debug(
                "the session is gone", vCenter=self.soap.address.display_name, generation=generation
            )
        # Outside the handler, so that a failure of the second run is not shown as one while handling the first.
        await self.renew(generation)
        return await make()

    async def renew(self, generation: int) -> None:
        """The session of that generation is dead: log in again, unless somebody has already."""
        if generation == self.generation:
            self.logged_in = False
        await self.login()

    async def login(self) -> None:
        """Be logged in: at once if we are; else join the login under way, or start one. WrongLogin says when the next try is allowed."""
        if self.closed:
            raise self._closed_error()
        if self.logged_in:
            return
        if self.login_task is None:
            self.login_task = asyncio.create_task(
                self._attempt_login(), name=f"vcenter login: {self.soap.address.display_name}"
            )
            self.login_task.add_done_callback(self._on_login_done)
        flight = self.login_task
        # Not `await flight`: it outlives a caller that is cancelled, because others wait for it.
        await asyncio.wait([flight])
        if flight.cancelled():
            raise self._closed_error()
        if error := flight.result():
            raise _copy_error(error)

    def _closed_error(self) -> NotAuthenticated:
        """The error for who calls after the end."""
        return NotAuthenticated(
            f"The session with vCenter {self.soap.address.display_name} has been ended: this program is stopping."
        )

    def _on_login_done(self, flight: asyncio.Task[VCenterError | None]) -> None:
        """Make room for the next login; an error is taken note of, since every caller may be gone."""
        self.login_task = None
        if not flight.cancelled():
            flight.exception()

    async def _attempt_login(self) -> VCenterError | None:
        """One login with the credentials as they read now; a failure is returned, so that each who waits raises an error of its own."""
        try:
            self.attempted_credentials = credentials = await self._read_credentials()
            self.check_login_budget(credentials)
        except WrongLogin as error:
            return error
        if failure := await self._login_with(credentials):
            return failure
        self.generation += 1
        self.logged_in = True
        self.log.info(
            "logged in",
            vCenter=self.soap.address.display_name,
            user=credentials.description,
            generation=self.generation,
        )
        return None

    async def _read_credentials(self) -> Credentials:
        """The credentials as they are now; what cannot be read is as good as refused, and has changed as soon as it can be read."""
        self.attempted_credentials = None
        try:
            return await asyncio.to_thread(self.credentials.read)
        except Denied as error:
            raise WrongLogin(str(error), retry_after_seconds=_UNREADABLE_RETRY_SECONDS) from error

    def check_login_budget(self, credentials: Credentials) -> None:
        """Raise WrongLogin instead of asking vCenter, while a further failure could lock the account; also for logins over REST."""
        if wait := self.budget.wait_seconds(credentials):
            raise WrongLogin(
                self._rejection_message(credentials, self._last_rejection),
                fault="InvalidLogin",
                retry_after_seconds=wait,
            )

    def count_failed_login(self, credentials: Credentials | None = None) -> None:
        """Count a login that vCenter refused elsewhere, such as over REST, since it counts for the same lock.

        Credentials that were accepted here stay acceptable here: an endpoint that refuses them by itself must not keep us out.
        """
        refused = credentials or self.attempted_credentials or Credentials()
        if self.logged_in and refused == self.attempted_credentials:
            self.budget.failure_times.append(self.clock())
        else:
            self.budget.add_failure(refused)

    async def _login_with(self, credentials: Credentials) -> VCenterError | None:
        """Log in; what went wrong, without a secret in it, and without the chain of errors behind it, which may have one."""
        try:
            await self._send_login(credentials)
        except WrongLogin as error:
            self.budget.add_failure(credentials)
            self._last_rejection = credentials.redact(str(error).partition(": ")[2])
            wait = self.budget.wait_seconds(credentials)
            return WrongLogin(
                self._rejection_message(credentials, self._last_rejection),
                fault=error.fault,
                retry_after_seconds=wait,
            )
        except VCenterError as error:
            return type(error)(credentials.redact(str(error)), fault=error.fault)
        return None

    async def _send_login(self, credentials: Credentials) -> None:
        """The call that suits the credentials, without the old cookie: on a session that still lives, vCenter answers InvalidLogin."""
        await self._end_previous_session()
        self.soap.clear_session()
        await self.soap.use_client_certificate(
            credentials.certificate_file, credentials.key_file, credentials.pem
        )
        # A stub of its own, for the token would go along with every call that others make meanwhile.
        stub = SoapStub(self.soap)
        stub.samlToken = credentials.saml_token or None
        manager: Any = vim.SessionManager(
            (await self.soap.get_service_content()).sessionManager._moId, stub
        )
        if credentials.saml_token:
            await manager.LoginByToken()
        elif credentials.extension_key:
            await manager.LoginExtensionByCertificate(credentials.extension_key)
        else:
            await manager.Login(credentials.username, credentials.password)

    async def _end_previous_session(self) -> None:
        """End what may be left of the last session: if it was refused in one place only, nobody would ever end it later."""
        if not self.generation or not self.soap.cookie:
            return
        with suppress(VCenterError, TimeoutError):
            async with asyncio.timeout(_OLD_SESSION_LOGOUT_SECONDS):
                await (await self.soap.get_service_content()).sessionManager.Logout()

    async def ensure_alive(self) -> None:
        """Ask, where everybody may ask, whether the session lives; a dead one is renewed."""
        await self.call(lambda: self.service_instance.CurrentTime())

    def _rejection_message(self, credentials: Credentials, said: str) -> str:
        """What a person has to know about a wrong login; without the seconds until the next, since it is shown in every status."""
        return (
            f"vCenter {self.soap.address.display_name} refuses {credentials.description}: {said}. User or password is wrong, or the account is "
            f"locked; vCenter does not say which. {credentials.advice}. So that the account is not locked, the same password is tried "
            f"again only after {SAME_CREDENTIALS_RETRY_SECONDS:.0f} s, and no more than {MAX_LOGIN_FAILURES} logins may fail in {LOCKOUT_WINDOW_SECONDS:.0f} s."
        )

    async def wait_for_credentials_change(self) -> None:
        """Wait until the credentials can be read and are others than those of the last login."""
        await self.credentials.wait_for_change(self.attempted_credentials or Credentials())

    async def keep_alive(self, every_seconds: float = KEEP_ALIVE_SECONDS) -> NoReturn:
        """Ask for the time whenever nobody has asked for anything; an open WaitForUpdatesEx, repeated every 15 s, makes this idle."""
        while True:
            await asyncio.sleep(every_seconds)
            if self.logged_in and time.monotonic() - self.soap.last_answer_at >= every_seconds:
                await self.ping()

    async def ping(self) -> None:
        """The cheapest call that counts as use; who has real work finds out what is wrong, and says so."""
        try:
            await self.call(lambda: self.service_instance.CurrentTime())
        except VCenterError as error:
            self.log.debug(
                "the session could not be kept alive",
                vCenter=self.soap.address.display_name,
                error=error,
            )

    @property
    def service_instance(self) -> Any:
        """The ServiceInstance, which every vCenter has under this name."""
        return vim.ServiceInstance("ServiceInstance", self.soap.stub)

    async def logout(self, timeout_seconds: float = 5) -> None:
        """End the session on the server, with its filters and views; a vCenter that does not answer in time ends it by itself later."""
        self.closed = True
        try:
            # Not asyncio.timeout: whoever leaves has mostly been cancelled, and before Python 3.11.3 that would hide the TimeoutError.
            await asyncio.wait_for(self._end_session(), timeout_seconds)
        except NotAuthenticated:
            pass
        except (VCenterError, TimeoutError) as error:
            self.log.warning(
                "could not log out; vCenter ends the session when it has been idle",
                vCenter=self.soap.address.display_name,
                error=error,
            )
        finally:
            self.logged_in = False
            self.soap.clear_session()

    async def _end_session(self) -> None:
        """Wait for a login that is under way, since a session that nobody knows cannot be ended; then end it."""
        if self.login_task is not None:
            flight = self.login_task
            try:
                await asyncio.wait([flight])
            finally:
                flight.cancel()
        if self.logged_in:
            await (await self.soap.get_service_content()).sessionManager.Logout()


def _copy_error(error: VCenterError) -> VCenterError:
    """The same error once more: one that is raised in many tasks would gather the tracebacks of all."""
    if isinstance(error, WrongLogin):
        return WrongLogin(
            str(error), fault=error.fault, retry_after_seconds=error.retry_after_seconds
        )
    return type(error)(str(error), fault=error.fault)
