"""ACME client: runs flows for one account at one server.

One `AcmeClient` per server and account key (`Registry`), with its nonces, connections and directory, is
shared by all issuers with them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from time import perf_counter
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from certwright.acme.protocol import account
from certwright.acme.protocol.errors import AccountTrouble, ForeignUrl, Problem, Refused
from certwright.acme.protocol.exchange import Directory, Nonces, Session, fetch_directory
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import Action, Flow, Request, Response, TlsOptions, Transport, Unsigned
from certwright.kit.outgoing import quote
from certwright.kube.util.executor import Executor, Inline

T = TypeVar("T")
P = ParamSpec("P")

# Directories hardly ever change; one whose URLs the server does not know any more is fetched again.
_DIRECTORY_LIVES = timedelta(hours=24)
# The number of connections of a transport.
_AT_ONCE = 16


class RequestRecord(msgspec.Struct, frozen=True):
    """One completed request, for metrics: its duration in seconds; status 0 if no response arrived."""

    action: Action
    method: str
    url: str
    status: int
    seconds: float


Observer = Callable[[RequestRecord], None]


class Pause(msgspec.Struct, frozen=True):
    """Do not send `content` again before `until`, at the server's request; `why` is a sentence."""

    until: datetime
    content: object
    why: str


class AcmeClient:
    """Runs flows for one account at one server. `kid` is the account's URL, once it is known.

    The `executor` makes slow signatures, as work of `flow`.
    """

    def __init__(
        self,
        directory_url: str,
        key: AccountKey,
        transport: Transport,
        *,
        now: Callable[[], datetime],
        observe: Observer | None = None,
        executor: Executor | None = None,
        flow: str = "",
    ) -> None:
        self.directory_url = directory_url
        self.key = key
        self.kid = ""
        self.former_kid = ""
        """The account that `kid` has replaced, empty if there was none."""
        self.is_lost = False
        """Whether the server has reported that the account does not exist (any more)."""
        self.pause: Pause | None = None
        """Set by the caller that registers the account."""
        self.refusal: tuple[Problem, datetime] | None = None
        """Why, and when, the server last refused to work for the account although it knows it
        (`userActionRequired`)."""
        self.calls: Counter[Action] = Counter()
        self._transport = transport
        self._now = now
        self._observe = observe
        self._executor = executor or Inline()
        self._flow = flow
        self._nonces = Nonces()
        self._connections = asyncio.Semaphore(_AT_ONCE)
        self._directory: Directory | None = None
        self._fetched_at: datetime | None = None
        self._fetching = asyncio.Lock()

    async def directory(self, *, fresh: bool = False, former: Directory | None = None) -> Directory:
        """The directory, fetched at most once a day; `fresh`: now; `former`: unless another one than this has
        been fetched. Raises `AcmeError`."""
        async with self._fetching:
            current, at = self._directory, self._fetched_at
            fresh = fresh or (former is not None and current is former)
            if current is None or at is None or fresh or self._now() - at > _DIRECTORY_LIVES:
                current = self._directory = await self.drive(fetch_directory(self.directory_url))
                self._fetched_at = self._now()
            return current

    async def missing_profile(self, profile: str) -> str:
        """The reason why the profile (draft-ietf-acme-profiles §4) is unavailable, as a clause; empty if the
        server offers it or none is set.

        Clients check the directory first, because a server without profiles would ignore the field and sign
        something else. Raises `AcmeError`.
        """
        if not profile or profile in (await self.directory()).profiles:
            return ""
        offered = (await self.directory(fresh=True)).profiles
        if profile in offered:
            return ""
        # The words of cert-manager, which its users' scripts look for, as far as the name.
        names = quote(", ".join(sorted(offered))) or "none"
        return (
            f"certificate authority does not advertise a profile with name {profile} (it has {names}); "
            "change or remove spec.acme.profile"
        )

    async def run(
        self, flow: Callable[Concatenate[Session, P], Flow[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `flow(session, …)` and return its result; a `kid` or key set by the flow is kept.

        A server that no longer knows a URL of its directory may have moved, so its directory is fetched
        again. If the server refuses the request as unauthorized, `AccountTrouble` shows that the account is
        closed. Raises `AcmeError`.
        """
        directory = await self.directory()
        try:
            return await self._run(directory, flow, *args, **kwargs)
        except (Refused, ForeignUrl) as error:
            if isinstance(error, Refused) and not (error.is_gone and error.url in directory.urls):
                raise
            if (moved := await self.directory(former=directory)).urls == directory.urls:
                raise
        return await self._run(moved, flow, *args, **kwargs)

    async def _run(
        self,
        directory: Directory,
        flow: Callable[Concatenate[Session, P], Flow[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        # A task takes its nonce only with a connection, because the task before it returns a nonce.
        async with self._connections:
            session = Session(directory, self.key, self.kid, self._nonces)
            try:
                return await self.drive(flow(session, *args, **kwargs))
            except AccountTrouble as error:
                self.is_lost = self.is_lost or error.problem.is_of_unknown_account
                if error.problem.demands_action:
                    self.refusal = error.problem, self._now()
                raise
            except Refused as error:
                if error.problem.may_be_of_signer and session.kid and await self._is_closed(session):
                    self.is_lost = True
                    raise AccountTrouble(error.problem, status=error.status, url=error.url) from error
                raise
            finally:
                self.kid, self.key = session.kid or self.kid, session.key

    async def _is_closed(self, session: Session) -> bool:
        """Whether the server refuses the account itself: `unauthorized` may as well be about a name."""
        try:
            return not (await self.drive(account.fetch(session))).is_usable
        except Refused as refused:
            return refused.problem.may_be_of_signer

    async def drive(self, flow: Flow[T]) -> T:
        """Run the flow and return its result. Raises `AcmeError`."""
        try:
            asked = next(flow)
            while True:
                if isinstance(asked, Unsigned):
                    sign = asked.sign
                    body = await self._executor.run(sign, self._flow) if asked.is_slow else sign()
                    request = asked.with_body(body)
                else:
                    request = asked
                asked = flow.send(await self._send(request))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _send(self, request: Request) -> Response:
        self.calls[request.action] += 1
        began = perf_counter()
        status = 0
        try:
            response = await self._transport.send(request)
            status = response.status
            return response
        finally:
            if self._observe is not None:
                took = perf_counter() - began
                self._observe(RequestRecord(request.action, request.method, request.url, status, took))

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()


MakeTransport = Callable[[TlsOptions], Transport]


class Registry:
    """The ACME clients of this process, one per server, account key and TLS options."""

    def __init__(
        self,
        make_transport: MakeTransport,
        *,
        now: Callable[[], datetime],
        observe: Observer | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._make_transport = make_transport
        self._now = now
        self._observe = observe
        self._executor = executor
        self._clients: dict[tuple[str, str, TlsOptions], AcmeClient] = {}

    def get(self, directory_url: str, key: AccountKey, tls: TlsOptions, flow: str = "") -> AcmeClient:
        """Return the client, created on first use. Its signatures are work of `flow`, the namespace of the
        first issuer with this account. Raises `ValueError` for invalid TLS options."""
        place = (directory_url, key.thumbprint, tls)
        if place not in self._clients:
            self._clients[place] = AcmeClient(
                directory_url,
                key,
                self._make_transport(tls),
                now=self._now,
                observe=self._observe,
                executor=self._executor,
                flow=flow,
            )
        return self._clients[place]

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
