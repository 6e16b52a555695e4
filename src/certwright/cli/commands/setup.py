"""`certwright setup`: certwright as a service of this machine, and servers that present its certificates."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from certwright.cli.access import SERVICE_DATA_DIR, session
from certwright.cli.configuration import DEFAULT_FILE
from certwright.cli.errors import AlreadyReported, Failed, report, report_error, report_warning
from certwright.cli.flags import (
    Address,
    argument,
    flag,
    flag_options,
    parse_address,
    parse_names,
    repeated,
    seconds,
)
from certwright.cli.format import echo, print_content
from certwright.cli.options import Folder, ServerOptions, namespaced_server_options
from certwright.cli.setup import plan, server, service
from certwright.cli.setup.plan import Host, Record, Step
from certwright.cli.setup.programs import SERVERS, Server, Site
from certwright.cli.setup.server import Requested

_EVERY_S = 0.25
_STARTED_WITHIN_S = 5.0
"""How long a certwright that was started a moment ago needs to lock its data directory."""
_READY_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Where and how far the set-up goes."""

    root: Path | None = flag(
        "--root",
        "Write below DIR, e.g. for an image; no user is made, no program runs.",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
    )
    dry_run: bool = flag("--dry-run", "Print what would be done, and change nothing.", is_flag=True)
    remove: bool = flag("--remove", "Undo what setup has made, and nothing else.", is_flag=True)
    output: str | None = flag(
        "-o, --output",
        "With --dry-run, the steps as JSON or YAML instead of text.",
        type=click.Choice(("json", "yaml")),
    )

    def __post_init__(self) -> None:
        if self.output is not None and not self.dry_run:
            raise click.UsageError("-o needs --dry-run")

    @property
    def host(self) -> Host:
        """The machine. Raises `Failed` for a user who may not change it."""
        if self.root is None and not self.dry_run and os.geteuid() != 0:
            raise Failed(
                "setup changes this machine, so only root may run it: put `sudo` before the command, or "
                "see with "
                "--dry-run what it would do"
            )
        return Host(None if self.root is None else self.root.absolute())


@click.group(cls=Folder, short_help="Set up the service, and servers that present certificates.")
def command() -> None:
    """Set up certwright as a service of this machine, and web, mail and database servers with its
    certificates.

    Every command prints with --dry-run what it would do, may be repeated, and is undone by --remove. Files
    that setup
    has not written, or that were changed since, are never replaced.

    \b
    Examples:
      sudo certwright setup service
      sudo certwright setup nginx web --dns www.example.test
      sudo certwright setup nginx web --remove
    """


@command.command("service", short_help="Run certwright as a service of this machine.")
@flag_options("how", How)
@click.option(
    "--program",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The program that the service runs; without it /usr/bin/certwright, or this one.",
)
@click.option(
    "--http01-listen",
    "http01",
    metavar="HOST:PORT",
    default=service.HTTP01,
    show_default=True,
    help="Where challenges of HTTP-01 are answered, for a web server to pass them on; :80 where none runs.",
)
@click.pass_context
def service_command(context: click.Context, *, how: How, program: Path | None, http01: str) -> None:
    """Make the user certwright, its directories, the configuration /etc/certwright/certwright.yaml and the
    unit, and
    start the service.

    Without systemd it says what to run instead.

    \b
    Examples:
      certwright setup service --dry-run -o json
      sudo certwright setup service
      sudo certwright setup service --http01-listen :80
    """
    parse_address(http01)
    host = how.host
    record = service.record(host)
    if how.remove:
        _remove_service(host, record, how)
        return
    steps = service.steps(host, context, program=program, http01=http01)
    if how.dry_run:
        planned = _planned(steps, host)
        if host.is_live and host.has_systemd:
            commands = "systemctl daemon-reload; systemctl enable certwright; systemctl restart certwright"
            planned.append(Planned("command", commands))
        else:
            planned.append(Planned("manual", service.by_hand(host)))
        _print(planned, how.output)
        return
    is_changed = plan.perform(steps, record) or record.content.is_begun
    if service.restart(host, is_changed=is_changed):
        report(f"certwright runs; kubeconfig {SERVICE_DATA_DIR / 'kubeconfig'}, which commands of root find")
    elif host.is_live:
        report(f"systemd does not run here; start certwright yourself: {service.by_hand(host)}")
    else:
        report(f"left to you, {service.by_hand(host)}")
    record.end()
    if not is_changed:
        report("nothing was left to do")


