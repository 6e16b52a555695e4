"""Registry of issuer types and their implementations.

The modules of Vault and Certificate Manager (0.7 MB) are imported with their first issuer.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar, cast

from certwright.issuers.acme import ACME
from certwright.issuers.ca import CA
from certwright.issuers.contract import (
    Failed,
    Issuer,
    Outcome,
    ProbedIssuer,
    Remark,
    Signed,
    SigningRequest,
    Tools,
)
from certwright.issuers.selfsigned import SelfSigned
from certwright.pki.chain import pem_of
from certwright.pki.errors import BadCertificate
from certwright.pki.verify import is_quick, verify_answer
from certwright.resources.issuer import IssuerSpec
from certwright.resources.reasons import INVALID_CERTIFICATE

if TYPE_CHECKING:
    from certwright.issuers.vault.issuer import Vault
    from certwright.issuers.venafi.issuer import Venafi

T = TypeVar("T")

_FIELDS: Mapping[str, str] = {
    "acme": "acme",
    "ca": "ca",
    "vault": "vault",
    "selfSigned": "self_signed",
    "venafi": "venafi",
}
"""The issuer types by their YAML names, and their fields in `IssuerSpec`."""


class _Made(Mapping[str, T]):
    """The results of `make` for each type, made at first use."""

    def __init__(self, make: Mapping[str, Callable[[], T]]) -> None:
        self._make = make

    def __getitem__(self, kind: str) -> T:
        """Raises `KeyError` for another type."""
        return self._make[kind]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._make)

    def __len__(self) -> int:
        return len(self._make)


@cache
def _loaded(module: str, name: str) -> Vault | Venafi:
    return cast("Vault | Venafi", getattr(importlib.import_module(module), name)())


_vault = partial(_loaded, "certwright.issuers.vault.issuer", "Vault")
_venafi = partial(_loaded, "certwright.issuers.venafi.issuer", "Venafi")

ISSUERS: Mapping[str, Issuer] = _Made[Issuer](
    {
        "acme": cache(ACME),
        "ca": cache(CA),
        "vault": _vault,
        "selfSigned": cache(SelfSigned),
        "venafi": _venafi,
    }
)

PROBED: Mapping[str, ProbedIssuer] = _Made[ProbedIssuer]({"vault": _vault, "venafi": _venafi})
"""The types whose server can be probed by this package; ACME's is probed by its controllers."""

QUERIED_DIRECTLY = frozenset({"vault", "venafi"})
"""The types whose server is asked while a request is reconciled, if their circuit breaker admits it."""

WITHOUT_TRACES = frozenset({"ca", "selfSigned"})
"""The types without external effects: they need no circuit breaker."""


async def verified(outcome: Outcome, signing: SigningRequest, tools: Tools) -> Outcome:
    """The outcome of `sign`, with a signed certificate verified as clients do, and made from its DER.

    A certificate that no client accepts is a failure; what some refuse, or only some accept, is a remark.
    """
    if not isinstance(outcome, Signed):
        return outcome
    work = partial(verify_answer, outcome.chain_pem, outcome.ca_pem, tools.now())
    namespace = signing.request.metadata.namespace
    try:
        quick = is_quick(outcome.chain_pem, outcome.ca_pem)
        result = work() if quick else await tools.executor.run(work, namespace)
    except BadCertificate as error:
        return Failed(
            INVALID_CERTIFICATE, f"The issuer returned something that is not a certificate: {error}"
        )
    if result.refusal:
        return Failed(INVALID_CERTIFICATE, f"No client would accept the certificate: {result.refusal}")
    remarks = outcome.warnings
    if texts := (*result.faults, *result.remarks):
        remarks += (Remark("BadConfig", f"Some clients refuse the certificate: {'; '.join(texts)}"),)
    return Signed(pem_of(result.chain), outcome.ca_pem, remarks)


def kind_of(spec: IssuerSpec) -> str:
    """The issuer type, a key of `ISSUERS`; empty if the spec names none."""
    for kind, field in _FIELDS.items():
        if getattr(spec, field) is not None:
            return kind
    return ""
