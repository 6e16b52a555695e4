"""The state of the certificates of `certwright run`: informers, diagnoses, files, the final table."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from certwright import app
from certwright.cli import related
from certwright.cli.diagnosis import (
    OUR_GROUP,
    Around,
    Diagnosis,
    condition,
    diagnose,
    issuer_ref,
    issuer_words,
)
from certwright.cli.format import at, parse_time
from certwright.cli.progress import Row
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.cache import revision_of
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet

Json = dict[str, Any]
_OWNER = "owner"


def _owners(obj: Json) -> Iterable[str]:
    return [owner.get("uid", "") for owner in obj["metadata"].get("ownerReferences") or []]


class Mirror:
    """Watches certificates, requests and issuers of one server, in all namespaces.

    `changed` is set after any possible change; the caller that waits for it clears it.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self.changed = asyncio.Event()
        self._tasks = TaskSet()
        self._certificates = self._follow(client, related.CERTIFICATES, clock)
        self._requests = self._follow(client, related.REQUESTS, clock)
        self._issuers = self._follow(client, related.ISSUERS, clock)
        self._cluster_issuers = self._follow(client, related.CLUSTER_ISSUERS, clock)

    def _follow(self, client: Client, kind: Kind[Json], clock: Clock) -> Informer[Json]:
        informer: Informer[Json] = Informer(client, kind, clock, indexers={_OWNER: _owners})
        informer.add_handler(lambda _old, _new: self.changed.set())
        self._tasks.start(informer.run(), name=f"mirror of {kind.plural}")
        return informer

    async def synced(self) -> None:
        """Return when all informers are synced."""
        for informer in (self._certificates, self._requests, self._issuers, self._cluster_issuers):
            await informer.synced.wait()

    def certificates(self) -> list[ObjectKey]:
        """The existing certificates, by namespace and name."""
        return sorted(self._certificates.cache.keys())

    def around(self, key: ObjectKey) -> Around | None:
        """A certificate and its related objects, without the Secret; None if it does not exist."""
        certificate = self._certificates.cache.get(key)
        if certificate is None:
            return None
        requests = self._requests.cache.by_index(_OWNER, certificate["metadata"].get("uid", ""))
        request = related.current_request(certificate, requests)
        ref = issuer_ref(certificate)
        namesake = self._issuer(related.of_the_other_kind(ref), key.namespace)
        return Around(certificate, self._issuer(ref, key.namespace), request, namesake=namesake)

    def _issuer(self, ref: Mapping[str, str], namespace: str) -> Json | None:
        if ref["group"] != OUR_GROUP:
            return None
        if ref["kind"] == "ClusterIssuer":
            return self._cluster_issuers.cache.get(ObjectKey("", ref["name"]))
        return self._issuers.cache.get(ObjectKey(namespace, ref["name"]))

    async def close(self) -> None:
        """Stop the informers."""
        await self._tasks.close()


class Overview:
    """Reads the informers, and the names of the exported files."""

    def __init__(self, mirror: Mirror, exports: app.Exports, clock: Clock) -> None:
        self.mirror = mirror
        self._exports = exports
        self._clock = clock
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
