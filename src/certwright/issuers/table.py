"""Registry of issuer types and their implementations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from certwright.issuers.acme import ACME
from certwright.issuers.ca import CA
from certwright.issuers.contract import (
    Checked,
    Issuer,
    IssuerView,
    Outcome,
    Pending,
    ProbedIssuer,
    SigningRequest,
    Tools,
)
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

NOT_SUPPORTED = "NotSupported"
"""The condition's reason for an issuer type that this version does not support."""


@dataclass(frozen=True, slots=True)
class NotSupported:
    """An issuer type that this version does not support: reports that instead of waiting silently."""

    kind: str

    async def check(self, issuer: IssuerView, tools: Tools) -> Checked:  # noqa: ARG002 - the protocol's
        """Never ready."""
        return Checked(ready=False, reason=NOT_SUPPORTED, message=self._message)

    async def sign(
        self,
        issuer: IssuerView,  # noqa: ARG002 - the protocol's
        signing: SigningRequest,  # noqa: ARG002 - the protocol's
        tools: Tools,  # noqa: ARG002 - the protocol's
    ) -> Outcome:
        """Pending, because a newer version may support it."""
        return Pending(NOT_SUPPORTED, self._message)

    @property
    def _message(self) -> str:
        supported = ", ".join(
            kind for kind, issuer in ISSUERS.items() if not isinstance(issuer, NotSupported)
        )
        return f"{self.kind.capitalize()} issuers are not supported yet; supported: {supported}"


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


def is_supported(kind: str) -> bool:
    """Whether this version supports issuers of that type."""
    return not isinstance(ISSUERS[kind], NotSupported)


def kind_of(spec: IssuerSpec) -> str:
    """The issuer type, a key of `ISSUERS`; empty if the spec names none."""
    for kind, field in _FIELDS.items():
        if getattr(spec, field) is not None:
            return kind
    return ""
