"""The `manager` command of an operator: flags, logging, the connection, signals, exit codes.

    def main() -> int:
        return command.run(Settings, build, name="my-operator")

`Settings` extends `ManagerFlags` with the flags of the operator, and `build` adds its controllers
to the manager.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .errors import ConfigError, Forbidden, KubewrightError, RestartRequired, Unauthorized
from .flags import Duration, FlagError, HelpRequested, flag, parse_command_line
from .garbage import GarbageCollector, tune_garbage_collector
from .kubeconfig import load_config
from .log import Log, LogOptions, configure_logging
from .manager import Manager, Options
from .version import read_version
from .webhook.options import WebhookOptions


@dataclass(frozen=True)
class ManagerFlags:
    """The flags of every manager, with the old and the new names of controller-runtime."""

    kubeconfig: str = flag(
        "kubeconfig",
        "",
        "Path to a kubeconfig. By default KUBECONFIG, the Pod's service account "
        "or ~/.kube/config is used.",
    )
    master: str = flag("master", "", "URL of the API server. Overrides the kubeconfig.")
    context: str = flag(
        "context", "", "Context of the kubeconfig to use. Defaults to its current context."
    )
    metrics_bind_address: str = flag(
        "metrics-addr",
        ":8080",
        "Address of the metrics endpoint. Use 0 to disable it.",
        aliases=("metrics-bind-address",),
        env="METRICS_ADDR",
    )
    metrics_secure: bool = flag(
        "metrics-secure",
        False,
        "Serve metrics over HTTPS with authentication and authorization.",
    )
    metrics_certificate_dir: str = flag(
        "metrics-cert-path",
        "",
        "Directory with tls.crt and tls.key of the metrics endpoint. "
        "If empty, a self-signed certificate is generated.",
    )
    health_probe_bind_address: str = flag(
        "health-probe-bind-address",
        "",
        "Address of the health probes /healthz and /readyz. If empty, they are disabled.",
        env="HEALTH_PROBE_ADDR",
    )
    leader_election: bool = flag(
        "enable-leader-election",
        False,
        "Reconcile only while holding the leader lease, so that one replica is active.",
        aliases=("leader-elect",),
        env="LEADER_ELECT",
    )
    leader_election_id: str = flag(
        "leader-election-id", "", "Name of the Lease. Defaults to a name derived from the operator."
    )
    leader_election_namespace: str = flag(
        "leader-election-namespace",
        "",
        "Namespace of the Lease. Defaults to the namespace of the Pod.",
        env="POD_NAMESPACE",
    )
    watch_namespaces: str = flag(
        "watch-namespaces",
        "",
        "Namespaces to watch, separated by commas. Defaults to all namespaces.",
        env="WATCH_NAMESPACE",
    )
    watch_list: bool = flag(
        "watch-list",
        False,
        "List objects as the first events of a watch (WatchList) instead of in pages, where the "
        "API server can. Needs less memory and more CPU.",
    )
    webhook_port: int = flag(
        "webhook-port", 9443, "Port of the webhook server, if there are webhooks."
    )
    webhook_certificate_dir: str = flag(
        "webhook-cert-dir",
        "",
        "Directory with tls.crt and tls.key of the webhook server. If empty, the manager creates "
        "a CA, stores it in a Secret and writes it into every caBundle.",
        aliases=("webhook-cert-path",),
    )
    webhook_service: str = flag(
        "webhook-service",
        "",
        "Name of the Service of the webhooks. Defaults to <name>-webhook-service.",
    )
    webhook_hosts: str = flag(
        "webhook-hosts",
        "",
        "Additional host names and IP addresses of the webhook certificate, separated by commas.",
    )
    webhook_client_ca_file: str = flag(
        "webhook-client-ca-file",
        "",
        "CA of the client certificate that the API server sends to webhooks. Reviews without such "
        "a certificate are rejected. If empty, none is required.",
    )
    webhook_client_names: str = flag(
        "webhook-client-names",
        "",
        "Common names of the client certificates to accept, separated by commas. "
        "Defaults to all that the CA signed.",
    )
    graceful_shutdown_seconds: Duration = flag(
        "graceful-shutdown-timeout",
        30.0,
        "Time to wait for in-flight reconciles on shutdown.",
    )
    logs: LogOptions = field(default_factory=LogOptions)

    def to_options(self, name: str) -> Options:
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
            watch_list=self.watch_list,
            graceful_shutdown_seconds=self.graceful_shutdown_seconds,
            webhooks=WebhookOptions(
                port=self.webhook_port,
                certificate_dir=self.webhook_certificate_dir,
                service=self.webhook_service,
                extra_hosts=_split_commas(self.webhook_hosts),
                client_ca_file=self.webhook_client_ca_file,
                client_names=_split_commas(self.webhook_client_names),
            ),
        )


def _split_commas(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


F = TypeVar("F", bound=ManagerFlags)
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(
    flags: type[F],
    build: Callable[[Manager, F], None],
    *,
    name: str,
    version: str = "",
    program: str = "manager",
    see_also: str = "",
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Run a manager until a signal arrives, and return the exit code.

    `name` is the name of the operator in Events and in the Lease, `version` is that of the first
    log line, `program` is the command that users type, and `see_also` ends its help. Exit codes: 0
    after a signal, 1 after a failure, 2 for an invalid flag.
    """
    environ = os.environ if environ is None else environ
    try:
        settings = parse_command_line(
            flags, sys.argv[1:] if argv is None else argv, environ, program=program
        )
        configure_logging(settings.logs)
    except HelpRequested as request:
        print("\n".join(filter(None, [request.usage, see_also])))
        return 0
    except FlagError as error:
        print(f"{program}: {error}\nRun `{program} -help` to list the flags.", file=sys.stderr)
        return error.exit_code
    except ConfigError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    log = Log("setup").bind(version=version) if version else Log("setup")
    log.info(
        f"starting {name}",
        kubewright=read_version(),
        python=".".join(map(str, sys.version_info[:3])),
    )
    try:
        while True:
            try:
                asyncio.run(_serve(settings, build, name, environ))
                return 0
            except RestartRequired as change:
                Log("setup").info(f"restarting: {change}")
    except KubewrightError as error:
        message = f"{program} failed: {_add_advice(error)}"
        # A line of the log for a log collector, plain text for a user at a terminal.
        if sys.stderr.isatty():
            print(message, file=sys.stderr)
        else:
            Log("setup").error(message)
        return 1


