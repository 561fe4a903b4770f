"""Runs a reconcile that is a plain `def` in a thread, so that it may block.

Questions and answers:

How many threads?  At most `max_concurrent_reconciles` for each controller, one for each call.
What happens at the timeout?  A thread cannot be stopped. The object is reported as timed out and
    stays locked until the thread ends: an object is never reconciled twice at once. Its thread and
    its worker are still occupied. They handle no other object until then.
How does the code use the client?  With `self.run_async(self.client.get(...))`, which waits for the
    coroutine in the event loop. After the timeout it raises TimeoutError, so most threads end soon.
Does a blocked thread keep the process alive?  No. Its threads are daemons: those of a
    ThreadPoolExecutor would be joined at the exit of the interpreter, after the grace period.
What must the code not do?  Run CPU-bound code: threads share the GIL, which delays watches and
    lease renewal.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from .errors import ConfigError
from .kind import Key

R = TypeVar("R")


class _Run:
    """One call of a function in a thread, with the coroutines that it waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting_for: concurrent.futures.Future[Any] | None = None
        self._cancelled = False

    def wait_for(self, coroutine: Coroutine[Any, Any, R]) -> R:
        with self._lock:
            if self._cancelled:
                coroutine.close()
                raise TimeoutError("the reconcile was stopped; it makes no more calls")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._waiting_for = future
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise TimeoutError("the reconcile was stopped during this call") from None

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._waiting_for is not None:
                self._waiting_for.cancel()


_current_run: ContextVar[_Run] = ContextVar("current_run")


def run_async(coroutine: Coroutine[Any, Any, R]) -> R:
    """Wait for a coroutine, in a thread of `ReconcileThreads`."""
    run = _current_run.get(None)
    if run is None:
        coroutine.close()
        raise ConfigError(
            "run_async is for a reconcile that is a plain def; in an async def, await the coroutine"
        )
    return run.wait_for(coroutine)


def call_directly(function: Callable[..., object], *arguments: Any) -> None:
    """Call a function where no event loop is running yet."""
    function(*arguments)


def loop_caller() -> Callable[..., None]:
    """A function that calls others in the running event loop, from whichever thread it is used."""
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def call(function: Callable[..., object], *arguments: Any) -> None:
        if threading.get_ident() == thread:
            function(*arguments)
        else:
            loop.call_soon_threadsafe(function, *arguments)

    return call


def is_blocking(method: Callable[..., object]) -> bool:
    """Whether the method is a plain `def`."""
    is_async = inspect.iscoroutinefunction
    return not is_async(method) and not is_async(getattr(method, "__call__", None))  # noqa: B004


class ReconcileThreads:
    """The threads of one controller."""

    def __init__(self, name: str) -> None:
        self._name = f"reconcile-{name}"
        self.unfinished: dict[Key, asyncio.Future[object]] = {}

    async def run(self, key: Key, function: Callable[[Any], object], argument: object) -> object:
        """Call the function. If this is cancelled, the thread goes on; see `wait_until_ended`."""
        run, context = _Run(asyncio.get_running_loop()), copy_context()
        context.run(_current_run.set, run)
        returned: concurrent.futures.Future[object] = concurrent.futures.Future()

        def call() -> None:
            try:
                returned.set_result(context.run(function, argument))
            except StopIteration as error:
                # A future of asyncio cannot have this exception.
                returned.set_exception(RuntimeError(f"StopIteration: {error}"))
            except BaseException as error:
                returned.set_exception(error)

        threading.Thread(target=call, name=self._name, daemon=True).start()
        thread = asyncio.wrap_future(returned)
        self.unfinished[key] = thread
        try:
            await asyncio.wait([thread])
        except asyncio.CancelledError:
            run.cancel()
            raise
        del self.unfinished[key]
        return thread.result()

    async def wait_until_ended(self, key: Key) -> None:
        """Wait for the thread of a cancelled `run`. What it returns or raises has no effect."""
        thread = self.unfinished.get(key)
        if thread is not None:
            await asyncio.wait([thread])
            del self.unfinished[key]
            if not thread.cancelled():
                # Otherwise asyncio reports that the exception was never retrieved.
                thread.exception()
