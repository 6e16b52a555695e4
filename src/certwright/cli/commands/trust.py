"""`certwright trust`."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from certwright.cli import lazy, trust_stores
from certwright.cli.access import session
from certwright.cli.errors import Failed
from certwright.cli.flags import argument, file, flag, flag_options, repeated
from certwright.cli.format import echo, echo_lines, print_content
from certwright.cli.options import Folder, ServerOptions, asynchronous, namespaced_server_options
from certwright.cli.trust_stores import Ca, Command, JavaStore, NssStore, Store

if TYPE_CHECKING:
    from certwright.pki.certificates import CertificateFacts

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_KINDS = ("system", "nss", "java")


@click.group(cls=Folder, short_help="Install a CA in the trust stores of this machine.")
def command() -> None:
    """Show a CA, install it in the trust stores of this machine, or remove it from them.

    The stores are the system's (Debian, Ubuntu, Alpine, Fedora, RHEL, Arch), the NSS databases of the user
    (Firefox, Chromium; by certutil) and Java's (by keytool).

    \b
    Examples:
      certwright trust show office-ca
      certwright trust install issuer/office --dry-run
      sudo certwright trust install --file ca.crt
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where the CA certificate comes from."""

    words: tuple[str, ...] = argument(nargs=-1, metavar="[[KIND] NAME]")
    file: Path | None = file(
        "--file", "The PEM file of the CA's certificate, instead of an object of the server."
    )
    cluster_resource_namespace: str = flag(
        "--cluster-resource-namespace",
        "The namespace of the Secrets of ClusterIssuers, as the server has it.",
        metavar="NS",
        default="kube-system",
    )

    async def read(self, server: ServerOptions) -> CertificateFacts:
        """Raises `Failed` and `click.UsageError`."""
        if (self.file is None) == (not self.words):
            raise click.UsageError("which CA? Name a Certificate, Secret or Issuer, or use --file")
        facts: CertificateFacts
        if self.file is not None:
            facts = lazy.trust_stores.of_file(self.file)
        else:
            async with session(server) as here:
                facts = await lazy.trust_stores.of_object(here, self.words, self.cluster_resource_namespace)
        return facts


def _parse_databases(value: tuple[Path, ...]) -> tuple[Path, ...]:
    for folder in value:
        if not (folder / "cert9.db").exists():
            raise click.BadParameter(
                f"{folder} has no cert9.db; create the database with `certutil -N -d sql:{folder}`"
            )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The stores to work on."""

    stores: tuple[str, ...] = flag(
        "--store",
        "The kind of store; may be repeated.  [default: all that exist]",
        type=click.Choice(_KINDS),
        multiple=True,
    )
    root: Path | None = flag(
        "--root",
        "The system store of the Debian system in DIR, e.g. an image, instead of this system's.",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True),
    )
    nss_db: tuple[Path, ...] = repeated(
        "--nss-db",
        "A folder with an NSS database; may be repeated.  [default: Firefox's and Chromium's]",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        parse=_parse_databases,
    )
    java_keystore: Path | None = file(
        "--java-keystore", "A keystore of Java.  [default: cacerts of the installed Java]"
    )
    java_password_file: Path | None = file(
        "--java-password-file",
        "The file with the password of the keystore.  [default: the password changeit]",
        exists=True,
    )

    def existing(self) -> list[Store]:
        """The chosen stores that exist; without --store all."""
        places = (("system", self.root), ("nss", self.nss_db), ("java", self.java_keystore))
        named = {kind for kind, given in places if given}
        kinds = set(self.stores) | named or set(_KINDS)
        return [store for kind in _KINDS if kind in kinds for store in self._of_kind(kind)]

    def needed(self) -> list[Store]:
        """As `existing`. Raises `Failed` if one of --store is missing, or there is none."""
        for kind in self.stores:
            if not self._of_kind(kind):
                raise Failed(f"--store {kind}: {_MISSING[kind]}")
        stores = self.existing()
        if not stores:
            raise Failed("no trust store was found: " + "; ".join(_MISSING.values()))
        return stores

    def _of_kind(self, kind: str) -> Sequence[Store]:
        match kind:
            case "system":
                system = trust_stores.system_store(self.root)
                return [system] if system else []
            case "nss":
                databases = self.nss_db or trust_stores.nss_databases(Path.home())
                return [NssStore(folder) for folder in databases] if shutil.which("certutil") else []
        path = self.java_keystore or trust_stores.java_keystore()
        return [JavaStore(path, self.java_password_file)] if path and shutil.which("keytool") else []


_MISSING = {
    "system": "neither update-ca-certificates nor update-ca-trust is installed",
    "nss": "certutil (package libnss3-tools) is not installed, or there is no database; --nss-db names one",
    "java": "keytool is not installed, or its store is missing; --java-keystore names one",
}


_dry_run = click.option("--dry-run", is_flag=True, help="Print the commands; run none.")


