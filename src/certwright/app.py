"""FRONT HALL: picks the implementations, wires them, starts and stops them. One function per process shape.

`start_server` makes the daemon: store, API server, HTTPS, and the controllers inside the same process.
`start_controllers` makes the controllers alone, against any API server.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import secrets
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from certwright.apiserver import asgi, features, serving
from certwright.apiserver.background.expiry import DEFAULT_TTL
from certwright.apiserver.features import FeatureGates
from certwright.apiserver.server import ApiServer
from certwright.apiserver.users.auth import ClientCertificates, FirstOf, StaticTokens, read_token_file
from certwright.apiserver.users.tokens import DEFAULT_ISSUER, TokenIssuer, load_or_make_key
from certwright.client import kubeconfig
from certwright.client.local import LocalTransport
from certwright.client.rest import Client
from certwright.client.transport import Transport
from certwright.controllers.acme.listeners import AcmeSettings as AcmeSettings
from certwright.controllers.acme.listeners import CannotListen, Listeners, open_listeners
from certwright.controllers.acme.revoked import CannotRevoke as CannotRevoke
from certwright.controllers.acme.revoked import Revoked as Revoked
from certwright.controllers.beside import USER_AGENT, beside_a_server
from certwright.controllers.beside import ClusterSettings as ClusterSettings
from certwright.controllers.manager import Controllers
from certwright.controllers.ours import Mine
from certwright.controllers.replica import Replica
from certwright.controllers.shards import ShardedReplica
from certwright.engine.lease import Terms as Terms
from certwright.kit import exposition
from certwright.kit.clock import Clock, SystemClock
from certwright.kit.exchange import Identity
from certwright.kit.files import AlreadyLocked, FileLock, write_atomically
from certwright.kit.pages import Page, Pages, serve_pages
from certwright.kit.tasks import TaskSet
from certwright.kit.workshop import Threads
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.errors import ApiError
from certwright.store.contract import Store, StoreError
from certwright.store.memory import MemoryStore
from certwright.store.sqlite import open_sqlite

T = TypeVar("T")

_log = logging.getLogger(__name__)
_SYNC_WITHIN_S = 60.0
_FLUSH_WITHIN_S = 0.5

ADMIN = Identity("admin", groups=("system:masters", "system:authenticated"))
CONTROLLER = Identity(
    "system:serviceaccount:cert-manager:cert-manager",
    groups=("system:serviceaccounts", "system:serviceaccounts:cert-manager", "system:authenticated"),
)
"""Who the controllers inside this process are: what they may do is what the default roles say."""


class StartError(Exception):
    """The program cannot start; the text is one sentence for whoever started it."""


@dataclass(frozen=True, kw_only=True)
class ControllerOptions:
    """What the controllers can be told; names and meanings as cert-manager's flags.

    `controllers` is the list of `--controllers`; empty means none.
    """

    controllers: str = "*"
    cluster_resource_namespace: str = "kube-system"
    namespace: str | None = None
    backoff_minimum: timedelta = timedelta(hours=1)
    backoff_maximum: timedelta = timedelta(hours=32)
    issuer_attempts_per_hour: int = 12
    certificate_owner_references: bool = False
    acme: AcmeSettings = field(default_factory=AcmeSettings)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What the daemon can be told. `store` is a path, `memory`, or None for a file in `data_dir`.

    `token_auth_file`, `client_ca_file` (None: the daemon's own CA), `anonymous_auth` and
    `service_account_issuer` mean what kube-apiserver's flags of these names mean, and so does `feature_gates`
    (`A=true,B=false`) and `event_ttl` (zero: for ever).
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 8443
    store: str | None = None
    controllers: ControllerOptions = field(default_factory=ControllerOptions)
    token_auth_file: Path | None = None
    client_ca_file: Path | None = None
    anonymous_auth: bool = False
    event_ttl: timedelta = DEFAULT_TTL
    feature_gates: str = ""
    service_account_issuer: str = DEFAULT_ISSUER


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

    async def wait_leading(self) -> None:
        """Return when these controllers are the ones at work; at once where there is no election."""
        if isinstance(self._controllers, Replica | ShardedReplica):
            await self._controllers.wait_leading()

    async def wait_synced(self) -> None:
        """Return when all caches hold what the API server has."""
        await self._controllers.wait_synced()

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
    client: Client, namespace: str, name: str, *, reason: str, is_secret: bool, user_agent: str
) -> Revoked:
    """See `controllers.acme.revoking`, which commands may not look into.

    Raises `CannotRevoke`, `ApiError`.
    """
    # Here, not above: it loads what speaks to ACME servers.
    from certwright.controllers.acme import revoking

    return await revoking.revoke(
        client, namespace, name, reason=reason, is_secret=is_secret, user_agent=user_agent
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


class RunningServer:
    """The daemon at work."""

    def __init__(self, api: ApiServer, address: str, kubeconfig_path: Path, closers: _Closers) -> None:
        self._api = api
        self._closers = closers
        self._tasks = TaskSet()
        closers.add(self._tasks.close)
        self.address = address
        self.kubeconfig = kubeconfig_path
        self.controllers: RunningControllers | None = None

    def client(self, user_agent: str) -> Client:
        """A client inside this process, with the administrator's rights."""
        return Client(LocalTransport(self._api.handle, ADMIN), user_agent=user_agent)

    def watch_over(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run something for as long as the daemon runs."""
        self._tasks.start(work, name=name)

    async def wait_failed(self) -> BaseException:
        """Return when a part that must never end has ended, with the reason."""
        waits: list[Coroutine[Any, Any, BaseException]] = [self._own_failure()]
        if self.controllers is not None:
            waits.append(self.controllers.wait_failed())
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in tasks:
                task.cancel()

    async def _own_failure(self) -> BaseException:
        await self._tasks.failed.wait()
        return self._tasks.error or RuntimeError("a background task ended")

    async def close(self) -> None:
        """Stop accepting requests, end watches, commit what is being written, let go of the data."""
        await self._closers.close()


class _Closers:
    """What has to be undone, last started first; one that fails does not keep the others from it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Awaitable[None]]] = []

    def add(self, undo: Callable[[], Awaitable[None]]) -> None:
        self._undo.append(undo)

    async def close(self) -> None:
        while self._undo:
            undo = self._undo.pop()
            try:
                await undo()
            except Exception:
                _log.exception("a part did not stop cleanly")


