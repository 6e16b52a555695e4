"""Settings of the shims; names and meanings as cert-manager's flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from certwright.resources.names import GROUP

TLS_ACME: Final = "kubernetes.io/tls-acme"
TLS_PROTOCOLS: Final = ("HTTPS", "TLS")


class ShimOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The default issuer is that of Ingresses with one of `auto_annotations`, where it has a name.
    `extra_annotations` are copied to Certificates. Listeners of `extra_protocols` use TLS, too. `gateways`
    and `listener_sets` False: these kinds are ignored."""

    issuer_name: str = ""
    issuer_kind: str = "Issuer"
    issuer_group: str = GROUP
    auto_annotations: Sequence[str] = (TLS_ACME,)
    extra_annotations: Sequence[str] = ()
    extra_protocols: Sequence[str] = ()
    gateways: bool = True
    listener_sets: bool = True

    @property
    def protocols(self) -> frozenset[str]:
        """The protocols of listeners that need certificates."""
        return frozenset((*TLS_PROTOCOLS, *self.extra_protocols))
