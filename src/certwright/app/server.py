"""The daemon: store, API server, HTTPS, and the controllers in the same process."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import re
import ssl
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from certwright.admission import certificate_kinds
from certwright.app import opening, shared_files, tls_identity
from certwright.app.controllers import Closers, RunningControllers, start_controllers
from certwright.app.dashboard import DashboardHandler
from certwright.app.loop import LAG, collect_frozen, freeze_heap
from certwright.app.opening import ADMIN, StaticUsers
from certwright.app.options import ServeOptions, StartError, operator_policy, server_gates
from certwright.app.stores import open_store
from certwright.app.tls_identity import ServingIdentity
from certwright.controllers.replicas.shards import LEASE_NAME, ClusterSettings
from certwright.kit import logs
from certwright.kube.api.errors import ApiError
from certwright.kube.apiserver.auth.authentication import ClientCertificates, FirstOf
from certwright.kube.apiserver.auth.tokens import TokenIssuer, load_or_make_key
from certwright.kube.apiserver.http.https import HttpsServer
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client import kubeconfig
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.store.contract import Shared, Store, StoreError
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.encoding import in_brackets
from certwright.kube.util.files import write_atomically
from certwright.kube.util.http_messages import Identity
from certwright.kube.util.tasks import TaskSet
from certwright.pki.certificates import read_certificate
from certwright.resources.crds import custom_resource_definitions

_log = logging.getLogger(__name__)
# However much data there is, some of it arrives within this time.
_PATIENCE_S = 60.0

CONTROLLER = Identity(
    "system:serviceaccount:cert-manager:cert-manager",
    groups=("system:serviceaccounts", "system:serviceaccounts:cert-manager", "system:authenticated"),
)
"""The identity of the controllers in this process: the default roles grant their rights."""


class _InUse:
    """The current options, which a reload replaces, and the policy that admission enforces. A server without
    controllers and without any of the flags leaves enforcement to the controllers in other processes, which
    have flags of their own."""

    def __init__(self, options: ServeOptions) -> None:
        self.use(options)

    def use(self, options: ServeOptions) -> None:
        """Raises `StartError`."""
        policy = operator_policy(options.controllers)
        is_enforced = options.controllers.controllers or policy.allows_anything
        self.options, self.policy = options, policy if is_enforced else None


class RunningServer:
    """The running daemon."""

    def __init__(
        self,
        api: ApiServer,
        users: StaticUsers,
        in_use: _InUse,
        closers: Closers,
        front: DashboardHandler,
        token: str,
    ) -> None:
        self._api = api
        self._front = front
        self._token = token
        self._in_use = in_use
        self._users = users
        self._closers = closers
        self._tasks = TaskSet()
        closers.add(self._tasks.close)
        self._serving: Serving | None = None
        self.address = ""
        self.kubeconfig = kubeconfig_of(self.options)
        self.controllers: RunningControllers | None = None

    @property
    def options(self) -> ServeOptions:
        """The options in use."""
        return self._in_use.options

    def client(self, user_agent: str) -> Client:
        """A client inside this process, with the administrator's rights."""
        return Client(LocalTransport(self._api.handle, ADMIN), user_agent=user_agent)

    def dashboard_link(self) -> str:
        """A one-time link to the dashboard for the administrator; empty without a dashboard."""
        return "" if self.options.dashboard == "off" else f"{self.address}{self._front.link(self._token)}"

    def serve(self, serving: Serving, port: int) -> None:
        """Renew the certificate of the front end for as long as the daemon runs."""
        self._serving = serving
        self.address = f"https://{opening.in_url(self.options.host)}:{port}"
        self.watch_over(serving.keep(), name="serving certificate")

    @property
    def others(self) -> tuple[str, ...]:
        """The URLs by which other machines reach the server."""
        return self._serving.others if self._serving is not None else ()

    async def reload(self, options: ServeOptions | None = None) -> None:
        """Use other options (None: the same) and read all files again. These may differ: the limits on
        requests, the names and files of users and of the serving certificate, and the settings of controllers
        other than their listeners, namespaces and feature gates.

        Raises `StartError` for unusable options; the former options then stay.
        """
        before = self.options
        options = options or before
        settings = None
        if self.controllers is not None:
            settings = self.controllers.read(options.controllers)
        self._in_use.use(options)
        try:
            if self._serving is not None:
                self._serving.reload()
            self._users.reload()
        except (StartError, OSError, ssl.SSLError) as error:
            self._in_use.use(before)
            raise StartError(str(error)) from error
        if options.in_flight != before.in_flight:
            self._api.use_limits(options.in_flight)
        await self._front.reload()
        if self.controllers is not None and settings is not None and await self.controllers.reload(settings):
            collect_frozen()
            self.watch_over(self._keep_caches(), name="caches")

    async def _keep_caches(self) -> None:
        assert self.controllers is not None
        await self.controllers.wait_synced()
        freeze_heap()

    def watch_over(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a background task for as long as the daemon runs."""
        self._tasks.start(work, name=name)

    async def wait_failed(self) -> BaseException:
        """Return when a task that must never end has ended, with the reason."""
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
        """Stop accepting requests, end watches, commit pending writes, close the store."""
        await self._closers.close()


async def start_server(options: ServeOptions, *, clock: Clock | None = None) -> RunningServer:
    """Start the daemon; it is ready when this returns.

    Raises `StartError` if it cannot start (port taken, directory not writable or in use by another process,
    database damaged, wrong option), after stopping its started parts.
    """
    closers = Closers()
    try:
        return await _start_server(options, clock or SystemClock(), closers)
    except BaseException:
        await closers.close()
        raise


async def _start_server(options: ServeOptions, clock: Clock, closers: Closers) -> RunningServer:
    gates = server_gates(options.feature_gates)
    opening.lock_data_dir(options.data_dir, closers)
    store = await open_store(options)
    closers.add(store.close)
    own, in_use = await _files(store, options, clock), _InUse(options)
    identity, users = (
        own.identity,
        StaticUsers(
            opening.admin_token_path(options.data_dir), lambda: opening.tokens(in_use.options), clock
        ),
    )
    api = ApiServer(
        store,
        clock,
        authenticator=FirstOf(ClientCertificates(clock), users),
        tokens=TokenIssuer(own.signing_key, options.service_account_issuer),
        anonymous=options.anonymous_auth,
        gates=gates,
        root_ca=identity.ca_pem.decode(),
        event_ttl=options.event_ttl,
        in_flight=options.in_flight,
        extensions=certificate_kinds(lambda: in_use.policy),
    )
    closers.add(api.close)
    try:
        # Objects that the controllers read come first.
        await api.start(custom_resource_definitions(), collects_garbage=False)
    except (StoreError, ApiError) as error:
        raise StartError(str(error)) from error
    front = DashboardHandler(
        api, lambda: in_use.options, clock, system=ADMIN, seal_key=_secret_bytes(own.signing_key)
    )
    closers.add(front.close)
    face = await opening.listen(front.handle, options, identity)
    closers.add(face.close)
    await api.publish(host=options.host, port=face.port)
    server = RunningServer(api, users, in_use, closers, front, own.token)
    api.use_front_proxy(identity.front_proxy, certificates_in(options.client_ca_file or identity.ca_path))
    server.serve(Serving(api, face, identity, in_use, clock), face.port)
    if isinstance(store, Shared):
        server.watch_over(_fail_when_lost(store), name="events of the store")
        server.watch_over(shared_files.follow_token(store, options.data_dir, clock), name="shared token")
    api.add_metrics(LAG.take_metrics)
    if options.controllers.controllers:
        local = LocalTransport(api.handle, CONTROLLER)
        cluster = _cluster(options)
        controllers = replace(options.controllers, api_server_ca=identity.ca_pem)
        server.controllers = await start_controllers(local, controllers, clock=clock, cluster=cluster)
        closers.add(server.controllers.close)
        api.add_metrics(server.controllers.take_metrics)
        await _wait_at_work(server.controllers, options, is_alone=not isinstance(store, Shared))
    api.collect_garbage()
    with opening.writing(options.data_dir):
        write_atomically(server.kubeconfig, kubeconfig.render(server.address, identity.ca_pem, own.token))
    return server


class _Files(msgspec.Struct, frozen=True):
    """The contents of the data directory."""

    identity: tls_identity.ServingIdentity
    token: str
    signing_key: EllipticCurvePrivateKey


async def _files(store: Store, options: ServeOptions, clock: Clock) -> _Files:
    folder = options.data_dir / "pki"

    def make() -> _Files:
        return _Files(
            tls_identity.load_or_make(tls_identity.settings_of(options), now=clock.now()),
            opening.admin_token(options.data_dir),
            load_or_make_key(folder / "sa.key"),
        )

    with opening.writing(options.data_dir):
        if isinstance(store, Shared):
            try:
                await shared_files.share(store, options.data_dir, make)
            except StoreError as error:
                raise StartError(str(error)) from error
        return make()


def _secret_bytes(key: EllipticCurvePrivateKey) -> bytes:
    """What all servers of a store know, and nobody else."""
    return key.private_numbers().private_value.to_bytes(66, "big")


def _cluster(options: ServeOptions) -> ClusterSettings | None:
    """Settings for coexistence with the controllers of other servers or cert-manager; None: there are none.
    No throttling, because their requests go to their own server."""
    if not options.leader_elect:
        return None
    with opening.writing(options.data_dir):
        identity = opening.replica_identity(options.data_dir)
    return ClusterSettings(
        identity=identity, kube_api_qps=-1, leader_election_namespace=options.leader_election_namespace
    )


async def _wait_at_work(controllers: RunningControllers, options: ServeOptions, *, is_alone: bool) -> None:
    """Return when the controllers lead, or wait for another holder of the Lease, which is logged."""
    await controllers.wait_tried()
    if not controllers.is_waiting:
        if is_alone:
            try:
                await controllers.wait_synced(patience_s=_PATIENCE_S)
            except TimeoutError:
                raise StartError(
                    "the controllers could not read what the store holds: nothing came for "
                    f"{_PATIENCE_S:.0f} s; the log lines above say why"
                ) from None
        return
    # Of several servers on one store, most wait for the Lease of another.
    _log.log(
        logging.WARNING if is_alone else logging.INFO,
        "this server's controllers wait: %s holds the lease %s/%s; they start when it is released or expires",
        controllers.holder or "no replica",
        options.leader_election_namespace,
        LEASE_NAME,
    )


async def _fail_when_lost(store: Shared) -> None:
    raise await store.wait_lost()


_log = logging.getLogger(__name__)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
_CHECK_EVERY_S = 30.0
"""How often the certificates are compared with the clock, which may have been set forward and back since."""
_ADDRESSES_EVERY_S = 600.0
"""How often a server that listens on every address looks for new ones."""


def certificates_in(path: Path) -> str:
    """The certificates of a PEM file, without its comments. Raises `OSError`."""
    return "".join(f"{pem}\n" for pem in _PEM.findall(path.read_text(errors="replace")))


class Serving:
    """The HTTPS front end of the running server. Its certificate is renewed in time, and when the addresses
    of the machine change; its files can be read again."""

    def __init__(
        self,
        api: ApiServer,
        face: HttpsServer,
        identity: ServingIdentity,
        in_use: _InUse,
        clock: Clock,
    ) -> None:
        self._api = api
        self._server = face
        self._identity = identity
        self._in_use = in_use
        self._clock = clock

    @property
    def others(self) -> tuple[str, ...]:
        """The URLs for other machines: with the operator's names, and with the machine's addresses if the
        server listens on every address."""
        hosts = [*self._in_use.options.tls_sans]
        if self._in_use.options.host in tls_identity.ANY_ADDRESS:
            hosts += [name for name in self._identity.names if _is_remote(name)]
        return tuple(f"https://{in_brackets(host)}:{self._server.port}" for host in dict.fromkeys(hosts))

    async def keep(self) -> None:
        """Renew the certificate in time, without dropping a connection, for ever."""
        looked_at = self._clock.monotonic()
        while True:
            await self._clock.sleep(_CHECK_EVERY_S)
            since = self._clock.monotonic() - looked_at
            looks = self._in_use.options.host in tls_identity.ANY_ADDRESS and since >= _ADDRESSES_EVERY_S
            if not looks and not self._identity.is_due(self._clock.now()):
                continue
            looked_at = self._clock.monotonic()
            settings, now = tls_identity.settings_of(self._in_use.options), self._clock.now()
            try:
                identity = await asyncio.to_thread(tls_identity.load_or_make, settings, now=now)
                if identity != self._identity:
                    self._use(identity)
            except (OSError, ssl.SSLError) as error:
                _log.warning("the server's own certificate could not be renewed: %s; trying again", error)

    def reload(self) -> None:
        """Read the files of the certificate and of the clients' CAs again. Raises `OSError` and
        `ssl.SSLError`; nothing has changed then."""
        settings = tls_identity.settings_of(self._in_use.options)
        self._use(tls_identity.load_or_make(settings, now=self._clock.now()))

    def _use(self, identity: ServingIdentity) -> None:
        client_ca = self._in_use.options.client_ca_file or identity.ca_path
        self._server.reload(identity.cert_path, identity.key_path, client_ca)
        self._api.use_front_proxy(identity.front_proxy, certificates_in(client_ca))
        before, self._identity = self._identity, identity
        if identity.ca_pem != before.ca_pem:
            self._api.use_root_ca(identity.ca_pem.decode())
            if (path := kubeconfig_of(self._in_use.options)).exists():
                old, new = base64.b64encode(before.ca_pem), base64.b64encode(identity.ca_pem)
                write_atomically(path, path.read_bytes().replace(old, new))
            logs.event(
                _log,
                logging.INFO,
                "the server's own CA was renewed; renew the kubeconfigs of users before the former one ends",
                subject="server",
                formerEnds=read_certificate(before.ca_pem).not_after,
                ends=read_certificate(identity.ca_pem).not_after,
            )


def kubeconfig_of(options: ServeOptions) -> Path:
    """The kubeconfig that a server writes."""
    return options.data_dir / "kubeconfig"


def _is_remote(name: str) -> bool:
    try:
        return not ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
