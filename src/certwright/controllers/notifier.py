"""Send digests of problems to the operator's destinations.

Once a minute the present problems are compared with the problems that each destination has been sent (a
ConfigMap, with an entry for each problem and destination, so that replicas with different shards write
different entries). The difference is one digest. An unreachable destination gets the difference later, so
nothing is queued. A crash between the message and its record sends a message twice, and loses none.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from certwright.controllers.cache import indexes
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.shard_filter import Mine
from certwright.kit import logs
from certwright.kit.exposition import family, labels
from certwright.kube.api import conditions
from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.api.errors import AlreadyExists, ApiError, NotFound, Unreachable
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.durations import doubled
from certwright.notifications.messages import Destination, Digest, Problem, ProblemKind, SendError
from certwright.notifications.settings import NotificationSettings
from certwright.resources import reasons
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.retry import read_retry, rfc3339

NAME = "certwright-notifications"
_MOST = 4000
"""Entries of all destinations: some 700 kB, and 1 MiB is the limit of a ConfigMap."""


class Notifications(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, their destinations, what messages are signed with, and the namespace of the record."""

    settings: NotificationSettings
    destinations: tuple[Destination, ...]
    sender: str
    namespace: str


_log = logging.getLogger(__name__)

CHECK_EVERY_S = 60.0
_SCAN_EVERY = timedelta(minutes=10)
"""How often the ends of all certificates are compared with the clock."""
_SHORTEST_RETRY, _LONGEST_RETRY = timedelta(minutes=1), timedelta(hours=1)
_A_FEW = 1000


@dataclass(slots=True)
class _Pause:
    """The wait of a destination after failures in a row."""

    failures: int = 0
    until: datetime | None = None

    def fail(self, now: datetime) -> datetime:
        self.failures += 1
        self.until = now + doubled(_SHORTEST_RETRY, self.failures, cap=_LONGEST_RETRY)
        return self.until


class Notifier:
    """Sends digests for as long as `run` runs. `mine` selects the Certificates and issuers of this replica
    (None: all)."""

    def __init__(
        self, caches: Caches, client: Client, clock: Clock, mine: Mine | None, notifications: Notifications
    ) -> None:
        self._caches = caches
        self._clock = clock
        self._mine = mine
        self._settings = notifications.settings
        self._destinations = notifications.destinations
        self._sender = notifications.sender
        self._reported = Reported(client, notifications.namespace)
        self._totals = {
            destination.name: MessageTotals(destination.name, destination.kind)
            for destination in notifications.destinations
        }
        self._pauses = {destination.name: _Pause() for destination in notifications.destinations}
        # The certificates that end soon, as of the last scan.
        self._overdue: set[ObjectKey] = set()
        self._next_scan: datetime | None = None

    @property
    def totals(self) -> list[MessageTotals]:
        """The messages to each destination since the start, as a copy."""
        return [replace(total) for total in self._totals.values()]

    async def run(self) -> None:
        """Check once a minute, for ever. The caches MUST be in sync."""
        while True:
            try:
                await self.check()
            except (ApiError, Unreachable) as error:
                _log.warning("notifications wait for their record: %s", error)
            await self._clock.sleep(CHECK_EVERY_S)

    async def check(self) -> None:
        """Send the changes. Raises `ApiError` and `Unreachable` if the record cannot be read or written;
        without the record nothing is sent, because it would be sent again."""
        await self._reported.load()
        await self._reported.save()
        current = {problem.key: problem for problem in await self._problems()}
        sending = (self._notify(destination, current) for destination in self._destinations)
        await asyncio.gather(*sending)
        await self._reported.save()

    async def _notify(self, destination: Destination, current: dict[str, Problem]) -> None:
        now, pause = self._clock.now(), self._pauses[destination.name]
        if pause.until is not None and now < pause.until:
            return
        digest = self._digest(destination.name, current, now)
        if digest is None:
            return
        changed: dict[str, logs.Value] = {
            "new": len(digest.new),
            "remaining": len(digest.remaining),
            "resolved": len(digest.resolved),
        }
        try:
            await destination.send(digest)
        except SendError as error:
            self._totals[destination.name].failed += 1
            changed |= {"cause": str(error), "nextAttempt": pause.fail(now)}
            self._event(logging.WARNING, "notification failed", destination, **changed)
            return
        self._totals[destination.name].sent += 1
        self._pauses[destination.name] = _Pause()
        self._event(logging.INFO, "notification sent", destination, **changed)
        for problem in (*digest.new, *digest.remaining):
            self._reported.put(destination.name, problem.key, now)
        for key in digest.resolved:
            self._reported.drop(destination.name, key)

    def _digest(self, destination: str, current: dict[str, Problem], now: datetime) -> Digest | None:
        """The digest of problems that the destination has not been sent; None without any."""
        before, every = self._reported.of(destination), self._settings.remind_every
        new = [problem for key, problem in current.items() if key not in before]
        remaining = [
            problem
            for key, problem in current.items()
            # An announcement may stand for a year.
            if every and problem.kind is not ProblemKind.NEW_KEY
            if (at := before.get(key)) is not None and now - at >= every
        ]
        resolved = [key for key in before if key not in current and self._is_mine(_object_of(key))]
        if not (new or remaining or resolved):
            return None
        return Digest(sender=self._sender, at=now, new=new, remaining=remaining, resolved=resolved)

    def _is_mine(self, key: ObjectKey) -> bool:
        return self._mine is None or self._mine(key)

    async def _problems(self) -> list[Problem]:
        settings, now, caches = self._settings, self._clock.now(), self._caches
        await self._scan(now)
        failing = {certificate.metadata.key for certificate in caches.failing_certificates()}
        announced = caches.certificates.cache.by_index(indexes.BY_CONDITION, reasons.CA_KEY_REPLACEMENT)
        keys = failing | self._overdue | {certificate.metadata.key for certificate in announced}
        current: list[Problem] = []
        for count, key in enumerate(keys, 1):
            certificate = caches.certificates.cache.get(key)
            if certificate is not None and self._is_mine(key):
                current += of_certificate(certificate, settings, now)
            if count % _A_FEW == 0:
                await asyncio.sleep(0)
        for informer in caches.issuer_informers:
            for issuer in informer.cache.values():
                if self._is_mine(issuer.metadata.key):
                    current += of_issuer(informer.kind.kind, issuer, settings, now)
        return sorted(current, key=lambda problem: problem.key)

    async def _scan(self, now: datetime) -> None:
        """Find the certificates that end soon, if a scan is due."""
        if self._next_scan is not None and now < self._next_scan:
            return
        limit = (now + self._settings.expires_within).timestamp()
        cache, soon = self._caches.certificates.cache, set()
        for count, key in enumerate(list(cache.keys()), 1):
            if 0 < self._caches.ends_at(key) <= limit:
                certificate = cache.get(key)
                if certificate is not None and is_overdue(certificate, self._settings, now):
                    soon.add(key)
            if count % _A_FEW == 0:
                await asyncio.sleep(0)
        self._overdue, self._next_scan = soon, now + _SCAN_EVERY

    def _event(self, level: int, message: str, destination: Destination, **values: logs.Value) -> None:
        logs.event(_log, level, message, subject=destination.name, destination=destination.name, **values)