async def start_server(options: ServeOptions, *, clock: Clock | None = None) -> RunningServer:
    """Start the daemon; it is ready when this returns.

    Raises `StartError` when it cannot (port taken, directory not writable, in use by another process,
    database damaged, wrong option); whatever had been started is stopped again.
    """
    closers = _Closers()
    try:
        return await _start_server(options, clock or SystemClock(), closers)
    except BaseException:
        await closers.close()
        raise


async def _start_server(options: ServeOptions, clock: Clock, closers: _Closers) -> RunningServer:
    gates = _gates(options)
    _lock_data_dir(options.data_dir, closers)
    store = await _open_store(options)
    closers.add(store.close)
    with _writing(options.data_dir):
        identity = serving.load_or_make(options.data_dir / "pki", host=options.host, now=clock.now())
        token = _admin_token(options.data_dir)
        signing_key = load_or_make_key(options.data_dir / "pki" / "sa.key")
    api = ApiServer(
        store,
        clock,
        authenticator=FirstOf(ClientCertificates(clock), StaticTokens(_tokens(options) | {token: ADMIN})),
        tokens=TokenIssuer(signing_key, options.service_account_issuer),
        anonymous=options.anonymous_auth,
        gates=gates,
        root_ca=identity.ca_pem.decode(),
        event_ttl=options.event_ttl,
    )
    closers.add(api.close)
    try:
        await api.start(custom_resource_definitions())
    except (StoreError, ApiError) as error:
        raise StartError(str(error)) from error
    face = await _listen(api, options, identity)
    closers.add(face.close)
    await api.publish(host=options.host, port=face.port)
    address = f"https://{_in_url(options.host)}:{face.port}"
    server = RunningServer(api, address, options.data_dir / "kubeconfig", closers)
    server.watch_over(_keep_serving(face, identity, options, clock), name="serving certificate")
    if options.controllers.controllers:
        local = LocalTransport(api.handle, CONTROLLER)
        server.controllers = await start_controllers(local, options.controllers, clock=clock)
        closers.add(server.controllers.close)
        api.add_metrics(server.controllers.take_metrics)
        await _wait_synced(server.controllers)
    with _writing(options.data_dir):
        write_atomically(server.kubeconfig, kubeconfig.render(address, identity.ca_pem, token))
    return server


def _gates(options: ServeOptions) -> FeatureGates:
    try:
        return FeatureGates(features.parse(options.feature_gates))
    except ValueError as error:
        raise StartError(f"--feature-gates: {error}") from error


