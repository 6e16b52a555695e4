"""`certwright create`: objects from options, without YAML."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import replace

from certwright.cli import new_objects
from certwright.cli.access import Session, session
from certwright.cli.errors import AlreadyReported, Failed, report_error, report_warning
from certwright.cli.format import reference
from certwright.cli.new_objects import NewCa, NewCertificate
from certwright.cli.options import (
    Folder,
    ServerOptions,
    Words,
    asynchronous,
    gathered,
    namespaced_server_options,
)
from certwright.cli.output import echo, print_content
from certwright.cli.related import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS, get_or_none
from certwright.kube.api import errors

Json = dict[str, Any]
_KINDS = {kind.kind: kind for kind in (CERTIFICATES, ISSUERS, CLUSTER_ISSUERS)}
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Print the objects instead of creating them; needs no server."
)
_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    help="Print the objects as YAML or JSON; with --dry-run YAML unless given.",
)


@click.group(cls=Folder, short_help="Create a certificate or a CA from options, without YAML.")
def command() -> None:
    """Create objects from options, without YAML.

    \b
    Examples:
      certwright create ca internal
      certwright create certificate web --dns web.example.test --issuer internal
    """


_CERTIFICATE_OPTIONS = (
    click.argument("name"),
    click.option("--dns", metavar="NAME", multiple=True, help="A DNS name; may be repeated."),
    click.option("--ip", metavar="ADDRESS", multiple=True, help="An IP address; may be repeated."),
    click.option("--uri", metavar="URI", multiple=True, help="A URI, e.g. a SPIFFE ID; may be repeated."),
    click.option("--email", metavar="ADDRESS", multiple=True, help="An e-mail address; may be repeated."),
    click.option("--common-name", metavar="TEXT", help="The common name of the subject; without it none."),
    click.option("--issuer", metavar="NAME", required=True, help="The issuer that signs."),
    click.option(
        "--kind",
        metavar="KIND",
        help="Issuer, ClusterIssuer, IssuerSet or ClusterIssuerSet; without it Issuer, or ClusterIssuer "
        "where only that exists.",
        type=Words(new_objects.ISSUER_KINDS),
    ),
    click.option("--secret", metavar="NAME", help="The Secret for key and certificate; without it NAME-tls."),
    click.option("--duration", metavar="TIME", help="How long it is valid, e.g. 2160h; without it 90 days."),
    click.option(
        "--renew-before", metavar="TIME", help="How long before its end it is renewed; without it a third."
    ),
    click.option(
        "--usage",
        metavar="USAGE",
        multiple=True,
        help="What the key may be used for, e.g. `client auth`; may be repeated; without it digital "
        "signature and key encipherment.",
    ),
)


@command.command("certificate", short_help="Create a certificate for names.")
@gathered("requested", NewCertificate, _CERTIFICATE_OPTIONS)
@_DRY_RUN
@_OUTPUT
@namespaced_server_options
@asynchronous
async def certificate(
    *, server: ServerOptions, requested: NewCertificate, dry_run: bool, output: str | None
) -> None:
    """Create a Certificate: the controllers issue it, store it in a Secret and renew it.

    An existing object is never changed; use `certwright edit` or `certwright apply` for that.

    \b
    Examples:
      certwright create certificate web --dns example.test --dns www.example.test --issuer internal
      certwright create certificate db --ip 10.0.0.5 --issuer ca --kind ClusterIssuer --secret db
      certwright create certificate web --dns example.test --issuer internal --dry-run > web.yaml
    """
    content = new_objects.certificate(requested)
    if dry_run:
        _print([_placed(content, server.namespace)], output or "yaml")
        return
    async with session(server) as here:
        if requested.kind is None:
            content["spec"]["issuerRef"] |= await _existing_kind(here, requested.issuer)
        await _create(here, [content], output)


_CA_OPTIONS = (
    click.argument("name"),
    click.option("--common-name", metavar="TEXT", help="The common name of the CA; without it NAME."),
    click.option(
        "--duration", metavar="TIME", default="87600h", show_default=True, help="How long the CA is valid."
    ),
    click.option("--secret", metavar="NAME", help="The Secret for the CA's key; without it NAME-ca."),
    click.option(
        "--cluster",
        is_flag=True,
        help="Create a ClusterIssuer, for all namespaces; -n then names the server's "
        "--cluster-resource-namespace, without it kube-system.",
    ),
)


@command.command("ca", short_help="Create a private CA and the issuer that signs with it.")
@gathered("requested", NewCa, _CA_OPTIONS)
@_DRY_RUN
@_OUTPUT
@namespaced_server_options
@asynchronous
async def ca(*, server: ServerOptions, requested: NewCa, dry_run: bool, output: str | None) -> None:
    """Create a private CA: a self-signed issuer, the CA's certificate, and the issuer NAME, which signs.

    \b
    Examples:
      certwright create ca internal
      certwright create ca internal --cluster
      certwright create ca internal --common-name "Example Ltd. Internal CA" --dry-run -o yaml
    """
    contents = new_objects.ca(requested)
    if requested.cluster and server.namespace is None:
        # Where a ClusterIssuer looks for its Secret.
        server = replace(server, namespace="kube-system")
    if dry_run:
        _print([_placed(content, server.namespace) for content in contents], output or "yaml")
        return
    async with session(server) as here:
        await _create(here, contents, output)


async def _existing_kind(here: Session, issuer: str) -> Json:
    """The kind of the issuer, where no Issuer but a ClusterIssuer of that name exists."""
    try:
        if await get_or_none(here.client, ISSUERS, issuer, here.namespace) is not None:
            return {}
        if await get_or_none(here.client, CLUSTER_ISSUERS, issuer) is not None:
            return {"kind": "ClusterIssuer"}
    except errors.Forbidden:
        return {}
    report_warning(f"issuer {issuer} does not exist in namespace {here.namespace}; issuance waits for it")
    return {}


def _placed(content: Json, namespace: str | None) -> Json:
    """The object with its namespace, if it has one."""
    if namespace is None or not _KINDS[content["kind"]].namespaced:
        return content
    return {**content, "metadata": {**content["metadata"], "namespace": namespace}}


async def _create(here: Session, contents: list[Json], output: str | None) -> None:
    """Create the objects in order. One that exists is reported, and the others are still created; if the
    server refuses another one, none is."""
    if len(contents) > 1:
        for content in contents:
            await _create_object(here, content, dry_run=True)
    created = []
    for content in contents:
        what = reference(_KINDS[content["kind"]], content["metadata"]["name"])
        made = await _create_object(here, content, dry_run=False)
        if made is None:
            report_error(f"{what} already exists; `certwright apply` changes objects")
            continue
        created.append(made)
        if output is None:
            echo(f"{what} created")
    if output is not None and created:
        _print(created, output)
    if len(created) < len(contents):
        raise AlreadyReported


async def _create_object(here: Session, content: Json, *, dry_run: bool) -> Json | None:
    """The object as created; None if it exists. Raises `Failed`."""
    kind = _KINDS[content["kind"]]
    placed = _placed(content, here.namespace)
    try:
        return await here.client.create(kind, placed, strict=True, dry_run=dry_run)
    except errors.AlreadyExists:
        return None
    except errors.ApiError as error:
        raise Failed(f"{reference(kind, content['metadata']['name'])}: {error}") from error


def _print(contents: list[Json], form: str) -> None:
    """One object by itself; several as YAML documents, or as a List in JSON."""
    if form == "json":
        several = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": contents}
        print_content(contents[0] if len(contents) == 1 else several, form)
        return
    for i, content in enumerate(contents):
        echo("---\n" if i else "", nl=False)
        print_content(content, form)
