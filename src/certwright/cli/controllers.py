"""`certwright controllers`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import click

from certwright.cli import daemon
from certwright.cli.errors import Failed
from certwright.cli.options import ServerOptions, server_options
from certwright.kit import logs


@click.command(short_help="Run only the controllers, against a server elsewhere.")
@daemon.controller_options
@click.option(
    "--namespace",
    metavar="NS",
    help="Look at one namespace only; without it at all. ClusterIssuers are then left alone.",
)
@daemon.log_options(level="info")
@server_options
def command(
    *,
    server: ServerOptions,
    flags: daemon.ControllerFlags,
    namespace: str | None,
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
    options = app.ControllerOptions(namespace=namespace, **asdict(flags))

    async def work() -> None:
        stop = daemon.Stop()
        try:
            running = await app.start_controllers(access.connect(choice, cluster), options)
        except app.StartError as error:
            raise Failed(str(error)) from error
        try:
            click.echo(f"certwright's controllers are at work on {cluster.server} (kubeconfig {choice})")
            await stop.wait_or(running.wait_failed())
        finally:
            await daemon.close(running.close)

    app.run(work())
    daemon.leave()
