"""`certwright run`: start, apply, show progress, export files, and keep running until stopped."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from certwright import app
from certwright.cli import daemon, lazy, server_flags
from certwright.cli.access import USER_AGENT
from certwright.cli.applier import Applier
from certwright.cli.commands.apply import apply_all
from certwright.cli.commands.serve import announce
from certwright.cli.errors import AlreadyReported, Failed, report, report_error
from certwright.cli.export_flags import DEFAULT_EXPORT, ExportFlags, export_options
from certwright.cli.flags import DEFAULT_LISTEN, Grouped, flag_options, is_free
from certwright.cli.format import echo, echo_lines, print_table
from certwright.cli.options import read_manifests, timeout_option
from certwright.cli.progress import ProgressDisplay, make_display
from certwright.diagnosis import related
from certwright.diagnosis.certificates import (
    OUR_GROUP,
    Diagnosis,
    RelatedObjects,
    condition,
    diagnose,
    issuer_ref,
    issuer_words,
)
from certwright.diagnosis.words import at, count, parse_time
from certwright.kube.api.kinds import Kind
from certwright.kube.api.manifests import Manifests
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.cache import revision_of
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.tasks import TaskSet


@click.command(
    cls=Grouped, short_help="Serve, apply FILEs, issue and renew their certificates, export them as files."
)
@click.argument("manifests", nargs=-1, required=True, metavar="FILE…", callback=read_manifests)
@click.option("--once", is_flag=True, help="End as soon as all certificates of the FILEs are ready.")
@timeout_option(
    default="60s", text="How long to wait for the certificates before reporting what they wait for"
)
@export_options(default=DEFAULT_EXPORT)
@server_flags.server_flags("127.0.0.1:8443, or a free port if that is taken")
@flag_options("log", daemon.LogFlags, log_level=daemon.level_flag(None))
def command(
    *,
    manifests: Manifests,
    once: bool,
    timeout_s: float,
    server: server_flags.ServerFlags,
    export: ExportFlags,
    log: daemon.LogFlags,
) -> None:
    """Start a server, apply FILEs, issue the certificates in them, and write each as files.

    FILE is a YAML or JSON file, a folder of such files, or `-` for standard input. Missing namespaces are
    created. When all certificates are ready, a table lists them; the command then serves and renews, and
    keeps the files up to date, until Ctrl-C. Issued certificates are kept in the data directory: the next run
    continues with them.

    With --once it exits with status 0 as soon as all certificates of the FILEs are ready; on a timeout, with
    status 1 and one sentence per certificate that is not.

    \b
    Examples:
      certwright run examples/quickstart.yaml
      certwright run examples/acme/acme.yaml --http01-listen :80
      certwright run manifests/ --once --timeout 30 --export /etc/tls
      certwright run web.yaml --export /etc/tls --on-change 'systemctl reload nginx'
    """
    if not manifests.readable:
        for document in manifests.documents:
            report_error(str(document))
        if manifests.documents:
            raise AlreadyReported
        raise Failed(f"{', '.join(manifests.names)} contains no objects")
    export.check_apart(server.deliveries.delivery_roots)
    log.set_up()
    server.deliveries.reserve()

    settings = export.settings
    assert settings is not None  # It has a default.
    runner = Runner(manifests, server, settings, log, once=once, timeout_s=timeout_s)
    try:
        succeeded = lazy.app.run(runner.run())
    except app.ExportFailed as error:
        raise Failed(str(error)) from error
    daemon.leave(0 if succeeded else 1)
    if not succeeded:
        raise AlreadyReported


_log = logging.getLogger(__name__)
# Changes within this time are shown together: a certificate passes through all its states in 25 ms.
_TOGETHER_S = 0.05


class Runner:
    """One run of `certwright run`, with the options of the command line."""

    def __init__(
        self,
        manifests: Manifests,
        server: server_flags.ServerFlags,
        export: app.ExportSettings,
        log: daemon.LogFlags,
        *,
        once: bool,
        timeout_s: float,
    ) -> None:
        self._manifests, self._server_flags, self._export, self._log = manifests, server, export, log
        self._once, self._timeout_s = once, timeout_s
        self._clock = SystemClock()
        self._is_json = log.log_format == "json"
        self._terminal = sys.stdout.isatty() and not self._is_json

    async def run(self) -> bool:
        """Run to the end; returns whether all succeeded. Raises `Failed`."""
        stop = daemon.Stop()
        exports = app.Exports(self._export, self._clock)
        async with (
            exports.opened(),
            self._server(stop) as server,
            self._overview(server, exports) as overview,
        ):
            client = server.client(USER_AGENT)
            server.watch_over(exports.follow(client), name="export")
            keys, failures = await self._apply(client, overview)
            all_ready = await self._until_ready(overview, keys, stop)
            if stop.event.is_set():
                return True
            await exports.write_now(keys)
            self._show_result(server, overview, keys)
            if self._once:
                return await exports.wait_command() and all_ready and not failures
            server.watch_over(self._keep(overview, exports), name="reports")
            await stop.wait(server)
        return True

    @asynccontextmanager
    async def _server(self, stop: daemon.Stop) -> AsyncIterator[app.RunningServer]:
        flags = self._server_flags
        host, port = flags.listen or DEFAULT_LISTEN
        if flags.listen is None and not is_free(host, port):
            report(f"port {port} is in use; using a free one instead (--listen chooses)", err=True)
            port = 0
        try:
            server = await app.start_server(flags.at(host, port))
        except app.StartError as error:
            raise Failed(str(error)) from error

        async def reload() -> str:
            try:
                await server.reload()
            except app.StartError as error:
                raise Failed(f"nothing was changed, and the former files stay in use: {error}") from error
            return "reloaded the token files, the CAs of clients and the server's own certificate"

        stop.reload = reload
        async with stop.ending(server, _log):
            announce(server, self._log)
            yield server

    @asynccontextmanager
    async def _overview(self, server: app.RunningServer, exports: app.Exports) -> AsyncIterator[Overview]:
        mirror = Mirror(server.client(USER_AGENT), self._clock)
        try:
            await mirror.synced()
            yield Overview(mirror, exports, self._clock)
        finally:
            await mirror.close()

    async def _apply(self, client: Client, overview: Overview) -> tuple[list[ObjectKey], int]:
        applier = Applier(client, default_namespace="default", make_namespaces=True)
        applied, failures = await apply_all(applier, self._manifests)
        certificates = []
        for outcome in applied:
            if (outcome.kind.group, outcome.kind.kind) == (OUR_GROUP, "Certificate"):
                certificates.append(ObjectKey(outcome.namespace, outcome.name))
                overview.expect(certificates[-1], outcome.revision)
        if applied and not certificates:
            report(f"there is no Certificate in {', '.join(self._manifests.names)}")
        return certificates, failures

    async def _until_ready(self, overview: Overview, keys: list[ObjectKey], stop: daemon.Stop) -> bool:
        """Show the progress; returns whether all certificates became ready before the timeout or a signal."""
        display = make_display(terminal=self._terminal)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await stop.unless_stopped(self._follow(overview, keys, display)) is not None
        except TimeoutError:
            return False
        finally:
            display.close()

    async def _follow(self, overview: Overview, keys: list[ObjectKey], display: ProgressDisplay) -> bool:
        """Show the progress until all are ready; then returns True."""
        while keys:
            await overview.mirror.changed.wait()
            await self._clock.sleep(_TOGETHER_S)
            overview.mirror.changed.clear()
            stories = {key: overview.story(key) for key in keys}
            ready = sum(story.ready for story in stories.values())
            title = f"{ready} of {count(len(stories), 'certificate')} ready"
            display.show(title, {str(key): story for key, story in stories.items()})
            if all(story.ready for story in stories.values()):
                break
        return True

    async def _keep(self, overview: Overview, exports: app.Exports) -> None:
        """Report what happens to certificates and their files, for ever."""
        reported = {key: overview.outcome(key) for key in overview.mirror.certificates()}
        await exports.settled()
        exports.on_replaced = overview.mirror.changed.set
        while True:
            await overview.mirror.changed.wait()
            await self._clock.sleep(_TOGETHER_S)
            overview.mirror.changed.clear()
            exported = await exports.settled()
            for key in overview.mirror.certificates():
                outcome = overview.outcome(key)
                if reported.get(key) != outcome:
                    tail = f"; files in {exports.folder(key)} are up to date" if key in exported else ""
                    report(f"{key}: {outcome}{tail}")
                elif key in exported:
                    report(f"{key}: files in {exports.folder(key)} were written again")
                reported[key] = outcome

    def _show_result(self, server: app.RunningServer, overview: Overview, keys: list[ObjectKey]) -> None:
        rows = [row for key in keys if (row := overview.row(key)) is not None]
        if rows and not self._is_json:
            echo()
            print_table(_TITLES, rows)
        for key in keys:
            story = overview.story(key)
            if not story.ready:
                report_error(f"certificate {key}: {story}")
        if not self._is_json:
            echo_lines(self._next_steps(server, overview, keys))

    def _next_steps(self, server: app.RunningServer, overview: Overview, keys: list[ObjectKey]) -> list[str]:
        """Useful next commands. After --once there is no running server for them."""
        exported = [key for key in keys if overview.folder(key)]
        key = next(
            (key for key in exported if overview.has_dns_names(key)), exported[-1] if exported else None
        )
        look = [f"openssl x509 -in {overview.folder(key)}/tls.crt -noout -text"] if key else []
        if self._once:
            return ["", "Next:", *(f"  {command}" for command in look)] if look else []
        program = "kubectl" if shutil.which("kubectl") else _called_as()
        steps = [f"export KUBECONFIG={server.kubeconfig.resolve()}", f"{program} get certificates -A", *look]
        if key:
            steps.append(f"{_called_as()} status certificate {key.name} -n {key.namespace}")
        commands = (f"  {command}" for command in steps)
        return ["", "Next, in another terminal:", *commands, "", "Serving and renewing; Ctrl-C ends it."]


def _called_as() -> str:
    """The command that started this program: its name if that is on the PATH, else as typed."""
    started, executable = Path(sys.argv[0]), shutil.which("certwright")
    if executable and Path(executable).resolve() == started.resolve():
        return "certwright"
    return str(started) if started.name == "certwright" else f"{sys.executable} -m certwright"


_TITLES = ("NAME", "READY", "ISSUER", "NOT AFTER (UTC)", "RENEWS AT (UTC)", "FILES")


Json = dict[str, Any]
_OWNER = "owner"


def _owners(obj: Json) -> Iterable[str]:
    return [owner.get("uid", "") for owner in obj["metadata"].get("ownerReferences") or []]


class Mirror:
    """Watches the certificates, requests and issuers of one server, in all namespaces.

    `changed` is set after any possible change; the caller that waits for it clears it.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self.changed = asyncio.Event()
        self._tasks = TaskSet()
        self._certificates = self._follow(client, related.CERTIFICATES, clock)
        self._requests = self._follow(client, related.REQUESTS, clock)
        self._issuers = self._follow(client, related.ISSUERS, clock)
        self._cluster_issuers = self._follow(client, related.CLUSTER_ISSUERS, clock)

    def _follow(self, client: Client, kind: Kind[Json], clock: Clock) -> Informer[Json]:
        informer: Informer[Json] = Informer(client, kind, clock, indexers={_OWNER: _owners})
        informer.add_handler(lambda _old, _new: self.changed.set())
        self._tasks.start(informer.run(), name=f"mirror of {kind.plural}")
        return informer

    async def synced(self) -> None:
        """Return when all informers are synced."""
        for informer in (self._certificates, self._requests, self._issuers, self._cluster_issuers):
            await informer.synced.wait()

    def certificates(self) -> list[ObjectKey]:
        """The existing certificates, by namespace and name."""
        return sorted(self._certificates.cache.keys())

    def related_objects(self, key: ObjectKey) -> RelatedObjects | None:
        """A certificate and its related objects, without the Secret; None if it does not exist."""
        certificate = self._certificates.cache.get(key)
        if certificate is None:
            return None
        requests = self._requests.cache.by_index(_OWNER, certificate["metadata"].get("uid", ""))
        request = related.current_request(certificate, requests)
        ref = issuer_ref(certificate)
        namesake = self._issuer(related.of_the_other_kind(ref), key.namespace)
        return RelatedObjects(certificate, self._issuer(ref, key.namespace), request, namesake=namesake)

    def _issuer(self, ref: Mapping[str, str], namespace: str) -> Json | None:
        if ref["group"] != OUR_GROUP:
            return None
        if ref["kind"] == "ClusterIssuer":
            return self._cluster_issuers.cache.get(ObjectKey("", ref["name"]))
        return self._issuers.cache.get(ObjectKey(namespace, ref["name"]))

    async def close(self) -> None:
        """Stop the informers."""
        await self._tasks.close()


