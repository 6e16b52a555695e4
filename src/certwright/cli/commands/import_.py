"""`certwright import`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certwright.cli import lazy
from certwright.cli.access import session
from certwright.cli.errors import AlreadyReported, Failed, report_error
from certwright.cli.flags import flag, flag_options
from certwright.cli.format import echo, echo_lines, print_content, print_table
from certwright.cli.options import Folder, ServerOptions, asynchronous, namespaced_server_options
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.encoding import one_line

if TYPE_CHECKING:
    from certwright.cli.importing.files import Challenge, Installation
    from certwright.cli.importing.objects import Place, Plan

_PATH = click.Path(path_type=Path)


@click.group(cls=Folder, short_help="Import accounts, keys and certificates of other programs.")
def command() -> None:
    """Import accounts, keys and certificates of other programs, without ordering anything.

    Certificates stay as they are until they are renewed, and accounts at ACME servers are kept. Stop the
    other program's renewal afterwards.

    \b
    Examples:
      certwright import certbot /etc/letsencrypt --dry-run
      certwright import pem --cert web.crt --key web.key --name web --issuer internal
      certwright import ca --cert ca.crt --key ca.key --name internal
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the objects go, and whether they are created at all."""

    kind: str = flag(
        "--kind", "The kind of issuers.", type=click.Choice(("Issuer", "ClusterIssuer")), default="Issuer"
    )
    secrets_in: str = flag(
        "--cluster-resource-namespace",
        "Namespace of the Secrets of ClusterIssuers.",
        metavar="NS",
        default="kube-system",
    )
    dry_run: bool = flag(
        "--dry-run", "Print what becomes what, and what cannot; needs no server.", is_flag=True
    )
    output: str | None = flag(
        "-o, --output",
        "With --dry-run, as JSON or YAML instead of a table.",
        type=click.Choice(("json", "yaml")),
    )
    no_headers: bool = flag(
        "--no-headers", "With --dry-run, print the table without its first line.", is_flag=True
    )

    async def write(self, server: ServerOptions, make: Callable[[Place], Plan]) -> None:
        """Make the plan and create its objects; with `--dry-run` print it, without a server. Raises
        `Failed`."""
        if self.dry_run:
            plan = make(self._place(server.namespace or "default"))
            if self.output is not None:
                rows = [
                    {"found": row.source, "becomes": row.becomes, "notes": row.notes} for row in plan.rows
                ]
                print_content(rows, self.output)
            else:
                print_table(("FOUND", "BECOMES", "NOTES"), _lines(plan), headers=not self.no_headers)
            return
        if self.output is not None:
            raise click.UsageError("-o needs --dry-run; an import prints what it creates as a line each")
        async with session(server) as here:
            plan = make(self._place(here.namespace))
            try:
                lines = await lazy.import_objects.write(here.client, plan.objects, SystemClock())
            except lazy.import_objects.Refused as error:
                for sentence in error.sentences:
                    report_error(sentence)
                raise Failed("nothing was imported, for the reasons above") from error
        echo_lines(lines)
        _report(plan)

    def _place(self, namespace: str) -> Place:
        place: Place = lazy.import_objects.Place(
            namespace=namespace, issuer_kind=self.kind, secrets_in=self.secrets_in
        )
        return place


def _lines(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """The rows of the table: a further line for each further object and note."""
    for row in plan.rows:
        for number, (becomes, note) in enumerate(zip_longest(row.becomes or ("-",), row.notes, fillvalue="")):
            yield (row.source if number == 0 else "", becomes, one_line(note))


def _report(plan: Plan) -> None:
    """Print notes, and what was not imported as errors."""
    for row in plan.rows:
        if row.becomes:
            for note in row.notes:
                echo(f"{row.becomes[0]}: {note}", err=True)
        else:
            report_error("; ".join(row.notes))
    if any(not row.becomes for row in plan.rows):
        raise AlreadyReported


def _parse_solver(value: str | None) -> Challenge | None:
    if value is None:
        return None
    try:
        challenge: Challenge = lazy.import_files.parse_solver(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return challenge


@dataclass(frozen=True, slots=True, kw_only=True)
class Acme:
    """Options of the import of ACME clients."""

    only: tuple[str, ...] = flag(
        "--only", "Only this certificate; may be repeated.", metavar="NAME", multiple=True
    )
    solver: Challenge | None = flag(
        "--solver",
        "How names are validated whose settings have no counterpart: http01, tls-alpn01 or webroot=/DIR.",
        metavar="SOLVER",
        parse=_parse_solver,
    )
    ca_bundle: Path | None = flag(
        "--ca-bundle",
        "CA certificates (PEM) of a private ACME server's own TLS certificate.",
        metavar="FILE",
        type=_PATH,
    )

    async def run(
        self, server: ServerOptions, target: Target, read: Callable[[datetime], Installation]
    ) -> None:
        """Import what `read` finds. Raises `Failed`."""
        try:
            installation = read(datetime.now(UTC))
            bundle = b"" if self.ca_bundle is None else lazy.import_files.read_bytes(self.ca_bundle)
        except lazy.import_files.CannotImport as error:
            raise Failed(str(error)) from error
        self._choose(installation)
        defaults = lazy.import_objects.AcmeDefaults(ca_bundle=bundle, solver=self.solver)
        await target.write(server, lambda place: lazy.import_objects.plan_of(installation, place, defaults))

    def _choose(self, installation: Installation) -> None:
        if not self.only:
            if not installation.certificates and not installation.refusals:
                raise Failed("there is no certificate in that folder")
            return
        known = [certificate.name for certificate in installation.certificates]
        if missing := [name for name in self.only if name not in known]:
            reasons = [refusal.reason for refusal in installation.refusals]
            raise Failed(
                f"no certificate named {missing[0]!r} can be imported; "
                f"there are: {', '.join(known) or 'none'}" + "".join(f"; {reason}" for reason in reasons)
            )
        installation.certificates = [
            certificate for certificate in installation.certificates if certificate.name in self.only
        ]
        installation.refusals = []


@command.command("certbot", short_help="Certificates, accounts and settings of certbot.")
@click.argument("folder", type=_PATH, metavar="[DIR]", default=Path("/etc/letsencrypt"))
@flag_options("acme", Acme)
@flag_options("target", Target)
@namespaced_server_options
@asynchronous
async def certbot(*, folder: Path, acme: Acme, target: Target, server: ServerOptions) -> None:
    """Import certbot's folder (/etc/letsencrypt without DIR): each certificate with a file in `renewal`.

    \b
    Examples:
      certwright import certbot --dry-run
      certwright import certbot /etc/letsencrypt --only www.example.com
    """
    await acme.run(server, target, lambda now: lazy.import_programs.read_certbot(folder.expanduser(), now))


@command.command("acme.sh", short_help="Certificates, accounts and settings of acme.sh.")
@click.argument("folder", type=_PATH, metavar="[DIR]", default=Path("~/.acme.sh"))
@flag_options("acme", Acme)
@flag_options("target", Target)
@namespaced_server_options
@asynchronous
async def acme_sh(*, folder: Path, acme: Acme, target: Target, server: ServerOptions) -> None:
    """Import acme.sh's folder (~/.acme.sh without DIR).

    \b
    Example:
      certwright import acme.sh --dry-run
    """
    await acme.run(server, target, lambda now: lazy.import_programs.read_acme_sh(folder.expanduser(), now))


@command.command("lego", short_help="Certificates and accounts of lego.")
@click.argument("folder", type=_PATH, metavar="[DIR]", default=Path(".lego"))
@click.option(
    "--server", "directory", metavar="URL", default="", help="The directory of a private ACME server."
)
@flag_options("acme", Acme)
@flag_options("target", Target)
@namespaced_server_options
@asynchronous
async def lego(*, folder: Path, directory: str, acme: Acme, target: Target, server: ServerOptions) -> None:
    """Import lego's folder (.lego without DIR). lego does not save how names are validated: see --solver.

    \b
    Example:
      certwright import lego /var/lib/lego --solver webroot=/var/www --dry-run
    """
    await acme.run(
        server, target, lambda now: lazy.import_programs.read_lego(folder.expanduser(), now, directory)
    )


@command.command("caddy", short_help="Certificates and accounts of Caddy.")
@click.argument("folder", type=_PATH, metavar="[DIR]", default=Path("~/.local/share/caddy"))
@flag_options("acme", Acme)
@flag_options("target", Target)
@namespaced_server_options
@asynchronous
async def caddy(*, folder: Path, acme: Acme, target: Target, server: ServerOptions) -> None:
    """Import Caddy's storage (~/.local/share/caddy without DIR).

    Caddy validates names by its own ports: see --solver.

    \b
    Example:
      certwright import caddy /var/lib/caddy/.local/share/caddy --solver http01 --dry-run
    """
    await acme.run(server, target, lambda now: lazy.import_programs.read_caddy(folder.expanduser(), now))


@command.command("dehydrated", short_help="Certificates, accounts and settings of dehydrated.")
@click.argument("folder", type=_PATH, metavar="[DIR]", default=Path("/var/lib/dehydrated"))
@click.option("--config", metavar="FILE", type=_PATH, help="Its configuration; without it DIR/config.")
@flag_options("acme", Acme)
@flag_options("target", Target)
@namespaced_server_options
@asynchronous
async def dehydrated(
    *, folder: Path, config: Path | None, acme: Acme, target: Target, server: ServerOptions
) -> None:
    """Import dehydrated's folder (/var/lib/dehydrated without DIR).

    \b
    Example:
      certwright import dehydrated --config /etc/dehydrated/config --dry-run
    """
    await acme.run(
        server, target, lambda now: lazy.import_programs.read_dehydrated(folder.expanduser(), now, config)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A certificate, its key, and the name of the objects."""

    cert: Path = flag("--cert", "The certificate chain (PEM).", metavar="FILE", type=_PATH, required=True)
    key: Path = flag(
        "--key", "Its private key (PEM, unencrypted).", metavar="FILE", type=_PATH, required=True
    )
    name: str = flag("--name", "The name of the objects.", metavar="NAME", required=True)

    def pair(self) -> Any:
        """The checked pair. Raises `Failed`."""
        if lazy.import_objects.object_name(self.name) != self.name:
            raise click.BadParameter(
                f"{self.name!r} cannot be the name of an object: write lower-case letters, digits, - and .",
                param_hint="--name",
            )
        try:
            return lazy.import_files.read_pair(self.cert, self.key, datetime.now(UTC))
        except lazy.import_files.CannotImport as error:
            raise Failed(str(error)) from error


