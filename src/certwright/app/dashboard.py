"""The dashboard in the daemon: which requests are its, who sends them, and its start at the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certwright.app.options import ServeOptions
from certwright.dashboard.access import Credential, Options
from certwright.dashboard.sessions import Sessions
from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Identity, Request, Response

if TYPE_CHECKING:
    from certwright.dashboard.site import Site

PATH = "/ui"
_USER_AGENT = "certwright-dashboard"


class _ServerAccess:
    """The `Access` of the daemon: the API server of the same process."""

    def __init__(self, api: ApiServer, system: Identity) -> None:
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

    The dashboard is loaded at its first request, so that it costs nothing where nobody opens it. `system` is
    the identity with which it follows the API, `seal_key` as in `dashboard.access.Options`."""

    def __init__(
        self, api: ApiServer, options: ServeOptions, clock: Clock, *, system: Identity, seal_key: bytes
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
        if self._options.dashboard == "off":
            return await self._api.handle(request)
        return await self._open().handle(request)

    def link(self, token: str) -> str:
        """The path of a one-time link for the user of that token."""
        return f"{PATH}/login?code={self._sessions.make_link(Credential(token))}"

    def _open(self) -> Site:
        if self._site is None:
            from certwright.dashboard.site import Site  # 12 MB and 80 ms for the templates

            options = Options(
                seal_key=self._seal_key,
                read_only=self._options.dashboard == "read-only",
                revoke=revoke,
                scan=self._options.dashboard_scan,
                files=self._options.dashboard_files,
            )
            access = _ServerAccess(self._api, self._system)
            self._site = Site(access, options, self._sessions, self._clock)
        return self._site

    async def close(self) -> None:
        """Stop following the API."""
        if self._site is not None:
            await self._site.close()
