"""The dashboard in the daemon: which requests are its, who sends them, and its start at the first of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from certwright.app.options import ServeOptions
from certwright.dashboard.access import Credential, Options
from certwright.dashboard.sessions import Sessions
from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.base.users import flow_of, is_privileged
from certwright.kube.apiserver.http.fairness import Bounds, Level
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Identity, Request, Response

if TYPE_CHECKING:
    from certwright.dashboard.site import Site

PATH = "/ui"
_USER_AGENT = "certwright-dashboard"
_PAGES: Final = Bounds(seats=6, per_flow=2, per_turn=1, waiting=20, waiting_in_all=200)
"""Pages that are computed at the same time, in all and of one user, and how many wait."""
_ATTEMPTS: Final = Bounds(seats=4, per_flow=2, waiting=10, waiting_in_all=100)
"""Log-ins that are tried at the same time, in all and from one address."""
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
        self._pages = Level("dashboard", _PAGES)
        self._attempts = Level("dashboard log-in", _ATTEMPTS)
        self._spent: dict[str, tuple[float, float]] = {}

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
        if len(self._spent) > _MOST_FLOWS:
            self._spent = {name: spent for name, spent in self._spent.items() if spent[0] > now - spent[1]}
        pause = 0.0
        for name, share, burst_s in ((flow, _SHARE, _BURST_S), ("", _SHARE_OF_ALL, _BURST_OF_ALL_S)):
            spent, at = self._spent.get(name, (0.0, now))
            spent = max(0.0, spent - (now - at) * share) + used
            self._spent[name] = spent, now
            if spent > burst_s:
                pause = max(pause, used / share)
        return pause

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
        self.attempt = turns.attempt

    def flow(self, identity: Identity) -> str:
        """See `Access`."""
        return flow_of(identity)


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

    def client(self, credential: Credential, identity: Identity) -> Client:  # noqa: ARG002 - the contract
        """See `Access`."""
        return Client(LocalTransport(self._api.handle, identity), user_agent=_USER_AGENT)

    @property
    def system(self) -> Client:
        """See `Access`."""
        return Client(LocalTransport(self._api.handle, self._system), user_agent=_USER_AGENT)


async def revoke(client: Client, namespace: str, name: str, reason: str) -> str:
    """Have the CA revoke a Certificate's certificate, with the client's rights; returns its serial number.
    Raises `ApiError`."""
    from certwright.app import acme_commands  # 25 MB, for those who revoke

    try:
        holder = acme_commands.Holder(namespace, name)
        return (await acme_commands.revoke(client, holder, reason=reason, user_agent=_USER_AGENT)).serial
    except acme_commands.CannotRevoke as error:
        raise BadRequest(str(error)) from error


class Front:
    """The handler of the daemon: requests below /ui go to the dashboard, all others to the API server.

    The dashboard is loaded at its first request, so that it costs nothing where nobody opens it. `options`
    are those in use. `system` is the identity with which it follows the API, `seal_key` as in
    `dashboard.access.Options`."""

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
            from certwright.dashboard.site import Site  # 12 MB and 80 ms for the templates

            given = self._options()
            options = Options(
                seal_key=self._seal_key,
                read_only=given.dashboard == "read-only",
                revoke=revoke,
                scan=given.dashboard_scan,
                files=given.dashboard_files,
            )
            access = _ServerAccess(self._api, self._system)
            self._site = Site(access, options, self._sessions, self._clock)
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