def _object_of(problem_key: str) -> ObjectKey:
    """The object of a problem, of `KIND-OF-PROBLEM KIND NAMESPACE/NAME`."""
    namespace, _, name = problem_key.rpartition(" ")[2].rpartition("/")
    return ObjectKey(namespace, name)


class Entry(msgspec.Struct, frozen=True):
    """A problem that a destination has been sent, and when it was sent last."""

    destination: str
    problem: str
    at: datetime


class Reported:
    """The entries. Raises `ApiError` and `Unreachable`."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._entries: dict[str, Entry] = {}
        self._unsaved: dict[str, str | None] = {}
        self._is_loaded = False

    def of(self, destination: str) -> dict[str, datetime]:
        """The problems that a destination has been sent, and when."""
        own = (entry for entry in self._entries.values() if entry.destination == destination)
        return {entry.problem: entry.at for entry in own}

    def put(self, destination: str, problem: str, at: datetime) -> None:
        """Record that the destination was sent the problem; `save` writes the change."""
        entry, name = Entry(destination, problem, at), _name(destination, problem)
        if name in self._entries or len(self._entries) < _MOST:
            self._entries[name] = entry
            self._unsaved[name] = msgspec.json.encode(entry).decode()

    def drop(self, destination: str, problem: str) -> None:
        """Remove the problem, which no longer exists; `save` writes the change."""
        name = _name(destination, problem)
        if self._entries.pop(name, None) is not None:
            self._unsaved[name] = None

    async def load(self) -> None:
        """Read the entries, once."""
        if self._is_loaded:
            return
        try:
            config_map = await self._client.get(CONFIG_MAPS, NAME, self._namespace)
        except NotFound:
            config_map = None
        for name, text in (config_map.data if config_map is not None else {}).items():
            try:
                self._entries[name] = json_decoder(Entry).decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError):
                # Edited by hand: the problem is reported again.
                continue
        self._is_loaded = True

    async def save(self) -> None:
        """Write the changes."""
        if not self._unsaved:
            return
        unsaved = dict(self._unsaved)
        try:
            await self._client.patch(CONFIG_MAPS, NAME, self._namespace, {"data": unsaved})
        except NotFound:
            data = {name: text for name, text in unsaved.items() if text is not None}
            made = ConfigMap(metadata=ObjectMeta(name=NAME, namespace=self._namespace), data=data)
            try:
                await self._client.create(CONFIG_MAPS, made)
            except AlreadyExists:
                # Another replica was faster: the next attempt patches.
                return
        for name, text in unsaved.items():
            if self._unsaved.get(name, "") == text:
                del self._unsaved[name]


def _name(destination: str, problem: str) -> str:
    return f"{destination}.{hashlib.sha256(problem.encode()).hexdigest()[:32]}"


@dataclass(slots=True)
class MessageTotals:
    """The number of messages to one destination since the start, sent and failed."""

    destination: str
    kind: str
    sent: int = 0
    failed: int = 0


def exposition(totals: Sequence[MessageTotals]) -> Iterator[str]:
    """The lines of the metrics."""
    about = [(labels((("destination", each.destination), ("kind", each.kind))), each) for each in totals]
    name, meaning = "certwright_notifications_sent_total", "Notifications that the destination has accepted."
    yield from family(name, "counter", meaning, ((text, each.sent) for text, each in about))
    name, meaning = "certwright_notifications_failed_total", "Attempts to send a notification that failed."
    yield from family(name, "counter", meaning, ((text, each.failed) for text, each in about))


_LONGEST_GRACE = timedelta(days=1)


def of_certificate(
    certificate: Certificate, settings: NotificationSettings, now: datetime
) -> Iterator[Problem]:
    """The problems of a Certificate: failing attempts, a renewal that is overdue shortly before the end, a
    renewal that will replace the key of a root."""
    meta, status = certificate.metadata, certificate.status
    issuing = conditions.find(status.conditions, reasons.ISSUING)
    record = read_retry(meta.annotations)
    subject = f"Certificate {meta.key}"
    look = f"certwright status certificate {meta.name} -n {meta.namespace}"
    next_attempt = record.next_attempt if record is not None else None
    message = record.message if record is not None else issuing.message if issuing is not None else ""
    is_failing = status.last_failure_time is not None
    if is_failing and (status.failed_issuance_attempts or 1) >= settings.failed_attempts:
        yield Problem(
            kind=ProblemKind.FAILING,
            subject=subject,
            cause=message or "the last request has failed",
            fix=(record.advice if record is not None else "") or f"`{look}` explains it",
            since=status.last_failure_time,
            attempts=status.failed_issuance_attempts or 1,
            next_attempt=next_attempt,
            not_after=status.not_after,
        )
    if status.not_after is not None and is_overdue(certificate, settings, now):
        due = status.renewal_time
        cause = "no renewal is planned" if due is None else f"its renewal was due at {rfc3339(due)}"
        yield Problem(
            kind=ProblemKind.EXPIRING,
            subject=subject,
            cause=message if is_failing and message else cause,
            fix=f"`{look}` explains it; `certwright renew {meta.name} -n {meta.namespace}` renews it now",
            next_attempt=next_attempt,
            not_after=status.not_after,
        )
    key = conditions.find(status.conditions, reasons.CA_KEY_REPLACEMENT)
    # Clients install roots; what an intermediate has signed they verify with the chain that they are sent.
    if key is not None and key.status == "True" and key.reason == reasons.REPLACES_ROOT_KEY:
        yield Problem(
            kind=ProblemKind.NEW_KEY,
            subject=subject,
            cause=key.message,
            fix=f"`certwright edit certificate {meta.name} -n {meta.namespace}` sets rotationPolicy: Never; "
            "or have clients install the new CA certificate",
            since=key.last_transition_time,
            not_after=status.not_after,
        )


def is_overdue(certificate: Certificate, settings: NotificationSettings, now: datetime) -> bool:
    """Whether the certificate ends soon, and should have been renewed a tenth of its life ago, a day at
    most."""
    status = certificate.status
    if status.not_after is None or status.not_after - now > settings.expires_within:
        return False
    if status.renewal_time is None:
        return True
    life = status.not_after - (status.not_before or status.not_after)
    return now >= status.renewal_time + min(life / 10, _LONGEST_GRACE)


def of_issuer(
    kind: str, issuer: Issuer | ClusterIssuer, settings: NotificationSettings, now: datetime
) -> Iterator[Problem]:
    """The problem of an issuer that has not been ready for a while."""
    ready = conditions.find(issuer.status.conditions, reasons.READY)
    if ready is None or ready.status == "True" or ready.last_transition_time is None:
        return
    if now - ready.last_transition_time < settings.issuer_not_ready_for:
        return
    meta = issuer.metadata
    where = f" -n {meta.namespace}" if meta.namespace else ""
    yield Problem(
        kind=ProblemKind.ISSUER,
        subject=f"{kind} {meta.key}",
        cause=f"{ready.reason}: {ready.message}",
        fix=f"`certwright status {kind.lower()} {meta.name}{where}` explains it",
        since=ready.last_transition_time,
    )
