"""`certwright controllers`."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import asdict
from pathlib import Path

import click

from certwright.cli import access, acme_flags, cluster_flags, daemon, lazy, shim_flags
from certwright.cli.errors import Failed
from certwright.cli.options import ServerOptions, server_options
from certwright.kube.client.kubeconfig import ClusterAccess
from certwright.kube.util.ids import random_suffix

_SOON_S = 2.0
"""How long to wait for the lease before a message."""


def _address(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, int] | None:
    if value in ("", "0"):
        return None
    host, _, port = value.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter("write HOST:PORT, e.g. 127.0.0.1:9402")
    # Without a host: all addresses, as in cert-manager's :9402.
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - only if the user asks for it


async def _serve_metrics(running: lazy.app.RunningControllers, address: tuple[str, int]) -> None:
    try:
        port = await running.serve_metrics(*address)
    except lazy.app.StartError as error:
        raise Failed(str(error)) from error
    click.echo(f"metrics are at http://{address[0]}:{port}/metrics")


def _settings(flags: cluster_flags.ClusterFlags) -> lazy.app.ClusterSettings:
    given = asdict(flags)
    terms = {name: given.pop(name) for name in ("lease_duration", "renew_deadline", "retry_period")}
    # Unless it has a name, each process has its own identity, also on one machine and after a restart.
    identity = given.pop("identity") or f"{socket.gethostname()}_{random_suffix(10)}"
    return lazy.app.ClusterSettings(
        identity=identity,
        terms=lazy.app.Terms(duration=terms.pop("lease_duration"), **terms),
        **given,
    )


async def _report_leading(running: lazy.app.RunningControllers, where: str) -> None:
    """Report when the controllers lead, and that they wait, if they do."""
    try:
        async with asyncio.timeout(_SOON_S):
            await running.wait_leading()
    except TimeoutError:
        others = f"{running.holder} is" if running.holder else "another replica may be"
        click.echo(f"waiting for the lease: {others} at work on {where}")
        await running.wait_leading()
    click.echo(f"certwright's controllers are at work on {where}")


@click.command(short_help="Run only the controllers, against a server elsewhere.")
@daemon.controller_options
@acme_flags.acme_options
@shim_flags.shim_options
@cluster_flags.cluster_options
@daemon.FEATURE_GATES
@click.option(
    "--namespace",
    metavar="NS",
    help="Watch one namespace only, and ignore ClusterIssuers; without it, watch all namespaces.",
)
@click.option(
    "--metrics-listen-address",
    "metrics_address",
    metavar="HOST:PORT",
    default="",
    callback=_address,
    help="Serve Prometheus metrics there, at /metrics over plain HTTP; without it, disabled.",
)
@daemon.log_options(level="info")
@server_options
def command(
    *,
    server: ServerOptions,
    flags: daemon.ControllerFlags,
    acme: acme_flags.AcmeFlags,
    shims: shim_flags.ShimFlags,
    cluster: cluster_flags.ClusterFlags,
    namespace: str | None,
    metrics_address: tuple[str, int] | None,
    log: daemon.LogFlags,
) -> None:
    """Run the controllers until Ctrl-C or SIGTERM, against the server that the kubeconfig names.

    That may be `certwright serve --controllers ''`, or a Kubernetes cluster with the definitions of
    `certwright crds`; in a pod it is the pod's own cluster. Of several replicas, one leads and the others
    wait. The flags have cert-manager's names.

    \b
    Examples:
      certwright controllers --kubeconfig certwright-data/kubeconfig
      certwright controllers --controllers '*,-issuers'
    """
    log.set_up()
    choice = access.choose(server.kubeconfig, os.environ, Path.cwd())
    found = access.load(choice, server.context)
    options = lazy.app.ControllerOptions(
        namespace=namespace,
        api_server_ca=found.ca_pem,
        acme=acme.settings,
        shims=shims.settings,
        **asdict(flags),
    )
    lazy.app.run(_work(choice, found, options, _settings(cluster), metrics_address))
    daemon.leave()


async def _work(
    choice: access.Choice,
    found: ClusterAccess,
    options: lazy.app.ControllerOptions,
    cluster: lazy.app.ClusterSettings,
    metrics_address: tuple[str, int] | None,
) -> None:
    stop = daemon.Stop()
    try:
        transport = access.connect(choice, found)
        running = await stop.unless_stopped(lazy.app.start_controllers(transport, options, cluster=cluster))
    except lazy.app.StartError as error:
        raise Failed(str(error)) from error
    if running is None:
        return
    try:
        if metrics_address is not None:
            await _serve_metrics(running, metrics_address)
        reporting = asyncio.ensure_future(_report_leading(running, f"{found.server} (kubeconfig {choice})"))
        try:
            await stop.wait_or(running.wait_failed())
        finally:
            reporting.cancel()
    finally:
        await daemon.close(running.close)
