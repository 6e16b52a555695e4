"""`certwright check`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from certwright.cli import acme_flags, lazy
from certwright.cli.access import USER_AGENT, session
from certwright.cli.commands import check_cluster
from certwright.cli.errors import AlreadyReported, Failed, report_error
from certwright.cli.options import (
    Folder,
    ServerOptions,
    asynchronous,
    namespaced_server_options,
    timeout_option,
)
from certwright.cli.output import echo

_WIDTH = 9


@click.group(cls=Folder, short_help="Check a solver, an API server, or a switch from cert-manager.")
def command() -> None:
    """Check a part of the configuration end to end.

    \b
    Example:
      certwright check solver letsencrypt www.example.com
      certwright check switch --kubeconfig cluster.yaml
    """


@command.command("solver", short_help="Add and remove a challenge response for a name.")
@click.argument("issuer")
@click.argument("name", metavar="NAME")
@click.option(
    "--kind",
    type=click.Choice(("Issuer", "ClusterIssuer"), case_sensitive=False),
    default="Issuer",
    show_default=True,
    help="The kind of ISSUER.",
)
@click.option(
    "--solver",
    "number",
    metavar="N",
    type=click.IntRange(min=0),
    help="Check spec.acme.solvers[N]; without it the solver that NAME gets.",
)
@click.option(
    "--cluster-resource-namespace",
    metavar="NS",
    default="kube-system",
    show_default=True,
    help="Namespace of the Secrets of ClusterIssuers.",
)
@timeout_option(default="2m", text="Fail if the record or page is not seen in this time")
@acme_flags.solver_options
@namespaced_server_options
@asynchronous
async def solver(
    *,
    server: ServerOptions,
    solvers: acme_flags.SolverFlags,
    issuer: str,
    name: str,
    kind: str,
    number: int | None,
    cluster_resource_namespace: str,
    timeout_s: float,
) -> None:
    """Add a challenge response for NAME as ISSUER would, wait until it is seen, and remove it.

    The check runs in this process, with your rights to read the issuer and its Secrets, and no CA takes part.
    It follows the flags of `certwright serve` and the environment variables of the DNS providers: programs
    (exec), web roots, http:// and credentials of this machine must be allowed here as well. HTTP-01 and
    TLS-ALPN-01 need a listener of this process where the CA would connect to.

    Exit status 0: the solver works. 1: it does not; the error has the provider's own reason.

    \b
    Examples:
      certwright check solver letsencrypt www.example.com --kind ClusterIssuer
      certwright check solver internal '*.shop.example.com' -n shop
      certwright check solver web www.example.com --http01-listen :80
    """

    def report(step: str, result: str) -> None:
        echo(f"{step:<{_WIDTH}}{result}")

    is_cluster = kind.lower() == "clusterissuer"
    async with session(server) as here:
        requested = lazy.solver_check.SolverCheck(
            issuer=issuer,
            namespace="" if is_cluster else here.namespace,
            secrets_in=cluster_resource_namespace if is_cluster else here.namespace,
            name=name.rstrip(".").lower(),
            number=number,
            patience=timedelta(seconds=timeout_s),
        )
        try:
            await lazy.solver_check.check(
                requested, here.client, solvers.settings, user_agent=USER_AGENT, report=report
            )
        except (lazy.solver_check.SolverCheckFailed, lazy.app.StartError) as error:
            raise Failed(str(error)) from error


@command.command(short_help="Send a test message to the destinations of --notifications.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@asynchronous
async def notifications(*, file: Path) -> None:
    """Check FILE, as `certwright serve --notifications FILE` does, and send a test message to each
    destination.

    Exit status 0: all were sent. 1: one was not; the error has the server's own reason.

    \b
    Example:
      certwright check notifications /etc/certwright/notifications.yaml
    """
    failed = False
    try:
        async for name, problem in lazy.app.send_test(file):
            if problem:
                failed = True
                report_error(f"{name}: {problem}")
            else:
                echo(f"{name}: sent")
    except lazy.app.StartError as error:
        raise Failed(str(error).removeprefix("--notifications: ")) from error
    if failed:
        raise AlreadyReported


command.add_command(check_cluster.api)
command.add_command(check_cluster.switch)
