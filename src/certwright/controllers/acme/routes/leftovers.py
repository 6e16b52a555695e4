"""Objects of HTTP-01 solvers that outlived their Challenge: of cert-manager, or of a process that was killed.

Kubernetes deletes most of them with their Challenge, which owns them. What is left is what belongs to a
Challenge that has ended and still exists, and the Services of namespaces, which no Challenge owns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from certwright.controllers.acme.routes import objects
from certwright.controllers.acme.routes.services import ServiceKey, SolverServices
from certwright.kube.api.errors import ApiError, Conflict, Forbidden, NotFound, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.resources.acme import Challenge
from certwright.resources.table import CHALLENGES

_log = logging.getLogger(__name__)

INTERVAL: Final = timedelta(hours=1)
# The Challenge of a younger object may not be in the cache yet.
YOUNG: Final = timedelta(minutes=5)
_PAGE: Final = 500
_KINDS: Final = (objects.PODS, objects.INGRESSES, objects.HTTP_ROUTES, objects.SERVICES)


class Leftovers:
    """Removes them at the start, and once an hour. `challenges` must be in sync."""

    def __init__(
        self, client: Client, clock: Clock, challenges: Informer[Challenge], services: SolverServices
    ) -> None:
        self._client = client
        self._clock = clock
        self._challenges = challenges
        self._services = services

    async def run(self, namespace: str) -> None:
        """Until cancelled; `namespace` "": in all."""
        while True:
            for kind in _KINDS:
                try:
                    await self._remove(kind, namespace)
                except (NotFound, Forbidden) as error:
                    _log.debug("left-over %s are not removed: %s", kind.plural, error)
                except (ApiError, Unreachable) as error:
                    _log.warning("left-over %s could not be removed: %s", kind.plural, error)
            await self._clock.sleep(INTERVAL.total_seconds())

    async def _remove(self, kind: Kind[objects.Json], namespace: str) -> None:
        labels = f"{objects.SOLVER_LABEL}=true"
        candidates = (await self._client.list(kind, namespace, labels=labels, limit=_PAGE)).items
        pending = {challenge.metadata.uid: challenge.metadata.namespace for challenge in self._pending()}
        in_use = frozenset(pending.values())
        for candidate in candidates:
            meta = candidate["metadata"]
            if self._clock.now() - datetime.fromisoformat(meta["creationTimestamp"]) < YOUNG:
                continue
            owner = _owning_challenge(candidate)
            if owner:
                if owner not in pending:
                    await self._delete(kind, candidate)
            elif kind is objects.SERVICES and _is_ours(candidate) and meta["namespace"] not in in_use:
                await self._services.remove_unused(ServiceKey(meta["namespace"], meta["name"]))

    def _pending(self) -> Iterator[Challenge]:
        return (challenge for challenge in self._challenges.cache.values() if not challenge.status.is_final)

    async def _delete(self, kind: Kind[objects.Json], obj: objects.Json) -> None:
        meta = obj["metadata"]
        try:
            await self._client.delete(kind, meta["name"], meta["namespace"], uid=meta["uid"])
        except (NotFound, Conflict):
            return
        _log.info("%s %s/%s of an ended Challenge removed", kind.kind, meta["namespace"], meta["name"])


def _owning_challenge(obj: objects.Json) -> str:
    """The UID of the Challenge that owns the object; empty where none does."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == CHALLENGES.kind and owner.get("apiVersion") == CHALLENGES.api_version:
            return str(owner.get("uid", ""))
    return ""


def _is_ours(service: objects.Json) -> bool:
    labels = service["metadata"].get("labels") or {}
    return labels.get(objects.MANAGED_BY) == objects.US and "selector" not in service["spec"]
