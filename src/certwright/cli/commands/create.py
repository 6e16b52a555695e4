"""`certwright create`: objects from options, without YAML."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from certwright.cli.access import Session, session
from certwright.cli.diagnosis import OUR_GROUP, SETS_GROUP
from certwright.cli.errors import AlreadyReported, Failed, report_error, report_warning
from certwright.cli.flags import argument, flag, flag_options
from certwright.cli.format import echo, print_content, reference
from certwright.cli.options import Folder, ServerOptions, Words, asynchronous, namespaced_server_options
from certwright.cli.related import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS, get_or_none
from certwright.kube.api import errors
from certwright.kube.util.encoding import is_ip_address

_API_VERSION = f"{OUR_GROUP}/v1"
_GROUPS = {
    "Issuer": OUR_GROUP,
    "ClusterIssuer": OUR_GROUP,
    "IssuerSet": SETS_GROUP,
    "ClusterIssuerSet": SETS_GROUP,
}
ISSUER_KINDS = tuple(_GROUPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCertificate:
    """The options of `create certificate`. None: not given. Durations are Go's, e.g. `2160h`."""

    name: str = argument()
    dns: tuple[str, ...] = flag("--dns", "A DNS name; may be repeated.", metavar="NAME", multiple=True)
    ip: tuple[str, ...] = flag("--ip", "An IP address; may be repeated.", metavar="ADDRESS", multiple=True)
    uri: tuple[str, ...] = flag(
        "--uri", "A URI, e.g. a SPIFFE ID; may be repeated.", metavar="URI", multiple=True
    )
    email: tuple[str, ...] = flag(
        "--email", "An e-mail address; may be repeated.", metavar="ADDRESS", multiple=True
    )
    common_name: str | None = flag(
        "--common-name", "The common name of the subject; without it none.", metavar="TEXT"
    )
    issuer: str = flag("--issuer", "The issuer that signs.", metavar="NAME", required=True)
    kind: str | None = flag(
        "--kind",
        "Issuer, ClusterIssuer, IssuerSet or ClusterIssuerSet; without it Issuer, or ClusterIssuer where "
        "only that exists.",
        metavar="KIND",
        type=Words(ISSUER_KINDS),
    )
    secret: str | None = flag(
        "--secret", "The Secret for key and certificate; without it NAME-tls.", metavar="NAME"
    )
    duration: str | None = flag(
        "--duration", "How long it is valid, e.g. 2160h; without it 90 days.", metavar="TIME"
    )
    renew_before: str | None = flag(
        "--renew-before", "How long before its end it is renewed; without it a third.", metavar="TIME"
    )
    usage: tuple[str, ...] = flag(
        "--usage",
        "What the key may be used for, e.g. `client auth`; may be repeated; without it digital signature and "
        "key encipherment.",
        metavar="USAGE",
        multiple=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCa:
    """The options of `create ca`. None: not given."""

    name: str = argument()
    common_name: str | None = flag(
        "--common-name", "The common name of the CA; without it NAME.", metavar="TEXT"
    )
    duration: str = flag("--duration", "How long the CA is valid.", metavar="TIME", default="87600h")
    secret: str | None = flag("--secret", "The Secret for the CA's key; without it NAME-ca.", metavar="NAME")
    cluster: bool = flag(
        "--cluster",
        "Create a ClusterIssuer, for all namespaces; -n then names the server's "
        "--cluster-resource-namespace, without it kube-system.",
        is_flag=True,
    )


def new_certificate(requested: NewCertificate) -> Json:
    """The Certificate. Raises `click.UsageError` for names that belong to another option, or for none."""
    _check_names(requested)
    kind = requested.kind or "Issuer"
    optional = {
        "commonName": requested.common_name,
        "dnsNames": list(requested.dns),
        "ipAddresses": list(requested.ip),
        "uris": list(requested.uri),
        "emailAddresses": list(requested.email),
        "duration": requested.duration,
        "renewBefore": requested.renew_before,
        "usages": list(requested.usage),
    }
    return _object(
        "Certificate",
        requested.name,
        {
            "secretName": requested.secret or f"{requested.name}-tls",
            **{key: value for key, value in optional.items() if value},
            "issuerRef": {"group": _GROUPS[kind], "kind": kind, "name": requested.issuer},
        },
    )


def new_ca(requested: NewCa) -> list[Json]:
    """The objects of a private CA, in the order in which each depends on the one before."""
    kind = "ClusterIssuer" if requested.cluster else "Issuer"
    secret = requested.secret or f"{requested.name}-ca"
    root = f"{requested.name}-selfsigned"
    return [
        _object(kind, root, {"selfSigned": {}}),
        _object(
            "Certificate",
            f"{requested.name}-ca",
            {
                "isCA": True,
                "commonName": requested.common_name or requested.name,
                "secretName": secret,
                "duration": requested.duration,
                # Clients that have installed the CA verify what it signs after its renewal, too.
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"},
                "issuerRef": {"group": OUR_GROUP, "kind": kind, "name": root},
            },
        ),
        _object(kind, requested.name, {"ca": {"secretName": secret}}),
    ]


def _object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _check_names(requested: NewCertificate) -> None:
    if not (requested.dns or requested.ip or requested.uri or requested.email or requested.common_name):
        raise click.UsageError("a certificate needs a name: --dns, --ip, --uri, --email or --common-name")
    for name in requested.dns:
        if is_ip_address(name):
            raise click.UsageError(f"--dns {name}: is an IP address; use --ip {name}")
    for address in requested.ip:
        if not is_ip_address(address):
            raise click.UsageError(f"--ip {address}: is not an IP address; use --dns for DNS names")


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


@command.command("certificate", short_help="Create a certificate for names.")
@flag_options("requested", NewCertificate)
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
    content = new_certificate(requested)
    if dry_run:
        _print([_placed(content, server.namespace)], output or "yaml")
        return
    async with session(server) as here:
        if requested.kind is None:
            content["spec"]["issuerRef"] |= await _existing_kind(here, requested.issuer)
        await _create(here, [content], output)


@command.command("ca", short_help="Create a private CA and the issuer that signs with it.")
@flag_options("requested", NewCa)
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
    contents = new_ca(requested)
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
