"""The `manager` command of an operator: flags, logs, connection, signals, and every failure to start in plain words.

    def main() -> int:
        return command.run(Settings, add_controllers)        # Settings extends ManagerFlags with the operator's own flags

What is common to all managers is here; an operator adds its own flags and its controllers.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from .errors import ConfigError, Forbidden, KubewrightError, RestartRequired, Unauthorized
from .flags import Duration, FlagError, HelpRequested, flag, parse_command_line
from .kubeconfig import load_config
from .log import Log, LogOptions, configure_logging
from .manager import Manager, Options
from .webhook.options import WebhookOptions


@dataclass(frozen=True)
class ManagerFlags:
    """The flags that every manager has, under controller-runtime's names old and new."""

    kubeconfig: str = flag(
        "kubeconfig",
        "",
        "Path of a kubeconfig; then KUBECONFIG, the Pod's service account, ~/.kube/config.",
    )
    master: str = flag("master", "", "Address of the API server; overrides the kubeconfig's.")
    context: str = flag(
        "context", "", "Context of the kubeconfig to use; its current one by default."
    )
    metrics_bind_address: str = flag(
        "metrics-addr",
        ":8080",
        "Where /metrics listens; 0 switches it off.",
        aliases=("metrics-bind-address",),
        env="METRICS_ADDR",
    )
    metrics_secure: bool = flag(
        "metrics-secure",
        False,
        "Serve /metrics over TLS, to those whom Kubernetes allows to get it.",
    )
    metrics_certificate_dir: str = flag(
        "metrics-cert-path",
        "",
        "Directory with tls.crt and tls.key for /metrics; without it a self-signed pair is made.",
    )
    health_probe_bind_address: str = flag(
        "health-probe-bind-address",
        "",
        "Where /healthz and /readyz listen; empty switches them off.",
        env="HEALTH_PROBE_ADDR",
    )
    leader_election: bool = flag(
        "enable-leader-election",
        False,
        "Act only while holding the leader lease.",
        aliases=("leader-elect",),
        env="LEADER_ELECT",
    )
    leader_election_id: str = flag(
        "leader-election-id", "", "Name of the Lease; derived from the program's name by default."
    )
    leader_election_namespace: str = flag(
        "leader-election-namespace",
        "",
        "Namespace of the Lease; the Pod's own by default.",
        env="POD_NAMESPACE",
    )
    watch_namespaces: str = flag(
        "watch-namespaces",
        "",
        "Namespaces to watch, separated by commas; all of them by default.",
        env="WATCH_NAMESPACE",
    )
    webhook_port: int = flag("webhook-port", 9443, "Where webhooks are served, if there are any.")
    webhook_certificate_dir: str = flag(
        "webhook-cert-dir",
        "",
        "Directory with tls.crt and tls.key for webhooks; without it a CA is made, kept in a Secret and put into every caBundle.",
        aliases=("webhook-cert-path",),
    )
    webhook_service: str = flag(
        "webhook-service",
        "",
        "Name of the Service before the webhooks; <name>-webhook-service by default.",
    )
    webhook_hosts: str = flag(
        "webhook-hosts",
        "",
        "Further names and addresses for the webhooks' certificate, separated by commas.",
    )
    graceful_shutdown_seconds: Duration = flag(
        "graceful-shutdown-timeout",
        30.0,
        "How long what is in work may take to end after a signal.",
    )
    logs: LogOptions = field(default_factory=LogOptions)

    def to_options(self, name: str) -> Options:
        """The same as the manager takes it."""
        return Options(
            name=name,
            metrics_bind_address=self.metrics_bind_address,
            metrics_secure=self.metrics_secure,
            metrics_certificate_dir=self.metrics_certificate_dir,
            health_probe_bind_address=self.health_probe_bind_address,
            leader_election=self.leader_election,
            leader_election_id=self.leader_election_id,
            leader_election_namespace=self.leader_election_namespace,
            watch_namespaces=_split_commas(self.watch_namespaces),
            graceful_shutdown_seconds=self.graceful_shutdown_seconds,
            webhooks=WebhookOptions(
                port=self.webhook_port,
                certificate_dir=self.webhook_certificate_dir,
                service=self.webhook_service,
                extra_hosts=_split_commas(self.webhook_hosts),
            ),
        )


