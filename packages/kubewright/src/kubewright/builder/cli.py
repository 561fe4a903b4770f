"""The `kubewright` command: what is asked, which change that is, and whether to show it or to write it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import KubewrightError

_MISSING_PACKAGE_MESSAGE = (
    "the builder needs a package that is not installed ({}): pip install 'kubewright[builder]'"
)


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 if it did what it should, 1 if not, 2 for a wrong command line."""
    try:
        from .cli_commands import kubewright
    except ModuleNotFoundError as error:
        if error.name not in ("click", "tomlkit"):
            raise
        print(f"kubewright: {_MISSING_PACKAGE_MESSAGE.format(error.name)}", file=sys.stderr)
        return 1
    return run_command(kubewright, argv)


def run_command(command: object, argv: list[str] | None) -> int:
    """Run a click command, and turn every failure into words and an exit code."""
    import click

    assert isinstance(command, click.Command)
    try:
        with _interrupt_on_signals():
            found = command.main(argv, prog_name="kubewright", standalone_mode=False)
        return found if isinstance(found, int) else 0
    except click.Abort:
        print("\nkubewright: interrupted; nothing was written", file=sys.stderr)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KubewrightError as error:
        print(f"kubewright: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        words = (
            f"{error.filename}: {error.strerror}"
            if error.filename and error.strerror
            else str(error)
        )
        print(f"kubewright: {words}; what this command had changed is as it was", file=sys.stderr)
        return 1


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that goes away, are interruptions as Ctrl-C is: what was moved is moved back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        each: signal.signal(each, signal.default_int_handler)
        for each in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


if __name__ == "__main__":
    raise SystemExit(main())