async def _serve(
    settings: F, build: Callable[[Manager, F], None], name: str, environ: Mapping[str, str]
) -> None:
    """Connect, build the manager and run it until a signal. A second signal exits immediately."""
    connection = await asyncio.to_thread(
        load_config,
        settings.kubeconfig,
        settings.master,
        settings.context,
        environ=environ,
    )
    manager = Manager(connection, settings.to_options(name))
    build(manager, settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def exit_now() -> None:
        Log("setup").error(
            "in-flight work did not finish in time; exiting without it",
            seconds=settings.graceful_shutdown_seconds,
        )
        os._exit(1)

    def start_exit_timer() -> None:
        loop.call_later(settings.graceful_shutdown_seconds, exit_now)

    def on_signal(number: signal.Signals) -> None:
        for stop_signal in _STOP_SIGNALS:
            # The second signal must not go through the loop, which may hang.
            loop.remove_signal_handler(stop_signal)
            signal.signal(stop_signal, lambda received, _: os._exit(128 + received))
        # Logged after the handlers are replaced: a reader may send the second signal immediately.
        Log("setup").info(
            "received a signal, shutting down; send it again to exit at once", signal=number.name
        )
        stop.set()
        start_exit_timer()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    manager.stopped_leading.connect(start_exit_timer)
    manager.add_runnable(GarbageCollector())
    tune_garbage_collector()
    try:
        await manager.run(stop)
    finally:
        # Closing the loop waits for threads, and one of them may hang.
        start_exit_timer()


def _add_advice(error: KubewrightError) -> str:
    """The message of the error, with the fix if the server's message lacks it."""
    match error:
        case Unauthorized():
            return (
                f"{error}. The credentials of this kubeconfig are missing, wrong or expired: "
                "check them with `kubectl auth whoami`."
            )
        case Forbidden():
            return (
                f"{error}. Grant the generated role to this identity: "
                "kubectl apply --server-side -k config/rbac"
            )
        case _:
            return str(error)
