"""ARI poller: reads renewal information (RFC 9773) from ACME servers, outside the reconciles.

An answer is kept here until the Certificate's next pass puts it into the status, so that the answer right
after issuance needs no write of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import AcmeError, Refused
from certwright.acme.protocol.orders import fetch_renewal_info
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.cache.shard_filter import owning_request
from certwright.kube.api.meta import ObjectKey, controller_of
from certwright.pki.certificates import CertificateFacts, certificate_id
from certwright.resources.acme import Order
from certwright.resources.certificate import ARIStatus, ARIWindow, Certificate
from certwright.resources.request import CertificateRequest

_log = logging.getLogger(__name__)

_USUAL = timedelta(hours=6)
_AFTER_FAILURE = timedelta(hours=1)
_SOONEST, _LATEST = timedelta(hours=1), timedelta(days=7)
_NOT_OFFERED = timedelta(hours=24)
_AT_ONCE = 20
# How long an existing certificate waits for its server's renewal information.
_PATIENCE_S = 1.0


class RenewalAnswer(msgspec.Struct, frozen=True):
    """The answer about one certificate. `status` None: the server offers no renewal information."""

    fingerprint: bytes
    status: ARIStatus | None


FindClient = Callable[[Certificate], Awaitable[AcmeClient | None]]
"""The client of the account that a Certificate's issuer has; None where it is no ACME issuer that is to be
asked, or not ready."""


class AriPoller:
    """Polls ACME servers for renewal information, twenty at a time. `wake` enqueues each Certificate whose
    answer arrives."""

    def __init__(
        self, find_client: FindClient, wake: Callable[[ObjectKey], None], *, now: Callable[[], datetime]
    ) -> None:
        self._find_client = find_client
        self._wake = wake
        self._now = now
        self._answers: dict[str, RenewalAnswer] = {}
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._not_offered: dict[str, datetime] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing is being asked."""
        return not self._polls

    def answer(self, uid: str, facts: CertificateFacts) -> RenewalAnswer | None:
        """The last answer for this certificate, until its status contains the answer."""
        answer = self._answers.get(uid)
        return answer if answer is not None and answer.fingerprint == _fingerprint(facts) else None

    def start_poll(self, certificate: Certificate, facts: CertificateFacts) -> None:
        """Poll about the certificate in the Secret, unless a poll is in progress."""
        uid = certificate.metadata.uid
        if uid not in self._polls:
            task = asyncio.get_running_loop().create_task(self._poll(certificate, facts))
            self._polls[uid] = task

    def certificate_changed(self, old: Certificate | None, new: Certificate | None) -> None:
        """Drop the answer about a deleted Certificate."""
        if old is not None and new is None:
            self._answers.pop(old.metadata.uid, None)

    async def poll_early(
        self,
        get_request: Callable[[ObjectKey], CertificateRequest | None],
        order: Order,
        resolved: ResolvedIssuer,
        facts: CertificateFacts,
    ) -> None:
        """Poll about the certificate of an Order before it is stored, for a second at most: the answer goes
        into the Certificate's own last write. `get_request` returns the request of that name."""
        owner = owning_request(order)
        request = get_request(owner) if owner is not None else None
        certificate = controller_of(request.metadata) if request is not None else None
        if certificate is None or resolved.spec.renewal_information_source == "None":
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._fetch(resolved.client, certificate.uid, facts, None)

    async def close(self) -> None:
        """Ask no more."""
        tasks = list(self._polls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self, certificate: Certificate, facts: CertificateFacts) -> None:
        uid = certificate.metadata.uid
        try:
            async with self._gate:
                client = await self._find_client(certificate)
                if client is not None:
                    acme = certificate.status.acme
                    await self._fetch(client, uid, facts, acme.ari if acme is not None else None)
                    self._wake(certificate.metadata.key)
        except Exception:
            _log.exception("%s: renewal information could not be fetched", certificate.metadata.key)
        finally:
            del self._polls[uid]

    async def _fetch(
        self, client: AcmeClient, uid: str, facts: CertificateFacts, before: ARIStatus | None
    ) -> None:
        identifier, now = certificate_id(facts), self._now().replace(microsecond=0)
        not_offered_until = self._not_offered.get(client.directory_url)
        if not identifier or (not_offered_until is not None and self._now() < not_offered_until):
            self._answers[uid] = RenewalAnswer(_fingerprint(facts), None)
            return
        try:
            directory = await client.directory()
            if not directory.renewal_info:
                self._not_offered[client.directory_url] = now + _NOT_OFFERED
                self._answers[uid] = RenewalAnswer(_fingerprint(facts), None)
                return
            renewal_info = await client.drive(fetch_renewal_info(directory, identifier))
        except AcmeError as error:
            if before is not None and before.account not in ("", client.kid):
                before = None
            retry_after = error.retry_after if isinstance(error, Refused) else None
            status = msgspec.structs.replace(
                before or ARIStatus(),
                next_check=_next_check(now, retry_after, _AFTER_FAILURE, uid),
                last_error=str(error),
                account=client.kid,
            )
        else:
            status = ARIStatus(
                suggested_window=ARIWindow(start=renewal_info.start, end=renewal_info.end),
                explanation_url=renewal_info.explanation_url,
                last_checked=now,
                next_check=_next_check(now, renewal_info.retry_after, _USUAL, uid),
                account=client.kid,
            )
        self._answers[uid] = RenewalAnswer(_fingerprint(facts), status)


def _fingerprint(facts: CertificateFacts) -> bytes:
    # Parsing the identifier out of a certificate costs a hundred times as much.
    return hashlib.sha256(facts.der).digest()


def _next_check(now: datetime, retry_after: datetime | None, usual: timedelta, uid: str) -> datetime:
    """The time of the next poll: as the server wants, within an hour and a week, up to a tenth later by an
    amount that depends on the Certificate (RFC 9773 §4.3)."""
    wait = retry_after - now if retry_after is not None else usual
    share = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4], "big") / 2**32
    return (now + min(max(wait, _SOONEST), _LATEST) * (1 + share / 10)).replace(microsecond=0)