def _remove_service(host: Host, record: Record, how: How) -> None:
    if others := service.others(host):
        raise Failed(
            f"{', '.join(others)} would lose the service; first run `certwright setup {others[0]} NAME "
            f"--remove`"
        )
    stops = host.is_live and host.has_systemd
    if how.output is None and not record.content.made:
        report("nothing to remove: setup has made nothing here")
        return
    if how.dry_run:
        command = [Planned("command", "systemctl disable --now certwright")]
        _print(
            [*(command if stops and record.content.made else ()), *_removal(record.content.made)], how.output
        )
        return
    if stops:
        with suppress(Failed):  # It is not there where an earlier removal was interrupted.
            plan.run(("systemctl", "disable", "--now", "certwright"))
    stays = _undo(record, None)
    if stops:
        plan.run(("systemctl", "daemon-reload"))
    _finish(stays)


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a plan, for people and programs. `kind`: that of what is made or removed, or `command`,
    `manual` (left to the user), `reload` or `check`. `state`: `todo`, `done`, or `refused` with the reason as
    text. `details`: the content of a file, or lines to add."""

    kind: str
    text: str
    state: str = "todo"
    what: str = ""
    details: str = ""


_BEFORE = {"command": "run: ", "manual": "left to you: "}


def _planned(steps: Iterable[Step], host: Host) -> list[Planned]:
    """The steps, including finished ones."""
    planned = []
    for step in steps:
        made = step.made
        try:
            state = "done" if step.is_done(host) else "todo"
        except plan.Refused as error:
            planned.append(Planned(made.kind, str(error), "refused", made.what))
            continue
        first, _, more = step.describe(host).partition("\n")
        planned.append(Planned(made.kind, first.rstrip(":") if more else first, state, made.what, more))
    return planned


def _removal(made: Sequence[plan.Made]) -> list[Planned]:
    return [
        Planned(each.kind, f"remove the {each.kind} {each.what}", what=each.what) for each in reversed(made)
    ]


def _print(planned: Sequence[Planned], form: str | None) -> None:
    """Print the plan. Raises `AlreadyReported` if a step is refused."""
    refused = [each for each in planned if each.state == "refused"]
    if form is not None:
        print_content([asdict(each) for each in planned], form)
    for each in planned if form is None else ():
        if each.state == "done":
            echo(f"done already: {each.text}")
        elif each.state == "todo":
            echo(f"{_BEFORE.get(each.kind, '')}{each.text}{':' if each.details and each.what else ''}")
            for line in each.details.splitlines():
                echo(f"    {line}")
    for each in refused if form is None else ():
        report_error(each.text)
    if refused:
        raise AlreadyReported


def _undo(record: Record, owner: str | None) -> list[str]:
    """Undo the changes in the record, or one owner's changes, in reverse; returns sentences about what
    stays."""
    stays = []
    for made in reversed([made for made in record.content.made if owner is None or made.owner == owner]):
        try:
            sentence = plan.undo(made, record.host)
            if sentence:
                stays.append(sentence)
            elif made.kind != "object":
                report(f"remove the {made.kind} {made.what}")
            record.content.made.remove(made)
            record.save()
        except plan.Refused as error:
            stays.append(str(error))
        except OSError as error:
            raise Failed(f"{error.filename or record.path}: {error.strerror}; run this again") from error
    return stays


def _finish(stays: Sequence[str]) -> None:
    for sentence in stays:
        report_warning(sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """The certificate that a server presents."""

    name: str = argument()
    dns: tuple[str, ...] = repeated(
        "--dns",
        "Create the Certificate NAME for this DNS name or IP address, unless it exists; may be repeated.",
        metavar="NAME",
        parse=parse_names,
    )
    issuer: str | None = flag(
        "--issuer",
        "The issuer of a Certificate that is created; without it a private CA, `internal`.",
        metavar="NAME",
    )
    address: Address | None = flag(
        "--address",
        "Where it is checked that the server presents the certificate; without it this machine, and the "
        "usual port.",
        metavar="HOST:PORT",
        parse=parse_address,
    )
    timeout_s: float = seconds("--timeout", "How long to wait for the certificate.", default="2m")


_HELP = """Have {title} present the certificate NAME, and reload it whenever that is renewed.

