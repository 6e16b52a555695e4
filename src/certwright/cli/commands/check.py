"""`certwright check`: a solver, an API server, or a switch from cert-manager."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import click

from certwright.cli import acme_flags, completion, lazy
from certwright.cli.access import USER_AGENT, session
from certwright.cli.errors import AlreadyReported, Failed, report, report_error
from certwright.cli.flags import flag_options
from certwright.cli.format import echo, print_content
from certwright.cli.options import (
    Folder,
    ServerOptions,
    asynchronous,
    cluster_namespace_option,
    json_option,
    namespaced_server_options,
    server_options,
    timeout_option,
)
from certwright.cli.switch import findings, read
from certwright.kube.api.errors import ApiError, Invalid, NotAcceptable, NotFound
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.rest import Client
from certwright.resources.certificate import Certificate, CertificateSpec
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES

_NAME = "certwright-check"


class NotServed(Exception):
    """The API is not ready; the text says why, and what to do."""


async def check_api(client: Client, namespace: str) -> None:
    """Create two Certificates as dry runs: a good one, which must be accepted, and one without a name, which
    must be rejected. Raises `NotServed`, and `Unreachable`."""
    try:
        await client.create(CERTIFICATES, _certificate(namespace, ("example.com",)), dry_run=True)
    except NotFound as error:
        raise NotServed(
            f"the server does not serve {CERTIFICATES.resource}, or has no namespace {namespace}: {error}; "
            "apply the definitions of `certwright crds`, or name another namespace"
        ) from error
    except ApiError as error:
        raise NotServed(f"a valid Certificate is rejected: {error}") from error
    try:
        await client.create(CERTIFICATES, _certificate(namespace, ()), dry_run=True)
    except (Invalid, NotAcceptable):
        return
    except ApiError as error:
        raise NotServed(f"an invalid Certificate is rejected for another reason: {error}") from error
    raise NotServed(
        "the server accepts a Certificate without any name; apply the definitions of `certwright crds`, "
        "whose rules reject it"
    )


def _certificate(namespace: str, names: tuple[str, ...]) -> Certificate:
    issuer = IssuerReference(name=_NAME)
    spec = CertificateSpec(dns_names=names, secret_name=_NAME, issuer_ref=issuer)
    meta = ObjectMeta(generate_name="certwright-check-", namespace=namespace)
    return Certificate(metadata=meta, spec=spec)


_EVERY_S = 1.0
_MARKS = {"works": "works", "changes": "change", "unread": "UNREAD", "stops": "STOPS"}


_WIDTH = 9


@click.group(cls=Folder, short_help="Check a solver, an API server, or a switch from cert-manager.")
def command() -> None:
    """Check a part of the configuration end to end.

    \b
    Example:
      certwright check solver letsencrypt www.example.com
      certwright check switch --kubeconfig cluster.yaml
    """


@command.command("api", short_help="Check that the server serves and checks the kinds.")
@timeout_option(default="0s", text="Try again for this long")
@json_option()
@namespaced_server_options
@asynchronous
async def api(*, server: ServerOptions, timeout_s: float, output: str | None) -> None:
    """Check that the API server serves cert-manager's kinds and rejects invalid objects, by two dry runs.

    Exit status 0: it does. 1: it does not, with the reason.

    \b
    Examples:
      certwright check api
      certwright check api --timeout 2m --kubeconfig cluster.yaml
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    message = ""
    try:
        async with session(server) as here:
            while True:
                try:
                    await check_api(here.client, here.namespace)
                    break
                except NotServed as error:
                    if loop.time() >= until:
                        raise Failed(str(error)) from error
                await asyncio.sleep(_EVERY_S)
    except Failed as error:
        if output is None:
            raise
        message = error.format_message()
    if output is None:
        echo("the API is ready")
        return
    print_content({"ready": not message, "message": message}, output)
    if message:
        raise AlreadyReported


@command.command("switch", short_help="What works, changes or stops if certwright takes over a cluster.")
@json_option()
@server_options
@asynchronous
async def switch(*, server: ServerOptions, output: str | None) -> None:
    """Read a cluster that runs cert-manager, and list what will work, change or stop with certwright.

    Nothing is written. Secrets are not read. docs/takeover.md describes how to switch, and back.

    Exit status 0: nothing stops. 1: something does, or could not be read.

    \b
    Example:
      certwright check switch --kubeconfig cluster.yaml
      certwright check switch --kubeconfig cluster.yaml -o json
    """
    async with session(server) as here:
        results = findings(await read(here.client))
    if output is not None:
        print_content([finding._asdict() for finding in results], output)
    else:
        for finding in results:
            echo(f"{_MARKS[finding.verdict]:<8}{finding.about}: {finding.text}")
        counts = Counter(finding.verdict for finding in results)
        words = (f"{counts[verdict]} {verdict}" for verdict in ("stops", "unread", "changes", "works"))
        report(", ".join(words), err=True)
    if any(finding.verdict in ("stops", "unread") for finding in results):
        raise AlreadyReported


@command.command("solver", short_help="Add and remove a challenge response for a name.")
@click.argument("issuer", shell_complete=completion.names_of("issuers", "clusterissuers"))
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
@cluster_namespace_option()
@timeout_option(default="2m", text="Fail if the record or page is not seen in this time")
@json_option()
@flag_options("solvers", acme_flags.SolverFlags)
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
    output: str | None,
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

    steps: list[dict[str, str]] = []

    def report(step: str, result: str) -> None:
        if output is None:
            echo(f"{step:<{_WIDTH}}{result}")
        steps.append({"step": step, "result": result})

    message = ""
    is_cluster = kind.lower() == "clusterissuer"
    async with session(server) as here:
        requested = lazy.acme_commands.SolverCheck(
            issuer=issuer,
            namespace="" if is_cluster else here.namespace,
            secrets_in=cluster_resource_namespace if is_cluster else here.namespace,
            name=name.rstrip(".").lower(),
            number=number,
            patience=timedelta(seconds=timeout_s),
        )
        try:
            await lazy.acme_commands.check(
                requested, here.client, solvers.settings, user_agent=USER_AGENT, report=report
            )
        except (lazy.acme_commands.SolverCheckFailed, lazy.app.StartError) as error:
            if output is None:
                raise Failed(str(error)) from error
            message = str(error)
    if output is not None:
        print_content({"works": not message, "message": message, "steps": steps}, output)
    if message:
        raise AlreadyReported


@command.command(short_help="Send a test message to the destinations of --notifications.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@json_option()
@asynchronous
async def notifications(*, file: Path, output: str | None) -> None:
    """Check FILE, as `certwright serve --notifications FILE` does, and send a test message to each
    destination.

    Exit status 0: all were sent. 1: one was not; the error has the server's own reason.

    \b
    Example:
      certwright check notifications /etc/certwright/notifications.yaml
    """
    failed = False
    results = []
    try:
        async for name, problem in lazy.app.send_test(file):
            failed = failed or bool(problem)
            results.append({"name": name, "sent": not problem, "message": problem or ""})
            if output is not None:
                continue
            if problem:
                report_error(f"{name}: {problem}")
            else:
                echo(f"{name}: sent")
    except lazy.app.StartError as error:
        raise Failed(str(error).removeprefix("--notifications: ")) from error
    if output is not None:
        print_content(results, output)
    if failed:
        raise AlreadyReported
