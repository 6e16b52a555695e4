"""`certwright controllers`."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import click

from certwright.cli import daemon
from certwright.cli.errors import Failed
from certwright.cli.options import ServerOptions, server_options
from certwright.kit import logs
from certwright.kit.durations import format_duration


@click.command(short_help="Run only the controllers, against a server elsewhere.")
@click.option(
    "--controllers",
    metavar="LIST",
    default="*",
    show_default=True,
    help="Which controllers run: `*` for all, names, `-name` to leave one out.",
)
@click.option(
    "--namespace",
    metavar="NS",
    help="Look at one namespace only; without it at all. ClusterIssuers are then left alone.",
)
@click.option(
    "--cluster-resource-namespace",
    metavar="NS",
    default="kube-system",
    show_default=True,
    help="Where the Secrets of ClusterIssuers are.",
)
@click.option(
    "--certificate-request-minimum-backoff-duration",
    "backoff_minimum",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=daemon.parse_duration_option,
    help="How long to wait after the first failed request; doubled after each further one.",
)
@click.option(
    "--certificate-request-maximum-backoff-duration",
    "backoff_maximum",
    metavar="DURATION",
    default="32h",
    show_default=True,
    callback=daemon.parse_duration_option,
    help="The longest wait between failed requests.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to log on standard error.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines for people, or for machines.",
)
@server_options
def command(
    *,
    server: ServerOptions,
    controllers: str,
    namespace: str | None,
    cluster_resource_namespace: str,
    backoff_minimum: timedelta,
    backoff_maximum: timedelta,
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
    if backoff_minimum > backoff_maximum:
        raise click.UsageError(
            f"the minimum backoff ({format_duration(backoff_minimum)}) is longer than "
            f"the maximum ({format_duration(backoff_maximum)})"
        )
    logs.set_up(level=log_level, form=log_format)
    # The controllers and all their libraries: not needed for --help.
    from certwright import app
    from certwright.cli import access

    choice = access.choose(server.kubeconfig, os.environ, Path.cwd())
    cluster = access.load(choice, server.context)
    options = app.ControllerOptions(
        controllers=controllers,
        namespace=namespace,
        cluster_resource_namespace=cluster_resource_namespace,
        backoff_minimum=backoff_minimum,
        backoff_maximum=backoff_maximum,
    )

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
