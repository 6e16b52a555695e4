"""The controllers in a process, against any API server; their notifications, and the HTTP server for their
metrics and probes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from msgspec.structs import replace

from certwright.app.loop import LAG
from certwright.app.metrics_tls import MetricsTls, ServingCertificate
from certwright.app.options import ControllerOptions, StartError, controller_gates, operator_policy
from certwright.controllers.acme.listeners import AcmeSettings, CannotListen, Listeners, open_listeners
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.responses import Responses
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.manager import ControllerManager
from certwright.controllers.notifier import Notifications
from certwright.controllers.replicas.replica import Replica
from certwright.controllers.replicas.shards import (
    USER_AGENT,
    ClusterSettings,
    ShardedReplica,
    beside_a_server,
)
from certwright.controllers.settings import EXACT_PATHS, SECRETS_FILTERED_CACHING, Settings
from certwright.kit import exposition
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import Transport
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.executor import Threads
from certwright.kube.util.tasks import TaskSet
from certwright.notifications.destinations import destinations_of
from certwright.notifications.messages import Digest, SendError
from certwright.notifications.settings import BadSettings, read_settings

_log = logging.getLogger(__name__)


class Closers:
    """Shutdown actions, run in reverse order; a failure does not prevent the others."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Awaitable[None]]] = []

    def add(self, undo: Callable[[], Awaitable[None]]) -> None:
        """Register a shutdown action."""
        self._undo.append(undo)

    async def close(self) -> None:
        """Run all shutdown actions."""
        while self._undo:
            undo = self._undo.pop()
            try:
                await undo()
            except Exception:
                _log.exception("a part did not stop cleanly")


_FLUSH_WITHIN_S = 0.5
_CERTIFICATE_WITHIN_S = 5.0
"""How long the start waits for the certificate of the metrics endpoint, which may need the API server."""


