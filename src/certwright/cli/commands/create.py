"""`certwright create`: objects from options, without YAML."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import click

from certwright.cli import completion, new_issuers
from certwright.cli.access import Session, session
from certwright.cli.commands import wait as waiting
from certwright.cli.errors import AlreadyReported, Failed, report_error, report_warning
from certwright.cli.flags import argument, flag, flag_options, seconds
from certwright.cli.format import echo, print_content, reference
from certwright.cli.options import Folder, ServerOptions, Words, namespaced_server_options
from certwright.diagnosis import related
from certwright.diagnosis.certificates import OUR_GROUP, SETS_GROUP, diagnose
from certwright.diagnosis.related import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS, SECRETS, get_or_none
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
    issuer: str = flag(
        "--issuer",
        "The issuer that signs.",
        metavar="NAME",
        required=True,
        shell_complete=completion.names_of("issuers", "clusterissuers"),
    )
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
    if not (requested.dns or requested.ip or requested.uri or requested.email or requested.common_name):
        raise click.UsageError("a certificate needs a name: --dns, --ip, --uri, --email or --common-name")
    for name in requested.dns:
        if is_ip_address(name):
            raise click.UsageError(f"--dns {name}: is an IP address; use --ip {name}")
    for address in requested.ip:
        if not is_ip_address(address):
            raise click.UsageError(f"--ip {address}: is not an IP address; use --dns for DNS names")
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
                # Renewals keep the key, so clients that have installed the CA verify its later certificates.
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"},
                "issuerRef": {"group": OUR_GROUP, "kind": kind, "name": root},
            },
        ),
        _object(kind, requested.name, {"ca": {"secretName": secret}}),
    ]


def _object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


Json = dict[str, Any]
_KINDS = {kind.kind: kind for kind in (CERTIFICATES, ISSUERS, CLUSTER_ISSUERS, SECRETS)}
# Where a ClusterIssuer looks for its Secrets, unless --cluster-resource-namespace names another namespace.
_CLUSTER_NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    """What is done with the objects. `output` None: not given."""

    wait: bool = flag("--wait", "Wait until it is ready, with progress; status 1 if it is not.", is_flag=True)
    timeout_s: float = seconds("--timeout", "How long --wait waits; e.g. 30, 30s or 5m.", default="2m")
    dry_run: bool = flag(
        "--dry-run", "Print the objects instead of creating them; needs no server.", is_flag=True
    )
    output: str | None = flag(
        "-o, --output",
        "Print the objects as YAML or JSON; with --dry-run YAML unless given.",
        type=click.Choice(["yaml", "json"]),
    )


@click.group(cls=Folder, short_help="Create a certificate, a CA or an issuer from options, without YAML.")
def command() -> None:
    """Create objects from options, without YAML.

    \b
    Examples:
      certwright create ca internal
      certwright create issuer letsencrypt --email you@example.org --webroot /var/www/html
      certwright create certificate web --dns web.example.test --issuer internal
    """


@command.command("certificate", short_help="Create a certificate for names.")
@flag_options("requested", NewCertificate)
@flag_options("printing", Printing)
@namespaced_server_options
def certificate(*, server: ServerOptions, requested: NewCertificate, printing: Printing) -> None:
    """Create a Certificate: the controllers issue it, store it in a Secret and renew it.

    An existing object is never changed; use `certwright edit` or `certwright apply` for that. With --wait the
    command ends when the certificate is ready, and says until when it is valid.

    \b
    Examples:
      certwright create certificate web --dns example.test --dns www.example.test --issuer internal
      certwright create certificate web --dns www.example.org --issuer letsencrypt --wait
      certwright create certificate db --ip 10.0.0.5 --issuer ca --kind ClusterIssuer --secret db
      certwright create certificate web --dns example.test --issuer internal --dry-run > web.yaml
    """
    content = new_certificate(requested)

    async def create() -> None:
        async with session(server) as here:
            if requested.kind is None:
                content["spec"]["issuerRef"] |= await _existing_kind(here, requested.issuer)
            await _create(here, [content], printing.output)

    _do(create(), [content], server, printing)
    if printing.wait and not printing.dry_run:
        asyncio.run(_show(server, requested.name))


@command.command("ca", short_help="Create a private CA and the issuer that signs with it.")
@flag_options("requested", NewCa)
@flag_options("printing", Printing)
@namespaced_server_options
def ca(*, server: ServerOptions, requested: NewCa, printing: Printing) -> None:
    """Create a private CA: a self-signed issuer, the CA's certificate, and the issuer NAME, which signs.

    A renewal of the CA keeps its key, so that clients that have installed it need nothing new.

    \b
    Examples:
      certwright create ca internal
      certwright create ca internal --cluster
      certwright create ca internal --common-name "Example Ltd. Internal CA" --dry-run -o yaml
    """
    contents = new_ca(requested)
    server = _of_issuer(server, cluster=requested.cluster)

    async def create() -> None:
        async with session(server) as here:
            await _create(here, contents, printing.output)

    _do(create(), contents, server, printing)


@command.group("issuer", cls=Folder, short_help="Create an issuer: Let's Encrypt, ACME, a CA, Vault.")
def issuer() -> None:
    """Create an Issuer or ClusterIssuer, and the Secret of its credentials.

    \b
    Examples:
      certwright create issuer letsencrypt --email you@example.org --http01
      certwright create issuer ca office --secret office-ca
    """


@issuer.command("letsencrypt", short_help="Create an issuer for Let's Encrypt.")
@flag_options("requested", new_issuers.NewLetsEncrypt)
@flag_options("printing", Printing)
@namespaced_server_options
def letsencrypt(*, server: ServerOptions, requested: new_issuers.NewLetsEncrypt, printing: Printing) -> None:
    """Create an issuer for Let's Encrypt. Its terms: https://letsencrypt.org/repository/

    Credentials of a DNS provider are read from a file or standard input, never from the command line: lines
    NAME = VALUE, JSON, or a token alone. docs/dns-providers.md lists the names for each provider.

    \b
    Examples:
      certwright create issuer letsencrypt --email you@example.org --http01
      certwright create issuer letsencrypt --email you@example.org --webroot /var/www/html --wait
      certwright create issuer letsencrypt staging --email you@example.org --http01 --staging
      certwright create issuer letsencrypt --email you@example.org --dns01 cloudflare --credentials -
      certwright create issuer letsencrypt --email you@example.org --webroot /srv --dry-run -o yaml
    """
    _create_issuer(server, requested, printing)


@issuer.command("acme", short_help="Create an issuer for any ACME server.")
@flag_options("requested", new_issuers.NewAcme)
@flag_options("printing", Printing)
@namespaced_server_options
def acme(*, server: ServerOptions, requested: new_issuers.NewAcme, printing: Printing) -> None:
    """Create an issuer for an ACME server: ZeroSSL, Google Trust Services, step-ca, Pebble and others.

    \b
    Examples:
      certwright create issuer acme step --server https://ca.example.org/acme/acme/directory --http01
      certwright create issuer acme zerossl --server https://acme.zerossl.com/v2/DV90 --http01 --eab -
    """
    _create_issuer(server, requested, printing)


@issuer.command("ca", short_help="Create an issuer that signs with the CA in a Secret.")
@flag_options("requested", new_issuers.NewCaIssuer)
@flag_options("printing", Printing)
@namespaced_server_options
def ca_issuer(*, server: ServerOptions, requested: new_issuers.NewCaIssuer, printing: Printing) -> None:
    """Create an issuer that signs with the CA in a Secret.

    `certwright create ca` makes a new CA with its issuer, `certwright import ca` takes a CA from files.

    \b
    Examples:
      certwright create issuer ca office --secret office-ca
    """
    _create_issuer(server, requested, printing)


@issuer.command("vault", short_help="Create an issuer for Vault or OpenBao.")
@flag_options("requested", new_issuers.NewVault)
@flag_options("printing", Printing)
@namespaced_server_options
def vault(*, server: ServerOptions, requested: new_issuers.NewVault, printing: Printing) -> None:
    """Create an issuer for the PKI engine of Vault or OpenBao.

    \b
    Examples:
      certwright create issuer vault v --server https://v.test --path pki/sign/web --credentials -
    """
    _create_issuer(server, requested, printing)


def _create_issuer(server: ServerOptions, requested: new_issuers.Requested, printing: Printing) -> None:
    new = new_issuers.new_issuer(requested)
    for note in new.notes:
        report_warning(note)
    server = _of_issuer(server, cluster=requested.cluster)

    async def create() -> None:
        async with session(server) as here:
            # Both or neither: an issuer would use the credentials of a Secret that has another purpose.
            for content in new.objects:
                await _check_new(here, content, new)
            await _create(here, new.objects, printing.output)

    _do(create(), new.objects, server, printing)


def _of_issuer(server: ServerOptions, *, cluster: bool) -> ServerOptions:
    """The options with the namespace of the issuer's Secrets."""
    return replace(server, namespace=_CLUSTER_NAMESPACE) if cluster and not server.namespace else server


