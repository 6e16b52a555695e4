"""The dashboard in the daemon: its share of the requests, their users, and its start at the first request.

Also the dashboard of controllers beside another API server, on a port of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from certwright.app.metrics_tls import CertificateFiles, MetricsTls, OwnCertificate, ServingCertificate
from certwright.app.options import ServeOptions, StartError
from certwright.app.tls_identity import own_addresses
from certwright.dashboard.access import Access, Credential, Options, ProcessorShare
from certwright.dashboard.sessions import Sessions
from certwright.kit.outgoing import HTTPS_ONLY, ServerRules
from certwright.kube.api.core import SELF_SUBJECT_REVIEWS, TOKEN_REVIEWS
from certwright.kube.api.errors import BadRequest, Forbidden, Unauthorized
from certwright.kube.api.kinds import Kind
from certwright.kube.apiserver.base.users import flow_of, is_privileged
from certwright.kube.apiserver.http.fairness import Bounds, PriorityLevel
from certwright.kube.apiserver.http.https import HttpsServer, serve_https
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport, Transport
from certwright.kube.util.clock import Clock
from certwright.kube.util.encoding import in_brackets
from certwright.kube.util.http_messages import Identity, Request, Response
from certwright.kube.util.tasks import TaskSet

if TYPE_CHECKING:
    from certwright.dashboard.site import Site

PATH = "/ui"
_USER_AGENT = "certwright-dashboard"
_PAGES: Final = Bounds(seats=6, per_flow=2, per_turn=1, waiting=100, waiting_in_all=1000)
"""Pages that are computed at the same time, in all and of one user, and how many wait: a client that waits
costs less than one that is refused and asks again."""
_ACTIONS: Final = Bounds(seats=32, per_flow=2, per_turn=1, waiting=10, waiting_in_all=200)
"""Forms, apart from pages, because a revocation waits for a CA, which may be a tenant's own."""
_ATTEMPTS: Final = Bounds(seats=4, per_flow=2, waiting=10, waiting_in_all=100)
"""Log-ins that are tried at the same time, in all and from one address."""
_REVIEWS: Final = Bounds(seats=8, per_flow=4, waiting=50, waiting_in_all=200)
"""Tokens that the cluster reviews at the same time, in all and for one address."""
_KNOWN_S: Final = 1.0
_AFTER_FAILURE_S: Final = 1.0
"""How long a log-in that failed counts: so there are two in a second from one address, four in all."""
_SHARE, _BURST_S = 0.2, 5.0
"""The share of a processor that the pages of one user may use, beyond so many seconds of it."""
_SHARE_OF_ALL, _BURST_OF_ALL_S = 0.5, 10.0
"""The same for the pages of all users but administrators."""
_MOST_OF_ONE_PAGE_S: Final = 0.5
_MOST_FLOWS: Final = 1_000


class _Turns:
    """Turns of users at the dashboard, whose requests to the API are within the process and wait for nothing
    there.

    Pages are computed in the event loop that answers the API's requests. So few are computed at the same
    time, users take turns, and a user whose pages have used much of the processor waits before the next.
    """

    def __init__(self) -> None:
        self._pages = PriorityLevel("dashboard", _PAGES)
        self._actions = PriorityLevel("dashboard forms", _ACTIONS)
        self._attempts = PriorityLevel("dashboard log-in", _ATTEMPTS)
        self._shares: dict[str, ProcessorShare] = {}
        self._share_of_all = ProcessorShare(_SHARE_OF_ALL, _BURST_OF_ALL_S)

    @asynccontextmanager
    async def page(self, identity: Identity) -> AsyncIterator[None]:
        """See `Access.turn`."""
        flow = flow_of(identity)
        seats = self._pages.take(flow, 1) or await self._pages.wait(flow, 1)
        begun = time.thread_time()
        try:
            yield
        finally:
            # Other work of the loop meanwhile counts, too: on a busy server pages are fewer.
            used = min(time.thread_time() - begun, _MOST_OF_ONE_PAGE_S)
            pause = 0.0 if is_privileged(identity) else self._pause(flow, used)
            asyncio.get_running_loop().call_later(pause, seats.leave) if pause else seats.leave()

    def _pause(self, flow: str, used: float) -> float:
        """Seconds until the flow may have its next page: none within its burst."""
        now = time.monotonic()
        if len(self._shares) > _MOST_FLOWS:
            self._shares = {name: one for name, one in self._shares.items() if not one.is_unused(now)}
        share = self._shares.setdefault(flow, ProcessorShare(_SHARE, _BURST_S))
        return max(share.spend(used, now), self._share_of_all.spend(used, now))

    @asynccontextmanager
    async def action(self, identity: Identity) -> AsyncIterator[None]:
        """See `Access.action`."""
        flow = flow_of(identity)
        seats = self._actions.take(flow, 1) or await self._actions.wait(flow, 1)
        try:
            yield
        finally:
            seats.leave()

    @asynccontextmanager
    async def attempt(self, request: Request) -> AsyncIterator[None]:
        """See `Access.attempt`."""
        address = getattr(request.caller, "address", "")
        seats = self._attempts.take(address, 1) or await self._attempts.wait(address, 1)
        try:
            yield
        except BaseException:
            asyncio.get_running_loop().call_later(_AFTER_FAILURE_S, seats.leave)
            raise
        seats.leave()


