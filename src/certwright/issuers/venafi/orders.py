"""One CertificateRequest: place its order once, poll it, and check the returned certificate.

    no pickup ID            the policy is checked; TPP's ID is saved, or the order is placed and its ID saved
    ID saved, not placed    the order is placed (TPP only: the ID is saved first)
    placed                  the certificate is fetched, at growing intervals

After a restart it is unknown whether an order of TPP with a saved ID was placed. So the order is fetched
first, and placed only if the server does not know it, or has a certificate for another key (of an earlier
request).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from certwright.issuers.contract import Failed, Outcome, Pending, Signed, Tools
from certwright.issuers.servers import Calls, Refused, Session, Tokens, failing
from certwright.issuers.venafi.policies import ZonePolicy, violation_of
from certwright.issuers.venafi.products import ERRORS, CertificateOrder, ProductClient
from certwright.issuers.venafi.saas import SaasClient
from certwright.issuers.venafi.settings import ClientCredentials, Password, Product, Settings, StaticKey
from certwright.issuers.venafi.tpp import TppClient
from certwright.kit.outgoing import HttpClient
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.util.caches import Lru
from certwright.pki import chain
from certwright.pki.certificates import read_answer
from certwright.pki.errors import PkiError
from certwright.pki.keys import load_public_key, plan_of
from certwright.resources.causes import Cause
from certwright.resources.names import VENAFI_PICKUP_ID

_ZONE_LASTS: Final = timedelta(minutes=10)


class VenafiSession(Session[Settings]):
    """One issuer, with that UID, at its server. `now` returns the time.

    Methods raise `CallError`, and `LoginRefused` if the server does not accept the credentials.
    """

    def __init__(
        self, issuer_uid: str, settings: Settings, http: HttpClient, now: Callable[[], datetime]
    ) -> None:
        self.issuer_uid = issuer_uid
        self.client: ProductClient
        calls, credentials = Calls(http, now, ERRORS), settings.credentials
        tokens: Tokens | str = ""
        if settings.product is Product.TPP:
            self.client = tpp = TppClient(calls, settings, now)
            if isinstance(credentials, Password):
                tokens = Tokens(
                    lambda: tpp.log_in(credentials),
                    now,
                    renew=lambda token: tpp.refresh(credentials.client_id, token),
                )
        else:
            self.client = saas = SaasClient(calls, settings)
            if isinstance(credentials, ClientCredentials):
                tokens = Tokens(lambda: saas.log_in(credentials), now)
        super().__init__(settings, credentials.value if isinstance(credentials, StaticKey) else tokens)
        self._now = now
        self._zone: ZonePolicy | None = None
        self._zone_read_at = now()
        self._zone_lock = asyncio.Lock()

    async def zone(self, not_older_than: datetime | None = None) -> ZonePolicy:
        """The zone: the kept copy for ten minutes, unless it must not be older than the given time."""
        async with self._zone_lock:
            since = not_older_than or self._now() - _ZONE_LASTS
            if self._zone is None or self._zone_read_at < since:
                self._zone = await self.use(self.client.read_zone)
                self._zone_read_at = self._now()
            return self._zone


INIT_ERROR: Final = "VenafiInitError"
REQUEST_ERROR: Final = "RequestError"
_RETRIEVE_ERROR: Final = "RetrieveError"
_PARSE_ERROR: Final = "ParseError"
_ISSUANCE_PENDING: Final = "IssuancePending"
"""cert-manager's reasons."""
_ORDERED: Final = "the order is recorded"
_WAITING: Final = "the certificate is not issued yet: the order is pending at the server"

_Key = tuple[str, str]
_REMEMBERED: Final = 4096
_SHORTEST_POLL: Final = timedelta(seconds=2)
_LONGEST_POLL: Final = timedelta(minutes=5)
_PART_OF_AGE: Final = 4
"""The wait until the next poll is this part of the request's age: an approval by a person takes hours."""
_UNKNOWN: Final = 404
_ISSUERS_FAULT: Final = frozenset({403, 404})
"""Refusals of an order that no change of the request would help."""


