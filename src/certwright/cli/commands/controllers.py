"""`certwright controllers`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace as replace_struct

from certwright.cli import (
    access,
    acme_flags,
    controller_flags,
    daemon,
    dashboard_flags,
    delivery_flags,
    lazy,
    metrics_flags,
)
from certwright.cli.configuration import Configured, only_reading
from certwright.cli.errors import Failed
from certwright.cli.flags import ANY_ADDRESS, flag_options, values_of
from certwright.cli.options import ServerOptions, server_options
from certwright.kube.api.naming import random_suffix
from certwright.kube.client.kubeconfig import ClusterAccess
from certwright.kube.client.login import LoginFiles
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.encoding import in_brackets

_SOON_S = 2.0
"""How long to wait for the lease before a message."""
_log = logging.getLogger(__name__)
_Settings = tuple[delivery_flags.DeliveryFlags, "lazy.app.ControllerOptions", daemon.LogFlags]


class _Target(msgspec.Struct, frozen=True):
    """The API server, and why it was chosen."""

    choice: access.Choice
    cluster_access: ClusterAccess

    def __str__(self) -> str:
        return f"{self.cluster_access.server} (kubeconfig {self.choice})"


async def _serve_dashboard(
    target: _Target, options: lazy.app.ClusterDashboardOptions, log: daemon.LogFlags
) -> lazy.app.ClusterDashboard:
    """The dashboard, whose users have their own rights."""
    cluster, choice = target.cluster_access, target.choice
    anonymous = replace_struct(
        cluster, token="", client_cert_pem=b"", client_key_pem=b"", files=LoginFiles(), plugin=None
    )
    access_ = lazy.app.ClusterAccess(
        access.connect(choice, cluster), access.connect(choice, anonymous), SystemClock()
    )
    dashboard = lazy.app.ClusterDashboard(options, access_, SystemClock())
    try:
        port = await dashboard.listen()
    except lazy.app.StartError as error:
        raise Failed(str(error)) from error
    log.announce(f"the dashboard is at https://{in_brackets(options.host)}:{port}/ui/")
    return dashboard


async def _serve_metrics(
    running: lazy.app.RunningControllers, metrics: metrics_flags.MetricsFlags, log: daemon.LogFlags
) -> None:
    if metrics.address is None:
        return
    host = metrics.address[0] or ANY_ADDRESS
    try:
        port = await running.serve_metrics(host, metrics.address[1], metrics.tls)
    except lazy.app.StartError as error:
        raise Failed(str(error)) from error
    log.announce(f"metrics are at {'http' if metrics.tls is None else 'https'}://{host}:{port}/metrics")


def _settings(flags: controller_flags.ClusterFlags) -> lazy.app.ClusterSettings:
    given = values_of(flags)
    timing = {name: given.pop(name) for name in ("lease_duration", "renew_deadline", "retry_period")}
    # Without a name, each process has its own identity, also on one machine and after a restart.
    identity = given.pop("identity") or f"{socket.gethostname()}_{random_suffix(10)}"
    return lazy.app.ClusterSettings(
        identity=identity,
        timing=lazy.app.LeaseTiming(duration=timing.pop("lease_duration"), **timing),
        **given,
    )


async def _report_leading(running: lazy.app.RunningControllers, where: str, log: daemon.LogFlags) -> None:
    """Report when the controllers lead, and that they wait, if they do."""
    try:
        async with asyncio.timeout(_SOON_S):
            await running.wait_leading()
    except TimeoutError:
        holder = running.holder
        why = f"{holder} is at work on {where}" if holder else f"it could not be read from {where} yet"
        log.announce(f"waiting for the lease: {why}")
        await running.wait_leading()
    log.announce(f"certwright's controllers are at work on {where}")


@click.command(cls=Configured, short_help="Run only the controllers, against a server elsewhere.")
@flag_options("flags", controller_flags.ControllerFlags)
@flag_options("acme", acme_flags.AcmeFlags)
@flag_options("shims", controller_flags.ShimFlags)
@flag_options("deliveries", delivery_flags.DeliveryFlags)
@flag_options("cluster", controller_flags.ClusterFlags)
@click.option(
    "--namespace",
    metavar="NS",
    help="Watch one namespace only, and ignore ClusterIssuers; without it, watch all namespaces.",
)
@flag_options("metrics", metrics_flags.MetricsFlags)
@flag_options("dashboard", dashboard_flags.DashboardFlags)
@flag_options("log", daemon.LogFlags)
@server_options
def command(
    *,
    server: ServerOptions,
    flags: controller_flags.ControllerFlags,
    acme: acme_flags.AcmeFlags,
    shims: controller_flags.ShimFlags,
    deliveries: delivery_flags.DeliveryFlags,
    cluster: controller_flags.ClusterFlags,
    namespace: str | None,
    metrics: metrics_flags.MetricsFlags,
    dashboard: dashboard_flags.DashboardFlags,
    log: daemon.LogFlags,
) -> _Settings | None:
    """Run the controllers until Ctrl-C or SIGTERM, against the server that the kubeconfig names.

    That may be `certwright serve --controllers ''`, or a Kubernetes cluster with the definitions of
    `certwright crds`; in a pod it is the pod's own cluster. Of several replicas, one leads and the others
    wait. The flags have cert-manager's names.

    \b
    Examples:
      certwright controllers --kubeconfig certwright-data/kubeconfig
      certwright controllers --controllers '*,-issuers'
    """
    is_read_only = only_reading()
    if not is_read_only:
        log.set_up()
    options = flags.settings(
        namespace=namespace, acme=acme.settings, shims=shims.settings, deliveries=deliveries.settings
    )
    if is_read_only:
        return deliveries, options, log
    deliveries.reserve()
    choice = access.choose(server.kubeconfig, os.environ, Path.cwd())
    cluster_access = access.load(choice, server.context)
    options = replace(options, api_server_ca=cluster_access.ca_pem)
    target = _Target(choice, cluster_access)
    lazy.app.run(
        _work(
            click.get_current_context(),
            target,
            options,
            _settings(cluster),
            metrics,
            dashboard.options(options),
            log,
        )
    )
    daemon.leave()
    return None


async def _work(
    context: click.Context,
    target: _Target,
    options: lazy.app.ControllerOptions,
    cluster: lazy.app.ClusterSettings,
    metrics: metrics_flags.MetricsFlags,
    dashboard: lazy.app.ClusterDashboardOptions | None,
    log: daemon.LogFlags,
) -> None:
    stop = daemon.Stop()
    try:
        transport = access.connect(target.choice, target.cluster_access)
        running = await stop.unless_stopped(lazy.app.start_controllers(transport, options, cluster=cluster))
    except lazy.app.StartError as error:
        raise Failed(str(error)) from error
    if running is None:
        return

    async def use(fresh: _Settings) -> str:
        deliveries, options, log = fresh
        deliveries.reserve()
        await running.reload(running.read(options))
        log.set_up()
        return "read the flags and the files that they name again"

    stop.reload = lambda: daemon.reload(context, use)
    async with stop.ending(running, _log), AsyncExitStack() as stack:
        await _serve_metrics(running, metrics, log)
        if dashboard is not None:
            served = await _serve_dashboard(target, dashboard, log)
            stack.push_async_callback(served.close)
        reporting = asyncio.ensure_future(_report_leading(running, str(target), log))
        daemon.log_started(_log, server=target.cluster_access.server)
        stop.ready(f"controllers of {target.cluster_access.server}")
        try:
            await stop.wait(running)
        finally:
            reporting.cancel()