class FairAccess:
    """The part of an `Access` that limits what users and strangers may ask for."""

    def __init__(self) -> None:
        turns = _Turns()
        self.turn = turns.page
        self.action = turns.action
        self.attempt = turns.attempt

    def flow(self, identity: Identity) -> str:
        """See `Access`."""
        return flow_of(identity)

    @property
    def generation(self) -> int | None:
        """See `Access`: not known of another server."""
        return None


class _ServerAccess(FairAccess):
    """The `Access` of the daemon: the API server of the same process."""

    def __init__(self, api: ApiServer, system: Identity) -> None:
        super().__init__()
        self._api = api
        self._system = system

    async def identify(self, credential: Credential, request: Request | None = None) -> Identity:
        """See `Access`."""
        headers = {"authorization": f"Bearer {credential.token}"} if credential.token else {}
        asked = Request("GET", f"{PATH}/", headers, peer_certificate=credential.certificate or None)
        asked.caller = request.caller if request is not None else None
        return await self._api.identify(asked)

    @property
    def generation(self) -> int | None:
        """See `Access`."""
        return self._api.rights_generation

    def client(self, credential: Credential, identity: Identity) -> Client:  # noqa: ARG002 - the contract
        """See `Access`."""
        return Client(LocalTransport(self._api.handle, identity), user_agent=_USER_AGENT)

    @property
    def system(self) -> Client:
        """See `Access`."""
        return Client(LocalTransport(self._api.handle, self._system), user_agent=_USER_AGENT)


class ClusterAccess(FairAccess):
    """The `Access` of controllers beside an API server: TokenReview says who sends a token, and all that is
    shown is read with it. `system` and `users` send requests to that server, with the rights of the
    controllers, and without credentials.

    Where the controllers may not review tokens (those of one namespace), the server tells the user's name to
    the user (SelfSubjectReview, from Kubernetes 1.28 on)."""

    def __init__(self, system: Transport, users: Transport, clock: Clock) -> None:
        super().__init__()
        self._client = Client(system, user_agent=_USER_AGENT)
        self._users = users
        self._clock = clock
        # Reviews that strangers cause are few at a time: each is a request of the controllers.
        self._reviews = PriorityLevel("dashboard reviews", _REVIEWS)
        self._known: dict[bytes, tuple[float, Identity]] = {}

    async def identify(self, credential: Credential, request: Request | None = None) -> Identity:
        """See `Access`. An answer is used for a second."""
        caller = request.caller if request is not None else None
        if not credential.token or not (credential.token.isascii() and credential.token.isprintable()):
            raise Unauthorized("log in with a token")
        now, key = self._clock.monotonic(), hashlib.sha256(credential.token.encode()).digest()
        until, identity = self._known.get(key, (0.0, None))
        if identity is None or now >= until:
            flow = getattr(caller, "address", "")
            seats = self._reviews.take(flow, 1) or await self._reviews.wait(flow, 1)
            try:
                identity = await self._review(credential.token)
            finally:
                seats.leave()
            if len(self._known) >= _MOST_FLOWS:
                self._known.clear()
            self._known[key] = now + _KNOWN_S, identity
        if caller is not None:
            caller.identify(flow_of(identity), is_privileged=is_privileged(identity))
        return identity

    async def _review(self, token: str) -> Identity:
        try:
            status = await _status_of(self._client, TOKEN_REVIEWS, {"spec": {"token": token}})
            if status.get("authenticated") is not True:
                raise Unauthorized("the token is not valid")
            user = status.get("user") or {}
        except Forbidden:
            client = Client(_WithToken(self._users, token), user_agent=_USER_AGENT)
            user = (await _status_of(client, SELF_SUBJECT_REVIEWS, {})).get("userInfo") or {}
        extra = {name: tuple(values) for name, values in (user.get("extra") or {}).items()}
        groups = tuple(user.get("groups") or ())
        return Identity(
            str(user.get("username", "")), uid=str(user.get("uid", "")), groups=groups, extra=extra
        )

    def client(self, credential: Credential, identity: Identity) -> Client:  # noqa: ARG002 - the contract
        """See `Access`."""
        return Client(_WithToken(self._users, credential.token), user_agent=_USER_AGENT)

    @property
    def system(self) -> Client:
        """See `Access`."""
        return self._client

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
        await self._users.close()


