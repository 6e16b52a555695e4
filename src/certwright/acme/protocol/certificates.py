"""Certificate download with chain, and the choice of the preferred chain (RFC 8555 §7.4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from certwright.acme.protocol.errors import NotAcme
from certwright.acme.protocol.exchange import Session, post
from certwright.acme.protocol.messages import Action, Flow, Response
from certwright.kit.outgoing import place_of
from certwright.pki.certificates import CertificateFacts, read_answer
from certwright.pki.chain import pem_of
from certwright.pki.errors import PkiError

_CHAIN = "application/pem-certificate-chain"


@dataclass(frozen=True, slots=True)
class Download:
    """A chain as PEM, leaf first, and the URLs of the alternate chains."""

    pem: bytes = field(repr=False)
    chain: tuple[CertificateFacts, ...]
    alternates: tuple[str, ...] = ()

    def ends_with(self, common_name: str) -> bool:
        """Whether the topmost certificate was issued by that name."""
        return f"CN={common_name}" in self.chain[-1].issuer_text.split(",")


def download(session: Session, url: str, *, preferred_chain: str = "") -> Flow[Download]:
    """Download the certificate with its chain: the first alternate whose topmost certificate was issued by
    `preferred_chain`, otherwise the default chain."""
    default = _read((yield from post(session, Action.CERTIFICATE, url, accept=_CHAIN)))
    if not preferred_chain or default.ends_with(preferred_chain):
        return default
    for alternate in default.alternates:
        candidate = _read((yield from post(session, Action.CERTIFICATE, alternate, accept=_CHAIN)))
        if candidate.ends_with(preferred_chain):
            return candidate
    return default


def _read(response: Response) -> Download:
    try:
        chain = read_answer(response.body)
    except PkiError as error:
        raise NotAcme(
            f"{place_of(response.url)} answered with something that is no certificate: {error}"
        ) from error
    return Download(pem_of(chain), chain, tuple(response.links("alternate")))
