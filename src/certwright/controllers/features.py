"""The feature gates of the controllers: cert-manager's names and defaults, and one of our own.

Source: cert-manager `internal/controller/feature/features.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

SECRETS_FILTERED_CACHING = "SecretsFilteredCaching"
"""Of Secrets without the label only those in use are cached (see `secrets.py`)."""

POST_QUANTUM = "PostQuantum"
"""Alpha, beyond cert-manager: private keys of ML-DSA (see `docs/post-quantum.md`)."""

EXACT_PATHS = "ACMEHTTP01IngressPathTypeExact"
"""Paths of HTTP-01 Ingresses have the type Exact; without it ImplementationSpecific."""

DEFAULTS: Mapping[str, bool] = {SECRETS_FILTERED_CACHING: True, EXACT_PATHS: True, POST_QUANTUM: False}
"""All gates."""
