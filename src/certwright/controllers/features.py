"""The feature gates of the controllers: cert-manager's names, and its defaults.

Source: cert-manager `internal/controller/feature/features.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

SECRETS_FILTERED_CACHING = "SecretsFilteredCaching"
"""Of Secrets without the label only those in use are cached (see `secrets.py`)."""

DEFAULTS: Mapping[str, bool] = {SECRETS_FILTERED_CACHING: True}
"""Every gate there is."""