class _WithToken:
    """A `Transport` with a user's token."""

    def __init__(self, transport: Transport, token: str) -> None:
        self._transport = transport
        self._fields = {"authorization": f"Bearer {token}"}

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """See `Transport`."""
        return await self._transport.request(method, target, headers={**headers, **self._fields}, body=body)

    async def close(self) -> None:
        """See `Transport`: that of all users stays open."""


async def _status_of(client: Client, review: Kind[dict[str, Any]], fields: dict[str, Any]) -> dict[str, Any]:
    """The API server's answer to a review. Raises `ApiError`."""
    return (await client.create(review, {"metadata": {}, **fields})).get("status") or {}


class ClusterDashboardOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the dashboard of controllers. `files`: its certificate; None: one of its own. `namespace`:
    that of the controllers, empty for all. `rules` and `secrets_in` as in `revoke`; `scan` and `searched`:
    hosts and files, as `scan` and `files` of `dashboard.access.Options`."""

    host: str
    port: int
    files: CertificateFiles | None = None
    read_only: bool = False
    namespace: str = ""
    rules: ServerRules = HTTPS_ONLY
    secrets_in: str = "kube-system"
    scan: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()


class ClusterDashboard:
    """The dashboard of controllers, on a port of its own; `close` stops it."""

    def __init__(self, options: ClusterDashboardOptions, access: ClusterAccess, clock: Clock) -> None:
        self._options = options
        self._access = access
        self._clock = clock
        self._tasks = TaskSet()
        self._site: Site | None = None
        self._server: HttpsServer | None = None
        self._seal_key = secrets.token_bytes(32)
        self._sessions = Sessions(self._seal_key, clock)

    async def listen(self) -> int:
        """Serve it; returns the port. Raises `StartError`."""
        options = self._options
        names = ("localhost", socket.gethostname(), *own_addresses(), "127.0.0.1", "::1")
        tls = MetricsTls(source=options.files or OwnCertificate(tuple(dict.fromkeys(names))))
        certificate = ServingCertificate(tls, self._access.system, self._clock, "dashboard")
        await certificate.renew()
        self._tasks.start(certificate.keep(), name="the certificate of the dashboard")
        try:
            self._server = await serve_https(
                self.handle, host=options.host, port=options.port, context=certificate.context, is_fair=False
            )
        except OSError as error:
            where = f"{in_brackets(options.host)}:{options.port}"
            raise StartError(f"cannot serve the dashboard on {where}: {error.strerror or error}") from error
        return self._server.port

    async def handle(self, request: Request) -> Response:
        """Answer any request; never raises but `asyncio.CancelledError`."""
        path = request.target.partition("?")[0]
        if path == "/":
            return Response(308, {"location": "ui/", "content-length": "0"})
        if path != PATH and not path.startswith(f"{PATH}/"):
            return Response(404, {"content-type": "text/plain"}, b"the dashboard is at /ui/\n")
        if self._site is None:
            options = Options(
                seal_key=self._seal_key,
                read_only=self._options.read_only,
                namespace=self._options.namespace,
                how_to_log_in="`kubectl create token NAME` prints a token of a ServiceAccount.",
                revoke=partial(revoke, rules=self._options.rules, secrets_in=self._options.secrets_in),
                scan=self._options.scan,
                files=self._options.searched,
            )
            self._site = _load(self._access, options, self._sessions, self._clock)
        return await self._site.handle(request)

    async def close(self) -> None:
        """Stop listening, and following the API."""
        if self._server is not None:
            await self._server.close(grace_s=0.2)
        if self._site is not None:
            await self._site.close()
        await self._tasks.close()
        await self._access.close()


async def revoke(
    client: Client,
    namespace: str,
    name: str,
    reason: str,
    *,
    rules: ServerRules = HTTPS_ONLY,
    secrets_in: str = "kube-system",
) -> str:
    """Have the CA revoke a Certificate's certificate, with the client's rights; returns its serial number.
    `rules` are for the CA's server, `secrets_in` is the namespace of the Secrets of ClusterIssuers. Raises
    `ApiError`."""
    from certwright.app import acme_commands  # 25 MB, for those who revoke

    try:
        revoked = await acme_commands.revoke(
            client,
            acme_commands.Holder(namespace, name),
            reason=reason,
            user_agent=_USER_AGENT,
            rules=rules,
            cluster_resource_namespace=secrets_in,
        )
        return revoked.serial
    except acme_commands.CannotRevoke as error:
        raise BadRequest(str(error)) from error


def _load(access: Access, options: Options, sessions: Sessions, clock: Clock) -> Site:
    from certwright.dashboard.site import Site  # 12 MB and 80 ms for the templates

    return Site(access, options, sessions, clock)


class DashboardHandler:
    """The handler of the daemon: requests below /ui go to the dashboard, all others to the API server.

    The dashboard is loaded at its first request: it costs nothing until a user opens it. `options` returns
    the current options. `system`: the identity with which it follows the API; `seal_key`: see
    `dashboard.access.Options`.
    """

    def __init__(
        self,
        api: ApiServer,
        options: Callable[[], ServeOptions],
        clock: Clock,
        *,
        system: Identity,
        seal_key: bytes,
    ) -> None:
        self._api = api
        self._options = options
        self._clock = clock
        self._system = system
        self._seal_key = seal_key
        self._sessions = Sessions(seal_key, clock)
        self._site: Site | None = None

    async def handle(self, request: Request) -> Response:
        """Answer any request; never raises but `asyncio.CancelledError`."""
        target = request.target
        if not target.startswith(PATH) or target[len(PATH) : len(PATH) + 1] not in ("", "/", "?"):
            return await self._api.handle(request)
        if self._options().dashboard == "off":
            return await self._api.handle(request)
        return await self._open().handle(request)

    def link(self, token: str) -> str:
        """The path of a one-time link for the user of that token."""
        return f"{PATH}/login?code={self._sessions.make_link(Credential(token))}"

    def _open(self) -> Site:
        if self._site is None:
            given = self._options()
            options = Options(
                seal_key=self._seal_key,
                shares_sessions=True,
                read_only=given.dashboard == "read-only",
                revoke=partial(
                    revoke,
                    rules=given.controllers.acme.policy.servers,
                    secrets_in=given.controllers.cluster_resource_namespace,
                ),
                scan=given.dashboard_scan,
                files=given.dashboard_files,
            )
            access = _ServerAccess(self._api, self._system)
            self._site = _load(access, options, self._sessions, self._clock)
        return self._site

    async def reload(self) -> None:
        """Follow `--dashboard` in the options in use: what is open ends where it is off."""
        if self._site is not None and (given := self._options().dashboard) != "off":
            self._site.use(read_only=given == "read-only")
        else:
            await self.close()

    async def close(self) -> None:
        """Stop following the API."""
        if self._site is not None:
            site, self._site = self._site, None
            await site.close()
