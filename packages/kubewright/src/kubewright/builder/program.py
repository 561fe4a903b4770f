"""Runs another program for the builder, such as git or kubectl; one that hangs is stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from ..errors import ConfigError


def run_program(
    command: Sequence[str],
    timeout_seconds: float,
    *,
    subject: str = "",
    advice: str,
    environ: Mapping[str, str] | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """The result; its exit code is not checked. `subject` replaces the command in the error."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            input=stdin,
            timeout=timeout_seconds,
            env=environ,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"{subject or '`' + ' '.join(command) + '`'} did not end within {timeout_seconds:g} s "
            f"and was stopped. {advice}"
        ) from None
