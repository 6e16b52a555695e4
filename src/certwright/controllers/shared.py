"""What the controllers of one process share."""

from __future__ import annotations

from functools import partial

from certwright.controllers import table
from certwright.controllers.authorities import Authorities
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cache.shard_members import share_of
from certwright.controllers.deliveries.cache import follow_deliveries
from certwright.controllers.queues import Queues
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.retry.breaker_records import BreakerRecords
from certwright.controllers.retry.circuits import Circuits
from certwright.controllers.retry.gate import IssuerGate
from certwright.controllers.servers import Servers
from certwright.controllers.settings import Settings
from certwright.controllers.toolbox import Toolbox
from certwright.kube.client.informer import Informer
from certwright.kube.util.clock import Clock
from certwright.resources.delivery import Delivery

USER_AGENT = "certwright"
"""The User-Agent that servers of issuers see."""


class Shared:
    """`mine` selects the Certificates (with all that belongs to them) and issuers that this replica works on;
    None is all. Raises `ValueError` with a sentence for invalid settings."""

    def __init__(self, toolbox: Toolbox, clock: Clock, settings: Settings, mine: Mine | None) -> None:
        self.toolbox, self.clock, self.settings, self.mine = toolbox, clock, settings, mine
        self.enabled = table.parse_enabled(settings.enabled)
        self.secrets_of_cluster_issuers = settings.cluster_resource_namespace
        self.policy = settings.acme.policy
        self.caches = Caches(
            toolbox.client,
            clock,
            namespace=settings.namespace or "",
            cluster_resource_namespace=settings.cluster_resource_namespace,
            signing_requests=bool(table.signer_kinds(self.enabled, table.CSR_SIGNERS)),
            filtered_secrets=settings.filtered_secrets,
            mine=mine,
        )
        self.deliveries: Informer[Delivery] | None = None
        if table.DELIVERIES in self.enabled and settings.deliveries.roots:
            self.deliveries = follow_deliveries(
                toolbox.client, clock, settings.namespace or "", settings.deliveries
            )
            self.caches.add((self.deliveries,))
        self.queues = Queues(clock, self.caches, mine)
        self.issuers = KnownIssuers(self.caches, self.enabled, self.secrets_of_cluster_issuers)
        self.gate = self._gate(settings.issuer_attempts_per_hour)
        self.servers = Servers(toolbox.client, user_agent=USER_AGENT, policy=self.policy)
        wake = partial(self.queues.add, "certificates")
        self.authorities = Authorities(self.caches, self.secrets_of_cluster_issuers, wake)

    def _gate(self, attempts_per_hour: int) -> IssuerGate:
        own, now = share_of(attempts_per_hour, self.mine), self.clock.now
        share = own / attempts_per_hour if attempts_per_hour > 0 else 1.0
        circuits = Circuits(self.issuers.object_of, attempts_per_hour=own)
        records = BreakerRecords(self.caches, circuits, now=now, share_of_attempts=share)
        return IssuerGate(self.caches, circuits, records, now=now, mine=self.mine)
