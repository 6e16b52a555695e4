"""What the controllers of one process share (cert-manager's `controller.Context`)."""

from __future__ import annotations

from functools import partial

from certwright.controllers import table
from certwright.controllers.authorities import Authorities
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.event_handlers import Add
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.issuer_gate import IssuerGate
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.servers import Servers
from certwright.controllers.settings import Settings
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import IssuerView
from certwright.kube.api.meta import ObjectKey
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.clock import Clock

USER_AGENT = "certwright"
"""The User-Agent that servers of issuers see."""


class Context:
    """Caches, issuers with their circuit breakers, and work queues of one process.

    `mine` selects the Certificates (with all that belongs to them) and issuers that this replica works on;
    None is all. Raises `ValueError` with a sentence for invalid settings.
    """

    def __init__(self, toolbox: Toolbox, clock: Clock, settings: Settings, mine: Mine | None) -> None:
        self.toolbox, self.clock, self.settings, self.mine = toolbox, clock, settings, mine
        self.enabled = table.parse_enabled(settings.enabled)
        self.namespace = settings.namespace or ""
        self.secrets_of_cluster_issuers = settings.cluster_resource_namespace
        self.caches = Caches(
            toolbox.client,
            clock,
            namespace=self.namespace,
            cluster_resource_namespace=settings.cluster_resource_namespace,
            signing_requests=bool(table.signer_kinds(self.enabled, table.CSR_SIGNERS)),
            filtered_secrets=settings.filtered_secrets,
            mine=mine,
        )
        self.issuers = KnownIssuers(self.caches, self.enabled, self.secrets_of_cluster_issuers)
        self.gate = IssuerGate(
            self.caches,
            self.issuers.object_of,
            now=clock.now,
            attempts_per_hour=settings.issuer_attempts_per_hour,
            mine=mine,
        )
        self.servers = Servers(toolbox.client, user_agent=USER_AGENT, policy=settings.acme.policy)
        self.queues: dict[str, WorkQueue[ObjectKey]] = {}
        """By the names of the controllers that run."""
        self.rechecked: set[ObjectKey] = set()
        """Issuers that this replica checks though they may be another's."""
        self.authorities = Authorities(
            self.caches, self.secrets_of_cluster_issuers, self.adder("certificates")
        )

    def enqueue(self, controller: str, key: ObjectKey) -> None:
        """Enqueue a key of that controller, if it runs."""
        if (queue := self.queues.get(controller)) is not None:
            queue.add(key)

    def adder(self, controller: str) -> Add:
        """A function that enqueues keys of that controller, which may be added later."""
        return partial(self.enqueue, controller)

    def recheck(self, issuer: IssuerView) -> None:
        """Have an issuer checked again; another replica's too, because the state of an account at its server
        is known in this process only."""
        key = ObjectKey(issuer.namespace, issuer.name)
        self.rechecked.add(key)
        self.check_issuer(key)

    def check_issuer(self, issuer: ObjectKey) -> None:
        """Have the Issuer, or, without a namespace, the ClusterIssuer of that key checked again."""
        self.enqueue("issuers" if issuer.namespace else "clusterissuers", issuer)