class Orders:
    """The orders of this process, by the UIDs of their issuers and CertificateRequests."""

    def __init__(self) -> None:
        # Pickup IDs of orders that were placed, and of those whose ID is being saved before.
        self._placed: Lru[_Key, str] = Lru(_REMEMBERED)
        self._prepared: Lru[_Key, str] = Lru(_REMEMBERED)
        # Orders that were sent to the server, which has not accepted them.
        self._unaccepted: Lru[_Key, bool] = Lru(_REMEMBERED)

    def is_accepted(self, session: VenafiSession, meta: ObjectMeta) -> bool:
        """Whether the server may have accepted the order of this request: it has a pickup ID, and the last
        attempt to place it has not failed."""
        return VENAFI_PICKUP_ID in meta.annotations and not self._unaccepted.get(_key(session, meta))

    async def process(
        self, session: VenafiSession, meta: ObjectMeta, order: CertificateOrder, tools: Tools
    ) -> Outcome:
        """Place the order or fetch its certificate. Raises `CallError` and `LoginRefused`."""
        pickup_id = meta.annotations.get(VENAFI_PICKUP_ID, "")
        key = _key(session, meta)
        if not pickup_id:
            if not (pickup_id := self._placed.get(key) or ""):
                if (violation := await _violation(session, order, tools)) is not None:
                    return violation
                if pickup_id := session.client.pickup_id(order.csr):
                    self._prepared.put(key, pickup_id)
                elif (refused := await self._place(session, meta, order)) is not None:
                    return refused
                else:
                    pickup_id = self._placed.get(key) or ""
            return _save(pickup_id)
        if self._prepared.get(key):
            self._prepared.drop(key)
        else:
            outcome = await self._fetch(session, meta, pickup_id, order, tools)
            if outcome is not None:
                return outcome
        if (refused := await self._place(session, meta, order)) is not None:
            return refused
        placed = self._placed.get(key) or ""
        if placed != pickup_id:
            return _save(placed)
        return await self._fetch(session, meta, pickup_id, order, tools) or _pending(meta, tools.now())

    async def _place(
        self, session: VenafiSession, meta: ObjectMeta, order: CertificateOrder
    ) -> Failed | Pending | None:
        """Order the certificate; the outcome if the server refuses."""
        key = _key(session, meta)
        self._unaccepted.put(key, True)
        zone = await session.zone()
        try:
            pickup_id = await session.use(lambda token: session.client.place(token, order, zone))
        except Refused as error:
            text = f"the server refuses the order: {error}"
            if error.status in _ISSUERS_FAULT:
                return failing(REQUEST_ERROR, f"{text}; give the account of the issuer the right to order")
            return Failed(
                REQUEST_ERROR,
                text,
                cause=Cause.INVALID_REQUEST,
                advice=f'change what the zone "{session.settings.zone}" does not allow, or its policy',
            )
        self._placed.put(key, pickup_id)
        self._unaccepted.drop(key)
        return None

    async def _fetch(
        self,
        session: VenafiSession,
        meta: ObjectMeta,
        pickup_id: str,
        order: CertificateOrder,
        tools: Tools,
    ) -> Outcome | None:
        """The outcome of the order; None: it has to be placed, because the server does not know it."""
        key = _key(session, meta)
        is_placed = self._placed.get(key) is not None
        is_named_before = bool(session.client.pickup_id(order.csr))
        try:
            pem = await session.use(lambda token: session.client.fetch(token, pickup_id))
        except Refused as error:
            # 404 from SaaS: the ID is of another server, which the issuer named before.
            if not is_placed and (is_named_before or error.status == _UNKNOWN):
                return None
            return Failed(_RETRIEVE_ERROR, f"Failed to obtain the certificate: {error}")
        if pem is None:
            return _pending(meta, tools.now())
        answer = pem.encode()
        try:
            certificates = await tools.executor.run(
                lambda: chain.in_order(read_answer(answer)), meta.namespace
            )
        except (PkiError, ValueError) as error:
            text = f"the answer of the server is not a certificate chain: {error}"
            return failing(_PARSE_ERROR, text, is_taken=True)
        if certificates[0].public_key_der == order.csr.public_key_der:
            bundle = chain.split(certificates)
            return Signed(bundle.chain_pem, bundle.ca_pem)
        if is_named_before and not is_placed:
            return None
        # TPP: another request for the same name has used the object meanwhile; now it is our turn again.
        self._placed.drop(key)
        if is_named_before:
            return _pending(meta, tools.now())
        return Failed(_RETRIEVE_ERROR, "the server has issued a certificate for another key")


def _key(session: VenafiSession, meta: ObjectMeta) -> _Key:
    return session.issuer_uid, meta.uid


async def _violation(session: VenafiSession, order: CertificateOrder, tools: Tools) -> Failed | None:
    """The refusal of a request that breaks the policy of the zone, which was read just now."""
    started_at = tools.now()
    try:
        key = plan_of(load_public_key(order.csr.public_key_der))
    except PkiError:
        key = None
    if violation_of(await session.zone(), order.csr, key, order.lifetime) is None:
        return None
    # The policy may have been changed since the kept copy was read.
    violation = violation_of(await session.zone(started_at), order.csr, key, order.lifetime)
    if violation is None:
        return None
    zone = session.settings.zone
    return Failed(
        REQUEST_ERROR,
        f'{violation} is not allowed by the policy of the zone "{zone}"',
        cause=Cause.INVALID_REQUEST,
        advice=f'change {violation.field}, or the policy of the zone "{zone}"',
    )


def _save(pickup_id: str) -> Pending:
    return Pending(_ISSUANCE_PENDING, _ORDERED, annotations={VENAFI_PICKUP_ID: pickup_id}, is_announced=False)


def _pending(meta: ObjectMeta, now: datetime) -> Pending:
    """The order is in progress. The server has taken it."""
    age = now - (meta.creation_timestamp or now)
    wait = min(max(age / _PART_OF_AGE, _SHORTEST_POLL), _LONGEST_POLL)
    return Pending(_ISSUANCE_PENDING, _WAITING, retry_after=wait, is_taken=True)
