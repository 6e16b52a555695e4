"""The state of the certificates of `certwright run`: diagnoses, files, rows of the final table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from certwright.cli.diagnosis import Around, Diagnosis, condition, diagnose, issuer_words
from certwright.cli.exporting import Exports
from certwright.cli.format import at, parse_time
from certwright.cli.live_view import Mirror
from certwright.cli.progress import Row
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.cache import revision_of
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock


class Overview:
    """Reads the informers, and synchronizes the export folder with the Secrets."""

    def __init__(self, mirror: Mirror, exports: Exports, clock: Clock) -> None:
        self.mirror = mirror
        self._exports = exports
        self._clock = clock
        self._exported: dict[ObjectKey, str] = {}
        self._applied: dict[ObjectKey, int] = {}

    def expect(self, key: ObjectKey, revision: int) -> None:
        """Ignore cached states of this certificate before this resourceVersion."""
        self._applied[key] = revision

    def story(self, key: ObjectKey) -> Diagnosis:
        """The diagnosis of the certificate; not ready until its latest change has been processed."""
        around = self.mirror.around(key)
        if around is None or revision_of(around.certificate) < self._applied.get(key, 0):
            return Diagnosis("does not exist" if around is None else "just changed")
        story = diagnose(around, self._clock.now())
        return (
            Diagnosis("the change has not been processed yet") if story.ready and not _seen(around) else story
        )

    def outcome(self, key: ObjectKey) -> str:
        """The diagnosis with absolute times, so that it changes only when something happened."""
        around = self.mirror.around(key)
        if around is None:
            return "no longer exists"
        status = around.certificate.get("status") or {}
        story = diagnose(around, self._clock.now())
        expires, renews = parse_time(status.get("notAfter")), parse_time(status.get("renewalTime"))
        if not story.ready or condition(around.certificate, "Issuing") or expires is None:
            return str(story)
        tail = f", renews on {at(renews)}" if renews else ""
        return f"revision {status.get('revision', 1)} is valid until {at(expires)}{tail}"

    async def export_changes(self) -> list[ObjectKey]:
        """Write the files of every certificate whose Secret has changed; returns which."""
        changed = []
        for key in self.mirror.certificates():
            secret = self.mirror.secret(key)
            if secret is None or self._exported.get(key) == secret.metadata.resource_version:
                continue
            self._exported[key] = secret.metadata.resource_version
            if await self._exports.write(key, secret):
                changed.append(key)
        return changed

    async def export_overdue(self) -> list[ObjectKey]:
        """Write the files that were changed or deleted by others, or could not be written; returns which."""
        return [
            key
            for key in await self._exports.overdue()
            if await self._exports.write(key, self.mirror.secret(key))
        ]

    async def export_now(self, client: Client, keys: Iterable[ObjectKey]) -> None:
        """Write the files of these certificates from their Secrets on the server, not from the cache: Ready
        may be cached before the Secret is."""
        for key in keys:
            around = self.mirror.around(key)
            if around is None:
                continue
            try:
                secret = await client.get(SECRETS, around.certificate["spec"]["secretName"], key.namespace)
            except NotFound:
                continue
            self._exported[key] = secret.metadata.resource_version
            await self._exports.write(key, secret)

    def folder(self, key: ObjectKey) -> Path | None:
        """The folder of the certificate's files, once they exist."""
        return self._exports.folder(key) if self._exports.names(key) else None

    def has_dns_names(self, key: ObjectKey) -> bool:
        """Whether the certificate is for a server."""
        around = self.mirror.around(key)
        return around is not None and bool((around.certificate.get("spec") or {}).get("dnsNames"))

    def row(self, key: ObjectKey) -> Row | None:
        """Its row of the final table; None if the certificate was deleted."""
        around = self.mirror.around(key)
        if around is None:
            return None
        status = around.certificate.get("status") or {}
        return Row(
            key=key,
            ready=self.story(key).ready,
            issuer=issuer_words(around.certificate),
            not_after=_minute(status.get("notAfter")),
            renews_at=_minute(status.get("renewalTime")),
            files=self._files(key),
        )

    def _files(self, key: ObjectKey) -> str:
        folder = self.folder(key)
        return f"{folder}/{{{','.join(self._exports.names(key))}}}" if folder else ""


def _seen(around: Around) -> bool:
    """Whether the Ready condition is of the current generation of the certificate."""
    seen = condition(around.certificate, "Ready").get("observedGeneration")
    return seen is None or seen >= around.certificate["metadata"].get("generation", 0)


def _minute(value: object) -> str:
    moment = parse_time(value)
    return at(moment).removesuffix(" UTC") if moment else ""
