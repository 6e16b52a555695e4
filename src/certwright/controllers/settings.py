"""Settings of the controllers of one process; names, meanings and feature gates are cert-manager's.

Source: cert-manager `internal/controller/feature/features.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.backoff import BackoffLimits
from certwright.controllers.circuit_breaker import ATTEMPTS_PER_HOUR
from certwright.controllers.deliveries.permissions import DeliveryOptions
from certwright.controllers.notifier import Notifications
from certwright.controllers.shims.annotations import ShimOptions
from certwright.kube.api.naming import random_suffix
from certwright.resources.names import COPIED_ANNOTATION_PREFIXES

SECRETS_FILTERED_CACHING = "SecretsFilteredCaching"
"""Of Secrets without the label only those in use are cached (see `secrets.py`)."""

POST_QUANTUM = "PostQuantum"
"""Alpha, beyond cert-manager: private keys of ML-DSA (see `docs/post-quantum.md`)."""

EXACT_PATHS = "ACMEHTTP01IngressPathTypeExact"
"""Paths of HTTP-01 Ingresses have the type Exact; without it ImplementationSpecific."""

FEATURE_GATES: Mapping[str, bool] = {SECRETS_FILTERED_CACHING: True, EXACT_PATHS: True, POST_QUANTUM: False}
"""All feature gates, and whether each is on by default."""

# Each worker mostly waits for the API server; the more writes are in progress, the more a store with group
# commit can put into one commit.
_WORKERS = 32


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`enabled` is the list of `--controllers`. `namespace` restricts the controllers to one namespace,
    without ClusterIssuers (None: all). The Secrets of ClusterIssuers lie in `cluster_resource_namespace`;
    `filtered_secrets` False caches all Secrets in full. `api_server_ca` is the CA
    of the API server as PEM; empty: unknown. `notifications` None: none are sent. `suffix` makes the random
    ends of names."""

    enabled: str = "*"
    cluster_resource_namespace: str = "kube-system"
    namespace: str | None = None
    backoff_minimum: timedelta = timedelta(hours=1)
    backoff_maximum: timedelta = timedelta(hours=32)
    issuer_attempts_per_hour: int = ATTEMPTS_PER_HOUR
    certificate_owner_references: bool = False
    copied_annotation_prefixes: Sequence[str] = COPIED_ANNOTATION_PREFIXES
    filtered_secrets: bool = True
    acme: AcmeOptions = msgspec.field(default_factory=AcmeOptions)
    shims: ShimOptions = msgspec.field(default_factory=ShimOptions)
    deliveries: DeliveryOptions = msgspec.field(default_factory=DeliveryOptions)
    api_server_ca: bytes = b""
    notifications: Notifications | None = None
    workers: int = _WORKERS
    suffix: Callable[[int], str] = random_suffix

    @property
    def limits(self) -> BackoffLimits:
        """The shortest and the longest wait between failed requests."""
        return BackoffLimits(minimum=self.backoff_minimum, maximum=self.backoff_maximum)