Writes what {title} and certwright need, allows certwright just the reload of {title}, and checks the
certificate
by a handshake. {use}

\b
Examples:
  certwright setup {name} web --dns www.example.test --dry-run
  sudo certwright setup {name} web --dns www.example.test
  sudo certwright setup {name} web --dns www.example.com --issuer letsencrypt
  sudo certwright setup {name} web --remove
"""


def _add(known: Server) -> None:
    @flag_options("how", How)
    @flag_options("what", What)
    @namespaced_server_options
    @click.pass_context
    def set_up(
        context: click.Context, *, how: How, what: What, server: ServerOptions, socket: Path | None = None
    ) -> None:
        if what.address is not None and not what.address[0]:
            raise click.UsageError("--address needs a host, e.g. 127.0.0.1:443")
        requested = Requested(
            server=known,
            name=what.name,
            namespace=server.namespace or "default",
            dns=what.dns,
            issuer=what.issuer,
            address=what.address,
            socket=socket,
        )
        asyncio.run(_SetUp(how.host, requested, server, what.timeout_s, context).run(how))

    use = (
        "Where no site has the names yet, one is written."
        if known.names is not None
        else "It is used immediately."
        if known.after is not None
        else f"The lines for {known.into} are printed; add them, and run this again."
    )
    add: Any = set_up
    if known.name == "haproxy":
        add = click.option(
            "--socket",
            metavar="PATH",
            type=click.Path(path_type=Path),
            help="Replace certificates by HAProxy's runtime socket, without a reload.",
        )(add)
    command.command(
        known.name,
        help=_HELP.format(title=known.title, name=known.name, use=use),
        short_help=f"Have {known.title} present a certificate.",
    )(add)


for _known in SERVERS.values():
    _add(_known)


class _SetUp:
    """The set-up of one server for one certificate."""

    def __init__(
        self,
        host: Host,
        requested: Requested,
        options: ServerOptions,
        timeout_s: float,
        context: click.Context,
    ) -> None:
        self._host, self._requested, self._timeout_s = host, requested, timeout_s
        self._known = requested.server
        self._record = Record.read(host, self._known.name)
        self._values = service.configuration(host, context)
        self._data_dir = Path(self._values.get("data_dir", SERVICE_DATA_DIR))
        self._options = options
        self._reason = ""
        self._find_kubeconfig()

    def _find_kubeconfig(self) -> None:
        """Use the service's kubeconfig, which its first start writes."""
        kubeconfig, options = self._data_dir / "kubeconfig", self._options
        if options.kubeconfig is None and os.access(kubeconfig, os.R_OK):
            self._options = ServerOptions(
                kubeconfig=kubeconfig, context=options.context, namespace=options.namespace
            )

    async def run(self, how: How) -> None:
        """Set up the server, or undo the set-up. Raises `Failed`."""
        if how.remove:
            await self._remove(how)
            return
        if not how.dry_run:
            self._check_possible()
            if self._host.is_live and not self._host.has_systemd:
                await self._wait_served()
        names = await self._names(how)
        site = self._site(names)
        has_site = self._known.has_site(self._host, site)
        before = [
            *server.shared_steps(self._host, self._requested),
            *server.own_steps(self._requested, site, has_site=has_site),
        ]
        after = server.after_steps(self._requested, site, has_site=has_site)
        if how.dry_run:
            _print(self._plan(before, after, site), how.output)
            return
        plan.check([*before, *after], self._host)
        is_changed = plan.perform(before, self._record) or self._record.content.is_begun
        if not self._host.is_live:
            self._report_left(site, after)
            return
        try:
            self._reload(is_changed=is_changed)
        except Failed as error:
            stays = "what was made stays; run this again, or with --remove"
            raise Failed(f"{error.format_message()}; {stays}") from error
        if not await self._is_served():
            raise Failed(f"{self._not_served()}; what was made stays, and running this again completes it")
        await self._deliver(site, after)

    def _site(self, names: Sequence[str]) -> Site:
        is_set_up = self._host.at(DEFAULT_FILE).exists()
        listen = self._values.get("http01_listen") if is_set_up else service.HTTP01
        http01 = ""
        if isinstance(listen, str):
            host, _, port = listen.rpartition(":")
            # With port 80 no server is in between.
            http01 = "" if port == "80" else f"{host or '127.0.0.1'}:{port}"
        return self._requested.site(self._host, names, http01)

    def _check_possible(self) -> None:
        host, known = self._host, self._known
        if not host.at(DEFAULT_FILE).exists():
            raise Failed("certwright is not a service here yet: run `certwright setup service` first")
        if not host.at(known.config).is_dir():
            raise Failed(
                f"{known.title} is not installed: {host.at(known.config)} does not exist; install it first"
            )
        others = self._record.owners() - {self._requested.slug}
        if known.is_single and others:
            other = min(others)
            raise Failed(
                f"{known.title} presents {other} already, and can present one certificate; first run "
                f"`certwright "
                f"setup {known.name} {other} --remove`"
            )
        if not host.is_live:
            return
        if plan.find_program(known.program) is None:
            raise Failed(
                f"{known.title} is not installed: there is no program {known.program}; install it first"
            )
        if host.has_systemd and self._requested.socket is None and not service.has_polkit():
            raise Failed(
                f"the service could not reload {known.title}, because polkit is not installed, which "
                f"decides who may; "
                "run `apt-get install polkitd`, and this again"
            )
        self._test()

    def _test(self) -> None:
        """Have the server check its configuration. Raises `Failed`."""
        program, *words = self._known.test or ("",)
        if found := plan.find_program(program) if program else None:
            plan.run((found, *words))

    async def _names(self, how: How) -> Sequence[str]:
        """The names of the certificate, as far as they are known."""
        if not self._host.is_live:
            return self._requested.dns
        try:
            async with session(self._options) as here:
                names = await server.names_of(here, self._requested)
                await server.existing_issuer(here, self._requested, ())
                return names
        except Failed:
            # A plan needs no server; and a service that does not run is started later.
            if how.dry_run or not await self._is_served():
                return self._requested.dns
            raise

    async def _is_served(self) -> bool:
        self._find_kubeconfig()
        try:
            async with session(self._options) as here:
                await here.client.list(server.DELIVERIES, self._requested.namespace, limit=1)
        except Failed as error:
            self._reason = error.format_message()
            return False
        return True

    async def _wait_served(self) -> None:
        """Wait for a certwright that starts, as systemd would. Raises `Failed`, with nothing changed."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while not await self._is_served():
            is_running = service.process_of(self._data_dir) is not None
            if loop.time() - begin > (_READY_WITHIN_S if is_running else _STARTED_WITHIN_S):
                raise Failed(f"{self._not_served()}. Nothing was changed")
            await asyncio.sleep(_EVERY_S)

    def _not_served(self) -> str:
        """Why the set-up cannot go on, with the fix."""
        if service.process_of(self._data_dir) is not None:
            return f"certwright runs, but does not answer: {self._reason}"
        if self._host.has_systemd:
            return "certwright does not run: `journalctl -u certwright` shows why"
        return f"certwright does not run; start it (`{service.by_hand(self._host)}`), and run this again"

    def _plan(self, before: Sequence[Step], after: Sequence[Step], site: Site) -> list[Planned]:
        known, planned = self._known, _planned(before, self._host)
        is_changed = any(step.state == "todo" for step in planned)
        if is_changed and self._host.is_live and self._host.has_systemd:
            commands = f"systemctl daemon-reload; systemctl restart certwright; systemctl reload {known.unit}"
            planned.append(Planned("command", commands))
        objects = (
            "apply the objects of that file, and wait until the certificate is issued and its files are "
        )
        planned.append(Planned("object", f"{objects}written"))
        if after:
            activating = _planned(after, self._host)
            planned += activating
            if any(step.state == "todo" for step in activating):
                planned.append(Planned("reload", f"reload {known.title}"))
        else:
            planned.append(Planned("manual", f"add to {known.into}", details=known.lines(site)))
        return [*planned, Planned("check", f"check that {self._requested.where} presents the certificate")]

    def _report_left(self, site: Site, after: Sequence[Step]) -> None:
        """Say what the user does on the machine of the image."""
        manifest = server.manifest_path(self._requested)
        report(
            f"left to you on the machine: `certwright apply -f {manifest}`, and this command without --root"
        )
        if not after:
            self._report_lines(site)

    def _report_lines(self, site: Site) -> None:
        echo(f"Add to {self._known.into}, and reload {self._known.title}:\n\n{self._known.lines(site)}\n")

    def _reload(self, *, is_changed: bool) -> None:
        """Have certwright and the server read what was written."""
        if not service.restart(self._host, is_changed=is_changed) and is_changed:
            service.signal(self._values)
        if is_changed and self._known.test:
            self._test()
            self._reload_server()

    def _reload_server(self) -> None:
        known = self._known
        if self._host.has_systemd:
            plan.run(("systemctl", "reload-or-restart", known.unit))
        else:
            program, *words = known.reload.split()
            plan.run((plan.find_program(program) or program, *words))

    async def _deliver(self, site: Site, after: Sequence[Step]) -> None:
        requested = self._requested
        async with session(self._options) as here:
            contents = server.objects(requested, site)
            await server.existing_issuer(here, requested, contents)
            await server.apply(here, contents, self._record, requested.slug)
            problem = await server.wait_delivered(here, requested, self._timeout_s)
            if after:
                self._activate(after)
            else:
                self._record.end()
                if not self._known.presents(self._host, site):
                    self._report_lines(site)
                    report_warning(
                        f"{self._known.title} does not use {requested.reference} yet; after adding the "
                        f"lines run this "
                        "again, which checks it"
                    )
                    return
            report(await server.check_presented(self._host, requested, site))
            if problem:
                problem = await server.wait_hook(here, requested)
            if not problem:
                await server.wait_deployed(here, requested)
        if problem:
            raise Failed(f"but {self._known.title} would not be reloaded at a renewal: {problem}")

    def _activate(self, after: Sequence[Step]) -> None:
        """Write the configuration that presents the certificate; remove it if the server refuses it."""
        known = {made.what for made in self._record.content.made}
        changed = plan.perform(after, self._record)
        try:
            self._test()
        except Failed as error:
            for step in reversed(after):
                if step.made.what not in known:
                    plan.undo(step.made, self._host)
                    self._record.content.made.remove(step.made)
            self._record.save()
            raise Failed(f"{error}; the files for it were removed again") from None
        if changed or self._record.content.is_begun:
            self._reload_server()
        self._record.end()

    async def _remove(self, how: How) -> None:
        slug, record = self._requested.slug, self._record
        owners = record.owners()
        if not record.content.made or (owners and slug not in owners):
            if how.output is not None:
                _print((), how.output)
                return
            report(
                f"nothing to remove: setup has not set up {self._known.title} for {self._requested.reference}"
            )
            return
        is_last = owners <= {slug}
        parts = [made for made in record.content.made if is_last or made.owner == slug]
        if how.dry_run:
            _print(_removal(parts), how.output)
            return
        if self._host.is_live:
            await self._delete_objects(parts)
        stays = _undo(record, None if is_last else slug)
        if self._host.is_live:
            try:
                self._reload_server()
            except Failed as error:
                stays.append(f"{self._known.title} was not reloaded: {error.format_message()}")
            if not service.restart(self._host, is_changed=True):
                service.signal(self._values)
        _finish(stays)

    async def _delete_objects(self, parts: Sequence[plan.Made]) -> None:
        found = [made for made in parts if made.kind == "object"]
        if not found:
            return
        try:
            async with session(self._options) as here:
                for made in reversed(found):
                    await server.delete(here, made)
        except Failed as error:
            names = ", ".join(made.what for made in found)
            report_warning(f"not deleted from the server: {names} ({error.format_message()})")