async def _wait_synced(controllers: RunningControllers) -> None:
    try:
        await asyncio.wait_for(controllers.wait_synced(), _SYNC_WITHIN_S)
    except TimeoutError:
        raise StartError(
            f"the controllers could not read what the store holds within {_SYNC_WITHIN_S:.0f} s; "
            "the log lines above say why"
        ) from None


async def _keep_serving(
    face: asgi.HttpsFace, identity: serving.ServingIdentity, options: ServeOptions, clock: Clock
) -> None:
    """Renew the server's own certificate in time, without dropping a connection."""
    while True:
        await clock.sleep_until(max(identity.renew_at, clock.now() + timedelta(minutes=1)))
        try:
            identity = serving.load_or_make(options.data_dir / "pki", host=options.host, now=clock.now())
            face.reload(identity.cert_path, identity.key_path)
        except OSError as error:
            _log.warning("the server's own certificate could not be renewed: %s; trying again", error)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what goes wrong with files below `path` into a sentence."""
    try:
        yield
    except OSError as error:
        raise StartError(_cannot_write(path, error)) from error


def _lock_data_dir(data_dir: Path, closers: _Closers) -> None:
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(data_dir / "lock", holder=f"process {os.getpid()}")
        lock.acquire()
    except AlreadyLocked as error:
        raise StartError(
            f"{data_dir} is in use by another certwright ({error.holder or 'unknown process'}); "
            "stop that one, or choose another --data-dir"
        ) from error
    except OSError as error:
        raise StartError(_cannot_write(data_dir, error)) from error

    async def release() -> None:
        lock.release()

    closers.add(release)


def _cannot_write(path: Path, error: OSError) -> str:
    what = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        return f"the disk that holds {path} is full"
    return f"cannot write to {path}: {what}; choose a directory that this user may write to with --data-dir"


async def _open_store(options: ServeOptions) -> Store:
    where = options.store
    if where == "memory":
        return MemoryStore()
    if where is not None and where.startswith("etcd://"):
        raise StartError(f"--store {where}: this version has no etcd store yet; give a path, or memory")
    try:
        return await open_sqlite(Path(where) if where else options.data_dir / "store.sqlite")
    except StoreError as error:
        raise StartError(str(error)) from error


def _admin_token(data_dir: Path) -> str:
    path = data_dir / "pki" / "admin.token"
    if path.exists() and (token := path.read_text().strip()):
        return token
    token = secrets.token_urlsafe(32)
    write_atomically(path, token.encode())
    return token


def _tokens(options: ServeOptions) -> dict[str, Identity]:
    """The tokens of the file that the options name."""
    if options.token_auth_file is None:
        return {}
    try:
        return read_token_file(options.token_auth_file)
    except OSError as error:
        raise StartError(f"--token-auth-file {options.token_auth_file}: {error.strerror or error}") from error
    except ValueError as error:
        raise StartError(f"--token-auth-file {error}") from error


async def _listen(api: ApiServer, options: ServeOptions, identity: serving.ServingIdentity) -> asgi.HttpsFace:
    try:
        return await asgi.serve_https(
            api.handle,
            host=options.host,
            port=options.port,
            certfile=identity.cert_path,
            keyfile=identity.key_path,
            client_ca_file=options.client_ca_file or identity.ca_path,
        )
    except ssl.SSLError as error:
        if options.client_ca_file is None:
            raise
        raise StartError(
            f"--client-ca-file {options.client_ca_file} holds no CA certificates in PEM form"
        ) from error
    except OSError as error:
        if options.client_ca_file is not None and not options.client_ca_file.exists():
            raise StartError(f"--client-ca-file {options.client_ca_file} is not there") from error
        where = f"{options.host}:{options.port}"
        if error.errno == errno.EADDRINUSE:
            hint = (
                "stop the program that has it, or choose another port with --listen (port 0 picks a free one)"
            )
            raise StartError(f"port {options.port} on {options.host} is in use; {hint}") from error
        raise StartError(f"cannot listen on {where}: {error.strerror or error}") from error


def _in_url(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 - not bound here: written into the kubeconfig
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return f"[{host}]" if ":" in host else host


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on the fastest event loop there is (uvloop where it is installed)."""
    # The objects in the caches are many, long-lived and without cycles: looking through them after every
    # 700 allocations, as Python does by default, costs a fifth of the processor time of an issuance, and
    # more with every certificate there is.
    gc.set_threshold(20_000, 20, 20)
    try:
        import uvloop  # not on Windows
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
