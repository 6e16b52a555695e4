"""The controllers as a part of a process, against any API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from certwright.app.gates import controller_gates
from certwright.app.options import ControllerOptions, StartError
from certwright.controllers.acme.listeners import CannotListen, Listeners, open_listeners
from certwright.controllers.acme.revoked import Revoked
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.features import SECRETS_FILTERED_CACHING
from certwright.controllers.manager import Controllers
from certwright.controllers.replicas.cluster import USER_AGENT, ClusterSettings, beside_a_server
from certwright.controllers.replicas.replica import Replica
from certwright.controllers.replicas.shards import ShardedReplica
from certwright.kit import exposition
from certwright.kit.outgoing import ServerRules
from certwright.kit.probe_server import Page, Pages, serve_pages
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import Transport
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.executor import Threads
from certwright.kube.util.tasks import TaskSet

_FLUSH_WITHIN_S = 0.5


class RunningControllers:
    """Controllers at work; `close` stops them."""

    def __init__(
        self,
        controllers: Controllers | Replica | ShardedReplica,
        listeners: Listeners,
        workshop: Threads,
        transport: Transport,
        tasks: TaskSet,
    ) -> None:
        self._controllers = controllers
        self._tasks = tasks
        self._listeners = listeners
        self._workshop = workshop
        self._transport = transport
        self._pages: Pages | None = None

    def take_metrics(self) -> Callable[[], bytes]:
        """Hold the present numbers, and return a function that writes them down, also in a thread."""
        return self._controllers.metrics.take()

    async def serve_metrics(self, host: str, port: int) -> int:
        """Serve `/metrics`, and `/livez` for probes, over plain HTTP as long as the controllers run; the
        port, where 0 was asked for.

        Raises `StartError` where it cannot listen there.
        """

        async def metrics() -> Page:
            return Page(exposition.CONTENT_TYPE, await asyncio.to_thread(self.take_metrics()))

        async def livez() -> Page:
            return Page("text/plain; charset=utf-8", b"ok")

        try:
            self._pages = await serve_pages(host, port, {"/metrics": metrics, "/livez": livez})
        except OSError as error:
            raise StartError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
        return self._pages.port

    @property
    def holder(self) -> str:
        """Which replica holds the lease, as last seen; empty where there is no election."""
        return self._controllers.holder if isinstance(self._controllers, Replica | ShardedReplica) else ""

    @property
    def is_waiting(self) -> bool:
        """Whether another replica works, as last seen."""
        return isinstance(self._controllers, Replica | ShardedReplica) and not self._controllers.may_write

    async def wait_tried(self) -> None:
        """Return when it is known whether these controllers work or wait."""
        if isinstance(self._controllers, Replica):
            await self._controllers.wait_tried()

    async def wait_leading(self) -> None:
        """Return when these controllers are the ones at work; at once where there is no election."""
        if isinstance(self._controllers, Replica | ShardedReplica):
            await self._controllers.wait_leading()

    async def wait_synced(self, *, patience_s: float | None = None) -> None:
        """Return when all caches hold what the API server has. Raises `TimeoutError` when for `patience_s`
        nothing comes."""
        await self._controllers.wait_synced(patience_s=patience_s)

    async def wait_failed(self) -> BaseException:
        """Return when a part that must never end has ended, with the reason."""
        return await self._controllers.wait_failed()

    async def close(self) -> None:
        """Stop; what is under way is dropped and done again by the next start. Events that wait to be
        written are written first, as far as half a second allows."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._controllers.flush(), _FLUSH_WITHIN_S)
        if self._pages is not None:
            await self._pages.close()
        await self._controllers.close()
        await self._tasks.close()
        await self._listeners.close()
        self._workshop.close()
        await self._transport.close()


async def revoke(
    client: Client,
    namespace: str,
    name: str,
    *,
    reason: str,
    is_secret: bool,
    user_agent: str,
    allow_http: bool = False,
) -> Revoked:
    """See `controllers.acme.revoking`, which commands may not import. `allow_http`: also at an http://
    server.

    Raises `CannotRevoke`, `ApiError`.
    """
    # Here, not above: it loads what speaks to ACME servers.
    from certwright.controllers.acme import revoking

    return await revoking.revoke(
        client,
        namespace,
        name,
        reason=reason,
        is_secret=is_secret,
        user_agent=user_agent,
        rules=ServerRules(allow_http=allow_http),
    )


async def start_controllers(
    transport: Transport,
    options: ControllerOptions,
    *,
    clock: Clock | None = None,
    cluster: ClusterSettings | None = None,
) -> RunningControllers:
    """Start the controllers against the API server behind `transport`; without `cluster` they ask it as often
    as they like and work at once.

    Raises `StartError` when the options make no sense, or a port that they name cannot be listened at.
    """
    gates = controller_gates(options.feature_gates)
    try:
        listeners = await open_listeners(options.acme)
    except CannotListen as error:
        raise StartError(str(error)) from error
    workshop, tasks, clock = Threads(), TaskSet(), clock or SystemClock()

    def make(client: Client, mine: Mine | None) -> Controllers:
        return Controllers(
            client,
            clock,
            workshop,
            enabled=options.controllers,
            cluster_resource_namespace=options.cluster_resource_namespace,
            namespace=options.namespace,
            backoff_minimum=options.backoff_minimum,
            backoff_maximum=options.backoff_maximum,
            issuer_attempts_per_hour=options.issuer_attempts_per_hour,
            certificate_owner_references=options.certificate_owner_references,
            copied_annotation_prefixes=options.copied_annotation_prefixes,
            filtered_secrets=gates[SECRETS_FILTERED_CACHING],
            acme=listeners.options,
            mine=mine,
        )

    try:
        controllers = (
            make(Client(transport, user_agent=USER_AGENT), None)
            if cluster is None
            else beside_a_server(transport, cluster, clock=clock, make=make, tasks=tasks)
        )
    except ValueError as error:
        await tasks.close()
        await listeners.close()
        workshop.close()
        raise StartError(str(error)) from error
    controllers.start()
    return RunningControllers(controllers, listeners, workshop, transport, tasks)
