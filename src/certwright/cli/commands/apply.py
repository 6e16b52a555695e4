"""`certwright apply`."""

from __future__ import annotations

import click

from certwright.cli.access import session
from certwright.cli.applier import Applied, Applier, Refused, refuse_at
from certwright.cli.errors import AlreadyReported, report_error
from certwright.cli.options import ServerOptions, asynchronous, file_option, namespaced_server_options
from certwright.cli.sources import Manifests
from certwright.kube.api.manifests import DocumentError


@click.command(short_help="Create or change the objects that files describe.")
@file_option(required=True)
@click.option("--dry-run", is_flag=True, help="Let the server check everything and change nothing.")
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, manifests: Manifests, dry_run: bool) -> None:
    """Create or change the objects that files describe, and report each result.

    Fields that the file no longer contains are removed; fields that other clients have set stay. The
    annotation is the one of `kubectl apply`, so you can use both commands on the same objects.

    A document that cannot be applied is reported with its file, line, field and fix; all others are applied,
    and the exit status is 1.

    \b
    Examples:
      certwright apply -f examples/quickstart.yaml
      certwright apply -f manifests/ -n shop
      certwright get cert web -o yaml | certwright apply -f - --dry-run
    """
    async with session(server) as here:
        applier = Applier(
            here.client,
            default_namespace=here.namespace,
            only_namespace=server.namespace,
            dry_run=dry_run,
        )
        _, failures = await apply_all(applier, manifests, tail=" (dry run)" if dry_run else "")
    if failures:
        raise AlreadyReported


async def apply_all(applier: Applier, manifests: Manifests, *, tail: str = "") -> tuple[list[Applied], int]:
    """Apply every document, print the results, and return the applied ones and the number of failures."""
    applied: list[Applied] = []
    failures = 0
    for document in manifests.documents:
        if isinstance(document, DocumentError):
            report_error(str(document))
            failures += 1
            continue
        try:
            applied.append(await applier.apply(document))
            click.echo(f"{applied[-1]}{applier.place(applied[-1])}{tail}")
        except Refused as refusal:
            failures += 1
            for sentence in refuse_at(document, refusal):
                report_error(sentence)
    if not manifests.documents:
        report_error(f"{', '.join(manifests.names)} contains no objects")
        failures = 1
    return applied, failures
