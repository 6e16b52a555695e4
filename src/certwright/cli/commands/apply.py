"""`certwright apply`."""

from __future__ import annotations

from contextlib import aclosing

import click

from certwright.cli.access import session
from certwright.cli.applier import Applied, Applier, Refused, refuse_at, source_of
from certwright.cli.bulk import SendingOrder, Tally, each_in_order
from certwright.cli.errors import AlreadyReported, report, report_error, warning_source
from certwright.cli.options import ServerOptions, asynchronous, file_option, namespaced_server_options
from certwright.kube.api.manifests import Document, DocumentError, Manifests


@click.command(short_help="Create or change the objects that files describe.")
@file_option(required=True)
@click.option("--dry-run", is_flag=True, help="Let the server check everything and change nothing.")
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, manifests: Manifests, dry_run: bool) -> None:
    """Create or change the objects that files describe, and report each result.

    Fields that the file no longer contains are removed; fields that other clients have set stay. The
    annotation is the one of `kubectl apply`, so you can use both commands on the same objects.

    More than twenty objects are sent many at a time (Namespaces, CustomResourceDefinitions, roles and
    admission rules in their order), and a summary is printed at the end.

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
    """Apply every document, print the results, and return the applied ones and the number of failures.

    Many documents are applied at the same time, except those that others may depend on (`bulk.SendingOrder`).
    """
    applied: list[Applied] = []
    order, tally = SendingOrder(len(manifests.documents)), Tally(len(manifests.documents))
    results = each_in_order(
        manifests.documents,
        lambda document: _apply(applier, document),
        alone=lambda document: isinstance(document, Document) and order.alone(document.content),
    )
    async with aclosing(results):
        async for _, result in results:
            if isinstance(result, Applied):
                applied.append(result)
                report(f"{result}{applier.place(result)}{tail}")
            else:
                for sentence in result:
                    report_error(sentence)
            tally.add(result.verb if isinstance(result, Applied) else "failed")
    tally.summarize()
    if not manifests.documents:
        report_error(f"{', '.join(manifests.names)} contains no objects")
        return [], 1
    return applied, len(manifests.documents) - len(applied)


async def _apply(applier: Applier, document: Document | DocumentError) -> Applied | list[str]:
    """What was applied, or the sentences that say why not."""
    if isinstance(document, DocumentError):
        return [str(document)]
    token = warning_source.set(source_of(document))
    try:
        return await applier.apply(document)
    except Refused as refusal:
        return refuse_at(document, refusal)
    finally:
        warning_source.reset(token)