def _do(
    create: Coroutine[Any, Any, None], contents: list[Json], server: ServerOptions, printing: Printing
) -> None:
    """Print or create the objects; then wait for the last one, if that is asked for."""
    if printing.dry_run:
        create.close()
        _print([_placed(content, server.namespace) for content in contents], printing.output or "yaml")
        return
    if printing.wait and printing.output is not None:
        create.close()
        raise click.UsageError("--wait and -o exclude each other: `certwright get -o yaml` prints the object")
    asyncio.run(create)
    if not printing.wait:
        return
    last = contents[-1]
    words = [_KINDS[last["kind"]].singular, last["metadata"]["name"], "--for=condition=Ready"]
    words += [f"--timeout={printing.timeout_s:g}"]
    given = {"-n": server.namespace, "--kubeconfig": server.kubeconfig, "--context": server.context}
    words += [str(word) for name, value in given.items() if value is not None for word in (name, value)]
    waiting.command.main(words, standalone_mode=False)


async def _check_new(here: Session, content: Json, new: new_issuers.NewIssuer) -> None:
    """Raises `Failed` if the server would not create the object."""
    kind, name = _KINDS[content["kind"]], content["metadata"]["name"]
    what = reference(kind, name)
    try:
        await here.client.create(kind, _placed(content, here.namespace), strict=True, dry_run=True)
    except errors.AlreadyExists:
        place = f" in namespace {here.namespace}" if kind.namespaced else ""
        raise Failed(
            f"{what} already exists{place}, and nothing was created: name another issuer, or replace it: "
            "--dry-run -o yaml | certwright apply -f -"
        ) from None
    except errors.ApiError as error:
        raise Failed(f"{what}: {error}{new_issuers.advice_on(error, new)}") from error


async def _show(server: ServerOptions, name: str) -> None:
    """Print the state of a certificate in one sentence."""
    async with session(server) as here:
        certificate = await here.client.get(CERTIFICATES, name, here.namespace)
        objects = await related.read_related(here.client, certificate)
    secret = certificate["spec"]["secretName"]
    echo(f"{here.namespace}/{name}: {diagnose(objects, datetime.now(UTC))}; it is in Secret {secret}")


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
    """The object with the namespace, if its kind has namespaces."""
    if namespace is None or not _KINDS[content["kind"]].namespaced:
        return content
    return {**content, "metadata": {**content["metadata"], "namespace": namespace}}


async def _create(here: Session, contents: list[Json], output: str | None) -> None:
    """Create the objects in order. An existing object is reported, and the others are still created; if the
    server refuses one, the rest is not created."""
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