class Overview:
    """Reads the informers, and the names of the exported files."""

    def __init__(self, mirror: Mirror, exports: app.Exports, clock: Clock) -> None:
        self.mirror = mirror
        self._exports = exports
        self._clock = clock
        self._applied: dict[ObjectKey, int] = {}

    def expect(self, key: ObjectKey, revision: int) -> None:
        """Ignore cached states of this certificate before this resourceVersion."""
        self._applied[key] = revision

    def story(self, key: ObjectKey) -> Diagnosis:
        """The diagnosis of the certificate; not ready until its latest change has been processed."""
        objects = self.mirror.related_objects(key)
        if objects is None or revision_of(objects.certificate) < self._applied.get(key, 0):
            return Diagnosis("does not exist" if objects is None else "just changed")
        story = diagnose(objects, self._clock.now())
        # The generation of the certificate that the Ready condition is of.
        seen = condition(objects.certificate, "Ready").get("observedGeneration")
        is_old = seen is not None and seen < objects.certificate["metadata"].get("generation", 0)
        return Diagnosis("the change has not been processed yet") if story.ready and is_old else story

    def outcome(self, key: ObjectKey) -> str:
        """The diagnosis with absolute times, so that it changes only when something happened."""
        objects = self.mirror.related_objects(key)
        if objects is None:
            return "no longer exists"
        status = objects.certificate.get("status") or {}
        story = diagnose(objects, self._clock.now())
        expires, renews = parse_time(status.get("notAfter")), parse_time(status.get("renewalTime"))
        if not story.ready or condition(objects.certificate, "Issuing") or expires is None:
            return str(story)
        tail = f", renews on {at(renews)}" if renews else ""
        return f"revision {status.get('revision', 1)} is valid until {at(expires)}{tail}"

    def folder(self, key: ObjectKey) -> Path | None:
        """The folder of the certificate's files, once they exist."""
        return self._exports.folder(key) if self._exports.names(key) else None

    def has_dns_names(self, key: ObjectKey) -> bool:
        """Whether the certificate is for a server."""
        objects = self.mirror.related_objects(key)
        return objects is not None and bool((objects.certificate.get("spec") or {}).get("dnsNames"))

    def row(self, key: ObjectKey) -> tuple[str, ...] | None:
        """Its row of the final table; None if the certificate was deleted."""
        objects = self.mirror.related_objects(key)
        if objects is None:
            return None
        status = objects.certificate.get("status") or {}
        folder = self.folder(key)
        return (
            str(key),
            "yes" if self.story(key).ready else "NO",
            issuer_words(objects.certificate),
            _minute(status.get("notAfter")),
            _minute(status.get("renewalTime")),
            f"{folder}/{{{','.join(self._exports.names(key))}}}" if folder else "",
        )


def _minute(value: object) -> str:
    moment = parse_time(value)
    return at(moment).removesuffix(" UTC") if moment else ""