@command.command(short_help="Show a CA, and which stores trust it.")
@flag_options("source", _Source)
@flag_options("choice", _Choice)
@click.option(
    "-o", "--output", type=click.Choice(["pem", "json", "yaml"]), help="PEM, JSON or YAML instead of text."
)
@namespaced_server_options
@asynchronous
async def show(*, source: _Source, choice: _Choice, output: str | None, server: ServerOptions) -> None:
    """Show a CA's certificate, its fingerprint, and in which trust stores of this machine it is.

    KIND is certificate (the default), secret, issuer or clusterissuer.

    \b
    Examples:
      certwright trust show office-ca
      certwright trust show issuer/office -o pem > ca.crt
    """
    facts = await source.read(server)
    if output == "pem":
        click.echo(facts.pem, nl=False)
        return
    name = trust_stores.name_of(facts.fingerprint.hex())
    if output is not None:
        stores = {store.title: await asyncio.to_thread(store.has, name) for store in choice.existing()}
        content = lazy.inspect.facts_as_json(facts)
        print_content({**content, "nameInStores": name, "stores": stores}, output)
        return
    echo_lines(lazy.inspect.facts(facts, datetime.now(UTC)))
    echo(f"Name in stores: {name}")
    for store in choice.existing():
        is_in = await asyncio.to_thread(store.has, name)
        echo(f"{store.title}: {'installed' if is_in else 'not installed'}")


@command.command(short_help="Install a CA in the trust stores.")
@flag_options("source", _Source)
@flag_options("choice", _Choice)
@_dry_run
@namespaced_server_options
@asynchronous
async def install(*, source: _Source, choice: _Choice, dry_run: bool, server: ServerOptions) -> None:
    """Install a CA's certificate in the trust stores of this machine. A CA that is there already stays.

    Every program that uses such a store then accepts what this CA signs. The system's and Java's store need
    root. KIND is certificate (the default), secret, issuer or clusterissuer.

    \b
    Examples:
      certwright trust install issuer/office --dry-run
      sudo certwright trust install --file ca.crt
      certwright trust install office-ca --store nss
    """
    facts = await source.read(server)
    lazy.trust_stores.check_dates(facts, datetime.now(UTC))
    _refuse_elsewhere(remove=False)
    fingerprint = facts.fingerprint.hex()
    with tempfile.TemporaryDirectory(prefix="certwright-trust-") as folder:
        # A copy of the certificate alone: the file may also contain the private key.
        path = Path(folder, "ca.crt")
        await asyncio.to_thread(path.write_bytes, facts.pem)
        if dry_run:
            path = source.file or Path("ca.crt")
        ca = Ca(facts.pem, fingerprint, path)

        def plan(store: Store) -> list[Command]:
            return [] if store.has(ca.name) else store.install(ca)

        await asyncio.to_thread(_change, choice.needed(), plan, _Messages.install(source), dry_run=dry_run)


@command.command(short_help="Remove a CA from the trust stores.")
@flag_options("source", _Source)
@click.option("--fingerprint", metavar="SHA256", help="The CA's SHA-256, instead of a file or an object.")
@flag_options("choice", _Choice)
@_dry_run
@namespaced_server_options
@asynchronous
async def uninstall(
    *, source: _Source, fingerprint: str | None, choice: _Choice, dry_run: bool, server: ServerOptions
) -> None:
    """Remove what `trust install` has added for this CA, and nothing else.

    KIND is certificate (the default), secret, issuer or clusterissuer.

    \b
    Examples:
      sudo certwright trust uninstall --file ca.crt
      sudo certwright trust uninstall --fingerprint 5F:3A:…
    """
    if fingerprint is not None:
        if source.words or source.file:
            raise click.UsageError("--fingerprint is instead of a NAME and of --file")
        digest = fingerprint.replace(":", "").lower()
        if not _FINGERPRINT.fullmatch(digest):
            raise click.UsageError(f"--fingerprint {fingerprint} is not a SHA-256: 64 hexadecimal digits")
    else:
        digest = (await source.read(server)).fingerprint.hex()
    _refuse_elsewhere(remove=True)
    name = trust_stores.name_of(digest)

    def plan(store: Store) -> list[Command]:
        return store.uninstall(name) if store.has(name) else []

    words = _Messages("removed", "not installed", f"certwright trust uninstall --fingerprint {digest}", "")
    await asyncio.to_thread(_change, choice.needed(), plan, words, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Messages:
    """The words of the result, and the commands that root has to run."""

    done: str
    nothing: str
    as_root: str
    before: str

    @classmethod
    def install(cls, source: _Source) -> _Messages:
        again = f"certwright trust install --file {source.file or 'ca.crt'}"
        before = f"certwright trust show {' '.join(source.words)} -o pem > ca.crt && " if source.words else ""
        return cls("installed", "already installed", again, before)


def _change(
    stores: Sequence[Store], plan: Callable[[Store], list[Command]], words: _Messages, *, dry_run: bool
) -> None:
    """Run the commands of each store, or print them. Raises `Failed`, before any runs, without the rights."""
    plans = [(store, plan(store)) for store in stores]
    if not dry_run:
        denied = [store.title for store, commands in plans if commands and not trust_stores.may_change(store)]
        if denied:
            raise Failed(
                f"no right to change {', '.join(denied)}; nothing was changed. Run "
                f"`{words.before}sudo {words.as_root}`, or choose other stores with --store"
            )
    for store, commands in plans:
        if not commands:
            echo(f"{store.title}: {words.nothing}", err=dry_run)
            continue
        for each in commands:
            if dry_run:
                echo(str(each))
            else:
                each.run()
        if not dry_run:
            echo(f"{store.title}: {words.done}")


def _refuse_elsewhere(*, remove: bool) -> None:
    text = trust_stores.instruction(sys.platform, "ca.crt", remove=remove)
    if text is not None:
        raise Failed(f"certwright does not change the trust store of this system; run: {text}")