class RunningControllers:
    """The running controllers; `close` stops them."""

    def __init__(
        self,
        controllers: ControllerManager | Replica | ShardedReplica,
        listeners: Listeners,
        executor: Threads,
        transport: Transport,
        tasks: TaskSet,
        clock: Clock,
        maker: _ManagerFactory,
    ) -> None:
        self._controllers = controllers
        self._maker = maker
        self._clock = clock
        self._tasks = tasks
        self._listeners = listeners
        self._executor = executor
        self._transport = transport
        self._probes: ProbeServer | None = None

    def take_metrics(self) -> Callable[[], bytes]:
        """Take a snapshot of the metrics, and return a function that renders it, also in a thread."""
        return self._controllers.metrics.take()

    async def serve_metrics(self, host: str, port: int, tls: MetricsTls | None = None) -> int:
        """Serve `/metrics`, and `/livez` for probes, as long as the controllers run, over HTTPS with `tls`;
        returns the port, also if 0 was requested.

        Raises `StartError` if it cannot listen there.
        """
        context = None
        if tls is not None:
            certificate = ServingCertificate(tls, Client(self._transport, user_agent=USER_AGENT), self._clock)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CERTIFICATE_WITHIN_S):
                    await certificate.renew()
            self._tasks.start(certificate.keep(), name="the certificate of the metrics endpoint")
            context = certificate.context

        async def metrics() -> Page:
            own, lag = self.take_metrics(), LAG.take_metrics()
            return Page(exposition.CONTENT_TYPE, await asyncio.to_thread(lambda: own() + lag()))

        async def livez() -> Page:
            return Page("text/plain; charset=utf-8", b"ok")

        try:
            self._probes = await serve_probes(host, port, {"/metrics": metrics, "/livez": livez}, context)
        except OSError as error:
            raise StartError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
        return self._probes.port

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self._maker.settings

    def read(self, options: ControllerOptions) -> Settings:
        """The settings of other options, whose files are read; the listeners and the CA of the API server
        stay. Raises `StartError`."""
        try:
            acme = self._listeners.options_for(_acme(options))
        except CannotListen as error:
            raise StartError(str(error)) from error
        before = self.settings
        settings = replace(_settings(options, acme), api_server_ca=before.api_server_ca)
        # Destinations are no values; the same ones need no restart.
        if _is_same(settings.notifications, before.notifications):
            settings = replace(settings, notifications=before.notifications)
        return settings

    async def reload(self, settings: Settings) -> bool:
        """Use other settings, from `read`: if they differ, the controllers start again with new caches, and
        keep their Lease. Returns whether they do. Raises `StartError`; the settings are then as before."""
        if settings == self.settings:
            return False
        try:
            await self._maker.reload(settings)
            return True
        except ValueError as error:
            raise StartError(str(error)) from error

    @property
    def holder(self) -> str:
        """The replica that holds the lease, as last observed; empty without leader election."""
        return self._controllers.holder if isinstance(self._controllers, Replica | ShardedReplica) else ""

    @property
    def is_waiting(self) -> bool:
        """Whether another replica leads, as last observed."""
        return isinstance(self._controllers, Replica | ShardedReplica) and not self._controllers.may_write

    async def wait_tried(self) -> None:
        """Return when these controllers lead, or know that they wait."""
        if isinstance(self._controllers, Replica):
            await self._controllers.wait_tried()

    async def wait_leading(self) -> None:
        """Return when these controllers lead; immediately without leader election."""
        if isinstance(self._controllers, Replica | ShardedReplica):
            await self._controllers.wait_leading()

    async def wait_synced(self, *, patience_s: float | None = None) -> None:
        """Return when all caches are in sync with the API server. Raises `TimeoutError` after `patience_s`
        without progress."""
        await self._controllers.wait_synced(patience_s=patience_s)

    async def wait_failed(self) -> BaseException:
        """Return when a task that must never end has ended, with the reason."""
        return await self._controllers.wait_failed()

    async def close(self) -> None:
        """Stop: cancels work in progress, which the next start repeats. Pending Events are written first,
        for at most half a second."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._controllers.flush(), _FLUSH_WITHIN_S)
        if self._probes is not None:
            await self._probes.close()
        await self._controllers.close()
        await self._tasks.close()
        await self._listeners.close()
        self._executor.close()
        await self._transport.close()


async def start_controllers(
    transport: Transport,
    options: ControllerOptions,
    *,
    clock: Clock | None = None,
    cluster: ClusterSettings | None = None,
) -> RunningControllers:
    """Start the controllers against the API server behind `transport`; without `cluster` their requests are
    not throttled and they start without leader election.

    Raises `StartError` for invalid options, or if a port cannot be listened on.
    """
    try:
        listeners = await open_listeners(_acme(options))
    except CannotListen as error:
        raise StartError(str(error)) from error
    executor, tasks, clock = Threads(), TaskSet(), clock or SystemClock()
    try:
        make = _ManagerFactory(clock, executor, _settings(options, listeners.options))
        controllers = (
            make(Client(transport, user_agent=USER_AGENT), None)
            if cluster is None
            else beside_a_server(transport, cluster, clock=clock, make=make, tasks=tasks)
        )
    except (StartError, ValueError) as error:
        await tasks.close()
        await listeners.close()
        executor.close()
        raise StartError(str(error)) from error
    controllers.start()
    http, tls = listeners.options.responder, listeners.options.listener
    if cluster is not None and (http is not None or tls is not None):
        client = Client(transport, user_agent=USER_AGENT, clock=clock)
        Responses(
            client,
            clock,
            http,
            tls,
            namespace=options.namespace or "",
            cluster_resource_namespace=options.cluster_resource_namespace,
        ).start(tasks)
    return RunningControllers(controllers, listeners, executor, transport, tasks, clock, make)


class _ManagerFactory:
    """Makes controller managers with the current settings, and reloads them."""

    def __init__(self, clock: Clock, executor: Threads, settings: Settings) -> None:
        self.settings = settings
        self._clock = clock
        self._executor = executor
        self._made: WeakSet[ControllerManager] = WeakSet()

    def __call__(self, client: Client, mine: Mine | None) -> ControllerManager:
        made = ControllerManager(client, self._clock, self._executor, self.settings, mine)
        self._made.add(made)
        return made

    async def reload(self, settings: Settings) -> None:
        """Raises `ValueError`."""
        self.settings, before = settings, self.settings
        try:
            for controllers in list(self._made):
                with suppress(TimeoutError):
                    await asyncio.wait_for(controllers.flush(), _FLUSH_WITHIN_S)
                await controllers.reload(settings)
        except ValueError:
            self.settings = before
            raise


def _acme(options: ControllerOptions) -> AcmeSettings:
    exact_paths = controller_gates(options.feature_gates)[EXACT_PATHS]
    return replace(options.acme, policy=operator_policy(options), http01_exact_paths=exact_paths)


def _settings(options: ControllerOptions, acme: AcmeOptions) -> Settings:
    """Raises `StartError`."""
    return Settings(
        enabled=options.controllers,
        cluster_resource_namespace=options.cluster_resource_namespace,
        namespace=options.namespace,
        backoff_minimum=options.backoff_minimum,
        backoff_maximum=options.backoff_maximum,
        issuer_attempts_per_hour=options.issuer_attempts_per_hour,
        certificate_owner_references=options.certificate_owner_references,
        copied_annotation_prefixes=options.copied_annotation_prefixes,
        filtered_secrets=controller_gates(options.feature_gates)[SECRETS_FILTERED_CACHING],
        acme=acme,
        shims=options.shims,
        deliveries=options.deliveries,
        api_server_ca=options.api_server_ca,
        notifications=read_notifications(options),
    )


def _is_same(one: Notifications | None, other: Notifications | None) -> bool:
    return one is not None and other is not None and one.settings == other.settings


def read_notifications(options: ControllerOptions) -> Notifications | None:
    """The notifications; None without a file. Raises `StartError`."""
    if options.notifications is None:
        return None
    # Where the controllers may write a ConfigMap in any case.
    namespace = options.namespace or options.cluster_resource_namespace
    return _read(options.notifications, namespace)


def _read(path: Path, namespace: str) -> Notifications:
    try:
        settings = read_settings(path)
        destinations = destinations_of(settings)
    except BadSettings as error:
        raise StartError(f"--notifications: {error}") from error
    sender = settings.sender or f"certwright on {socket.gethostname()}"
    return Notifications(settings=settings, destinations=destinations, sender=sender, namespace=namespace)


async def send_test(path: Path) -> AsyncIterator[tuple[str, str]]:
    """Send a test message to each destination of a file; yields its name and the error, empty for none.
    Raises `StartError` for a file that cannot be used."""
    settings = _read(path, "")
    for destination in settings.destinations:
        problem = ""
        try:
            await destination.send(Digest(sender=settings.sender, at=SystemClock().now()))
        except SendError as error:
            problem = str(error)
        yield destination.name, problem


_LONGEST_HEAD = 16 * 1024
_PATIENCE_S = 10.0
_TLS_END_S = 2.0


class Page(NamedTuple):
    """A response."""

    content_type: str
    body: bytes


MakePage = Callable[[], Awaitable[Page]]


class ProbeServer:
    """A small HTTP server for probes and scrapers inside a network: no users, read-only; with or without TLS.

    It serves each path with the result of its function. Every response closes the connection (RFC 9112),
    because clients come only every half minute. `port` is the real one if 0 was requested.
    """

    def __init__(self, server: asyncio.Server, open_connections: Collection[asyncio.StreamWriter]) -> None:
        self._server = server
        self._open_connections = open_connections
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and end the connections: a client that stays connected delays no shutdown."""
        self._server.close()
        # Not `wait_closed`, which waits for clients from Python 3.12 on.
        for writer in self._open_connections:
            writer.transport.abort()
        # The sockets are closed in the next turn of the loop.
        await asyncio.sleep(0)


async def serve_probes(
    host: str, port: int, pages: Mapping[str, MakePage], tls: ssl.SSLContext | None = None
) -> ProbeServer:
    """Start listening, with `tls` over TLS. Raises `OSError` if that fails."""
    open_connections: set[asyncio.StreamWriter] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.add(writer)
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await _answer(request, pages))
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        open_connections.discard(writer)

    times = {} if tls is None else {"ssl_handshake_timeout": _PATIENCE_S, "ssl_shutdown_timeout": _TLS_END_S}
    server = await asyncio.start_server(talk, host, port, limit=_LONGEST_HEAD, ssl=tls, **times)
    return ProbeServer(server, open_connections)


async def _answer(request: bytes, pages: Mapping[str, MakePage]) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    make = pages.get(path)
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", Page("text/plain", b"only GET\n"))
    if make is None:
        known = " ".join(sorted(pages))
        return _response("404 Not Found", Page("text/plain", f"there are {known}\n".encode()))
    return _response("200 OK", await make(), with_body=method == b"GET")


def _response(status: str, page: Page, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {page.content_type}\r\nContent-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (page.body if with_body else b"")
