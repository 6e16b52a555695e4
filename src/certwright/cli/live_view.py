"""Informers of everything related to certificates, with notification of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from certwright.cli import related
from certwright.cli.diagnosis import OUR_GROUP, Around, issuer_ref
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet

Json = dict[str, Any]
_OWNER = "owner"


def _owners(obj: Json) -> Iterable[str]:
    return [owner.get("uid", "") for owner in obj["metadata"].get("ownerReferences") or []]


class Mirror:
    """Watches certificates, requests, issuers and Secrets of one server, in all namespaces.

    `changed` is set after any possible change; the caller that waits for it clears it.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self.changed = asyncio.Event()
        self._tasks = TaskSet()
        self._certificates = self._follow(client, related.CERTIFICATES, clock)
        self._requests = self._follow(client, related.REQUESTS, clock)
        self._issuers = self._follow(client, related.ISSUERS, clock)
        self._cluster_issuers = self._follow(client, related.CLUSTER_ISSUERS, clock)
        # Typed, because the caller needs its values as bytes.
        self._secrets: Informer[Secret] = Informer(client, SECRETS, clock)
        self._secrets.add_handler(lambda _old, _new: self.changed.set())
        self._tasks.start(self._secrets.run(), name="mirror of secrets")

    def _follow(self, client: Client, kind: Kind[Json], clock: Clock) -> Informer[Json]:
        informer: Informer[Json] = Informer(client, kind, clock, indexers={_OWNER: _owners})
        informer.add_handler(lambda _old, _new: self.changed.set())
        self._tasks.start(informer.run(), name=f"mirror of {kind.plural}")
        return informer

    async def synced(self) -> None:
        """Return when all informers are synced."""
        for informer in (self._certificates, self._requests, self._issuers, self._cluster_issuers):
            await informer.synced.wait()
        await self._secrets.synced.wait()

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

    def secret(self, key: ObjectKey) -> Secret | None:
        """The Secret that a certificate names, if it exists."""
        certificate = self._certificates.cache.get(key)
        name = ((certificate or {}).get("spec") or {}).get("secretName", "")
        return self._secrets.cache.get(ObjectKey(key.namespace, name))

    async def close(self) -> None:
        """Stop the informers."""
        await self._tasks.close()