@command.command("pem", short_help="A certificate and its key.")
@flag_options("files", Files)
@click.option("--issuer", metavar="NAME", help="The issuer that renews it; without it only a Secret.")
@flag_options("target", Target)
@namespaced_server_options
@asynchronous
async def pem(*, files: Files, issuer: str | None, target: Target, server: ServerOptions) -> None:
    """Import a certificate and its key as Secret NAME and, with --issuer, Certificate NAME.

    The issuer (of --kind) need not have issued it: it issues the next one.

    \b
    Examples:
      certwright import pem --cert web.crt --key web.key --name web
      certwright import pem --cert web.crt --key web.key --name web --issuer internal
    """
    pair = files.pair()
    await target.write(server, lambda place: lazy.import_objects.pem_plan(files.name, pair, place, issuer))


@command.command("ca", short_help="A CA's certificate and key, as an issuer.")
@flag_options("files", Files)
@flag_options("target", Target)
@namespaced_server_options
@asynchronous
async def ca(*, files: Files, target: Target, server: ServerOptions) -> None:
    """Import a CA's certificate and key as Secret NAME and a CA issuer NAME.

    \b
    Example:
      certwright import ca --cert ca.crt --key ca.key --name internal --kind ClusterIssuer
    """
    pair = files.pair()
    if not pair.leaf.may_sign:
        raise Failed(f"{files.cert} is not a CA certificate: it may not sign; `import pem` imports it")
    await target.write(server, lambda place: lazy.import_objects.ca_plan(files.name, pair, place))
