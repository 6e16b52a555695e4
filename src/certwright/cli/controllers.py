"""`certwright controllers`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from certwright.cli import acme_flags, daemon
from certwright.cli.errors import Failed
from certwright.cli.options import ServerOptions, server_options
from certwright.kit import logs

if TYPE_CHECKING:
    from certwright import app


def _address(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, int] | None:
    if value in ("", "0"):
        return None
    host, _, port = value.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter("write HOST:PORT, for instance 127.0.0.1:9402")
    # Without a host: all addresses, as cert-manager's :9402 means.
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - only where the user asks for it


async def _serve_metrics(running: app.RunningControllers, address: tuple[str, int]) -> None:
    from certwright.app import StartError  # see `command`

    try:
        port = await running.serve_metrics(*address)
    except StartError as error:
        raise Failed(str(error)) from error
    click.echo(f"metrics are at http://{address[0]}:{port}/metrics")


@click.command(short_help="Run only the controllers, against a server elsewhere.")
@daemon.controller_options
@acme_flags.acme_options
@click.option(
    "--namespace",
    metavar="NS",
    help="Look at one namespace only; without it at all. ClusterIssuers are then left alone.",
)
@click.option(
    "--metrics-listen-address",
    "metrics_address",
    metavar="HOST:PORT",
    default="",
    callback=_address,
    help="Serve Prometheus metrics there, at /metrics over plain HTTP; without it not at all.",
)
@daemon.log_options(level="info")
@server_options
def command(
    *,
    server: ServerOptions,
    flags: daemon.ControllerFlags,
    acme: acme_flags.AcmeFlags,
    namespace: str | None,
    metrics_address: tuple[str, int] | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the controllers until Ctrl-C or SIGTERM, against the server that the kubeconfig names.

    That may be `certwright serve --controllers ''`, or a Kubernetes cluster with the definitions of
    `certwright crds`. The flags are named as cert-manager's.

    \b
    Examples:
      certwright controllers --kubeconfig certwright-data/kubeconfig
      certwright controllers --controllers '*,-issuers'
    """
    logs.set_up(level=log_level, form=log_format)
    # The controllers and all their libraries: not needed for --help.
    from certwright import app
    from certwright.cli import access

    choice = access.choose(server.kubeconfig, os.environ, Path.cwd())
    cluster = access.load(choice, server.context)
    options = app.ControllerOptions(
        namespace=namespace, acme=app.AcmeSettings(**asdict(acme)), **asdict(flags)
    )

    async def work() -> None:
        stop = daemon.Stop()
        try:
            running = await app.start_controllers(access.connect(choice, cluster), options)
        except app.StartError as error:
            raise Failed(str(error)) from error
        try:
            if metrics_address is not None:
                await _serve_metrics(running, metrics_address)
            click.echo(f"certwright's controllers are at work on {cluster.server} (kubeconfig {choice})")
            await stop.wait_or(running.wait_failed())
        finally:
            await daemon.close(running.close)

    app.run(work())
    daemon.leave()
