"""Responses of every replica: each one answers the pending HTTP-01 and TLS-ALPN-01 challenges of all.

Wakes on:  Challenge
Reads:     Challenge, the account key of its issuer
Writes:    nothing in the API; the responses of this process's listeners
Next:      challenges, of the replica that works on it

A load balancer in front of several replicas passes each request of a CA to any of them. So a replica also
answers for Challenges of other shards, and while it waits for the lease.

`spec.key` of a Challenge is served only if it follows from the token and the account key of an issuer of
this API server. So a Challenge written by hand proves nothing for a foreign account: a CA accepts the
response only in an order of the same account, and the controllers place orders for approved requests alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from certwright.acme.solvers.contract import Solver, Task
from certwright.acme.solvers.http01 import Responder
from certwright.acme.solvers.tlsalpn01 import Listener
from certwright.controllers.cache.event_handlers import key_of
from certwright.issuers import acme_account
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime.controller import Controller, Result
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet
from certwright.resources.acme import Challenge
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.table import CHALLENGES, CLUSTER_ISSUERS, ISSUERS

PATIENCE_S: Final = 2.0
"""How long a listener waits for a challenge that another replica may have created this very moment."""
_WORKERS: Final = 4


class _Shown(msgspec.Struct, frozen=True):
    uid: str
    solver: Solver
    task: Task


class Responses:
    """Keeps the responses of `http` and `tls` (None: this process does not listen for that type), for the
    Challenges of `namespace` ("": everywhere)."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        http: Responder | None,
        tls: Listener | None,
        *,
        namespace: str,
        cluster_resource_namespace: str,
    ) -> None:
        self._client = client
        self._solvers: dict[str, Solver | None] = {"HTTP-01": http, "TLS-ALPN-01": tls}
        self._namespace = namespace
        self._cluster_resource_namespace = cluster_resource_namespace
        self._shown: dict[ObjectKey, _Shown] = {}
        self._thumbprints: dict[tuple[str, str, str], str] = {}
        self._challenges: Informer[Challenge] = Informer(client, CHALLENGES, clock, namespace=namespace)
        queue: WorkQueue[ObjectKey] = WorkQueue(clock)
        self._challenges.add_handler(lambda old, new: queue.add(key_of(old, new)))
        self._controller = Controller("challenge-responses", self.reconcile, queue, workers=_WORKERS)
        for listener in (http, tls):
            if listener is not None:
                listener.shown.patience_s = PATIENCE_S

    def start(self, tasks: TaskSet) -> None:
        """Follow the Challenges."""
        tasks.start(self._challenges.run(), name="informer of responses")
        tasks.start(self._controller.run(), name=self._controller.name)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Show or remove one response. Raises what a GET raises."""
        challenge = self._challenges.cache.get(key)
        if challenge is not None and (
            challenge.status.is_final or challenge.metadata.deletion_timestamp is not None
        ):
            challenge = None
        shown = self._shown.get(key)
        if shown is not None and (challenge is None or challenge.metadata.uid != shown.uid):
            del self._shown[key]
            await shown.solver.clean_up(shown.task)
            shown = None
        if shown is not None or challenge is None:
            return Result()
        spec = challenge.spec
        http01 = spec.solver.http01
        is_elsewhere = spec.solver.exec is not None or (http01 is not None and http01.webroot is not None)
        solver = self._solvers.get(spec.type)
        if solver is not None and not is_elsewhere and await self._is_ours(challenge):
            task = Task(
                type=spec.type.lower(),
                identifier=spec.dns_name,
                wildcard=spec.wildcard,
                token=spec.token,
                key=spec.key,
                uid=challenge.metadata.uid,
            )
            await solver.present(task)
            self._shown[key] = _Shown(challenge.metadata.uid, solver, task)
        return Result()

    async def _is_ours(self, challenge: Challenge) -> bool:
        """Whether the response follows from the account key of the Challenge's issuer."""
        spec = challenge.spec
        namespace = challenge.metadata.namespace
        issuer = (spec.issuer_ref.kind_or_default, namespace, spec.issuer_ref.name)
        token, _, thumbprint = spec.key.rpartition(".")
        if token != spec.token or not token:
            return False
        if self._thumbprints.get(issuer) == thumbprint:
            return True
        expected = await self._thumbprint(*issuer)
        if expected is None:
            return False
        self._thumbprints[issuer] = expected
        return expected == thumbprint

    async def _thumbprint(self, kind: str, namespace: str, name: str) -> str | None:
        """The thumbprint of an issuer's account key; None where there is none."""
        is_cluster = kind == CLUSTER_ISSUERS.kind
        try:
            issuer: Issuer | ClusterIssuer
            if not is_cluster:
                issuer = await self._client.get(ISSUERS, name, namespace)
            elif not self._namespace:
                issuer = await self._client.get(CLUSTER_ISSUERS, name)
            else:
                return None
            if (spec := issuer.spec.acme) is None:
                return None
            secrets_in = self._cluster_resource_namespace if is_cluster else namespace
            secret = await self._client.get(SECRETS, spec.private_key_secret_ref.name, secrets_in)
        except NotFound:
            return None
        key = acme_account.account_key(spec, secret.data)
        return key.thumbprint if key is not None else None