def _split_commas(text: str) -> tuple[str, ...]:
    """What stands between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


F = TypeVar("F", bound=ManagerFlags)
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(
    flags: type[F],
    build: Callable[[Manager, F], None],
    *,
    name: str,
    program: str = "manager",
    see_also: str = "",
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Run a manager until a signal. `name` is the operator's, in events and lease; `program` what people type; `see_also` ends its help.

    The exit code says how it went: 0 a signal, 1 it could not go on, 2 a wrong flag.
    """
    environ = os.environ if environ is None else environ
    try:
        settings = parse_command_line(
            flags, sys.argv[1:] if argv is None else argv, environ, program=program
        )
        configure_logging(settings.logs)
    except HelpRequested as wanted:
        print("\n".join(filter(None, [wanted.usage, see_also])))
        return 0
    except FlagError as error:
        print(f"{program}: {error}\nRun `{program} -help` for the flags.", file=sys.stderr)
        return error.exit_code
    except ConfigError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    try:
        while True:
            try:
                asyncio.run(serve(settings, build, name, environ))
                return 0
            except RestartRequired as change:
                Log("setup").info(f"starting anew: {change}")
    except KubewrightError as error:
        _report_failure(f"{program} cannot go on: {describe_error(error)}")
        return 1


async def serve(
    settings: F, build: Callable[[Manager, F], None], name: str, environ: Mapping[str, str]
) -> None:
    """Connect, build the manager, and run it until a signal. A second signal ends the process at once."""
    connection = await asyncio.to_thread(
        load_config,
        settings.kubeconfig,
        settings.master,
        settings.context,
        environ=environ,
        home=Path(environ.get("HOME", "/")),
    )
    manager = Manager(connection, settings.to_options(name))
    build(manager, settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def give_up() -> None:
        Log("setup").error(
            "what was in work did not end in time; ending without it",
            seconds=settings.graceful_shutdown_seconds,
        )
        os._exit(1)

    def bound_the_end() -> None:
        loop.call_later(settings.graceful_shutdown_seconds, give_up)

    def on_signal(number: signal.Signals) -> None:
        for each in _STOP_SIGNALS:
            # Not through the loop any more: it may be what hangs.
            loop.remove_signal_handler(each)
            signal.signal(each, lambda signalled, _: os._exit(128 + signalled))
        # Not before: whoever reads it may send the second one at that very moment.
        Log("setup").info(
            "received a signal, stopping; a second one ends at once", signal=number.name
        )
        stop.set()
        bound_the_end()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    manager.on_stopped_leading = bound_the_end
    tune_garbage_collector()
    try:
        await manager.run(stop)
    finally:
        bound_the_end()


def tune_garbage_collector() -> None:
    """Keep the collector of cycles from standing in the way."""
    # Modules, classes and schemas live as long as the process: it need not walk them again and again.
    gc.collect()
    gc.freeze()
    # A request makes thousands of objects that die at once; looking for cycles after every 700 cost about 3 % of the CPU.
    gc.set_threshold(10_000, 20, 20)


def _report_failure(words: str) -> None:
    """The last thing said: a line of the log, or plain words where a person reads them."""
    if sys.stderr.isatty():
        print(words, file=sys.stderr)
    else:
        Log("setup").error(words)


def describe_error(error: KubewrightError) -> str:
    """The error, with the fix where the server's own words do not give it."""
    match error:
        case Unauthorized():
            return f"{error}. The credential of this kubeconfig is missing, wrong or expired: try `kubectl auth whoami` with it."
        case Forbidden():
            return (
                f"{error}. Grant the generated role to this identity: kubectl apply -k config/rbac"
            )
        case _:
            return str(error)
