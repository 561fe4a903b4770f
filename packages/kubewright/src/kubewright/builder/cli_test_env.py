"""`kubewright test-env`: a local API server, without containers and nodes."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..testing.controlplane import ControlPlane

_CHECK_INTERVAL_SECONDS = 1.0
# What a shell reports for a command that it cannot find.
_NOT_FOUND_EXIT_CODE = 127


@click.command("test-env", context_settings={"allow_interspersed_args": False})
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the administrator's kubeconfig to this file. It is removed at the end.",
)
@click.option(
    "--apply",
    "manifests",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Apply a file or a folder of manifests, such as config/crd/bases. Repeatable.",
)
@click.option(
    "--controllers",
    is_flag=True,
    help="Also run kube-controller-manager: Deployments create Pods, garbage is collected.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def test_env(
    kubeconfig: Path | None,
    manifests: tuple[Path, ...],
    controllers: bool,
    command: tuple[str, ...],
) -> int:
    """Start a local API server, and print its kubeconfig.

    It is a real etcd and kube-apiserver, without nodes: Pods do not run. It ends with Ctrl-C, or
    with COMMAND, which gets the kubeconfig in KUBECONFIG. All objects are lost then. The binaries
    are searched for in KUBEBUILDER_ASSETS, on PATH, in the package kubewright-testenv and in the
    user's cache. If they are missing, they are downloaded, or built, which takes minutes once.

    \b
    Examples:
      kubewright test-env
      kubewright test-env --apply config/crd/bases -- pytest tests/integration
    """
    with _running_control_plane(controllers=controllers) as plane:
        file = plane.admin_kubeconfig
        if kubeconfig is not None:
            file = plane.write_kubeconfig(kubeconfig.absolute())
        try:
            for manifest in manifests:
                click.echo(plane.apply(manifest), nl=False, err=True)
            if command:
                return _run_command(command, file)
            return _wait_for_signal(plane, file)
        finally:
            if kubeconfig is not None:
                file.unlink(missing_ok=True)


@contextmanager
def _running_control_plane(*, controllers: bool) -> Iterator[ControlPlane]:
    try:
        from ..testing.binaries import find_binaries
        from ..testing.controller_manager import DEFAULT_CONTROLLERS
        from ..testing.controlplane import ControlPlane, KubectlFailed
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the package {error.name} is not installed. "
            "Install the test environment with: pip install 'kubewright[testing]'. "
            "In a clone or a generated project: make setup"
        ) from None
    names = ["etcd", "kube-apiserver", "kubectl"]
    binaries = find_binaries([*names, "kube-controller-manager"] if controllers else names)
    click.echo("starting etcd and kube-apiserver", err=True)
    plane = ControlPlane(binaries, controllers=DEFAULT_CONTROLLERS if controllers else ())
    plane.start_sync()
    try:
        yield plane
    except KubectlFailed as error:
        raise ConfigError(str(error)) from None
    finally:
        plane.stop_sync()


def _run_command(command: Sequence[str], kubeconfig: Path) -> int:
    try:
        return subprocess.run(command, env={**os.environ, "KUBECONFIG": str(kubeconfig)}).returncode
    except FileNotFoundError:
        click.echo(f"kubewright: {command[0]}: command not found", err=True)
        return _NOT_FOUND_EXIT_CODE


def _wait_for_signal(plane: ControlPlane, kubeconfig: Path) -> int:
    # On standard output, so that a script can read it: progress is on standard error.
    click.echo(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}")
    if shutil.which("kubectl") is None:
        folder = shlex.quote(str(plane.binaries["kubectl"].parent))
        click.echo(f"export PATH={folder}:$PATH")
    click.echo(f"The API server is ready at {plane.url}. Stop it with Ctrl-C.", err=True)
    stopped = threading.Event()
    previous = {
        number: signal.signal(number, lambda *_: stopped.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        while not stopped.wait(_CHECK_INTERVAL_SECONDS):
            for process in (plane.etcd.process, plane.apiserver.process):
                if not process.is_running:
                    click.echo(
                        f"kubewright: {process.name} ended unexpectedly. The end of its log:\n"
                        f"{process.read_log_tail()}",
                        err=True,
                    )
                    return 1
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0
