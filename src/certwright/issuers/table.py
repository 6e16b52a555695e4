"""Registry of issuer types and their implementations."""

from __future__ import annotations

from collections.abc import Mapping

from certwright.issuers.acme import ACME
from certwright.issuers.ca import CA
from certwright.issuers.contract import Issuer, ProbedIssuer
from certwright.issuers.selfsigned import SelfSigned
from certwright.issuers.vault.issuer import Vault
from certwright.issuers.venafi.issuer import Venafi
from certwright.resources.issuer import IssuerSpec

_FIELDS: Mapping[str, str] = {
    "acme": "acme",
    "ca": "ca",
    "vault": "vault",
    "selfSigned": "self_signed",
    "venafi": "venafi",
}
"""The issuer types by their YAML names, and their fields in `IssuerSpec`."""

_VAULT = Vault()
_VENAFI = Venafi()

ISSUERS: Mapping[str, Issuer] = {
    "acme": ACME(),
    "ca": CA(),
    "vault": _VAULT,
    "selfSigned": SelfSigned(),
    "venafi": _VENAFI,
}


PROBED: Mapping[str, ProbedIssuer] = {"vault": _VAULT, "venafi": _VENAFI}
"""The types whose server can be probed by this package; ACME's is probed by its controllers."""

ASKED_DIRECTLY = frozenset({"vault", "venafi"})
"""The types whose server is asked while a request is reconciled, if their circuit breaker admits it."""

WITHOUT_TRACES = frozenset({"ca", "selfSigned"})
"""The types without external effects: they need no circuit breaker."""


def kind_of(spec: IssuerSpec) -> str:
    """The issuer type, a key of `ISSUERS`; empty if the spec names none."""
    for kind, field in _FIELDS.items():
        if getattr(spec, field) is not None:
            return kind
    return ""
