"""Renewal information: when the CA wants a certificate renewed (RFC 9773)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

from certwright.acme.protocol import reading
from certwright.acme.protocol.directory import Directory
from certwright.acme.protocol.errors import NotAcme
from certwright.acme.protocol.exchange import checked
from certwright.acme.protocol.jws import b64url
from certwright.acme.protocol.messages import Action, Flow, Request
from certwright.pki.certificates import CertificateFacts


@dataclass(frozen=True, slots=True)
class RenewalInfo:
    """The window in which the CA suggests to renew. `retry_after`: not to be asked again before."""

    start: datetime
    end: datetime
    explanation_url: str = ""
    retry_after: datetime | None = None

    def moment(self, seed: str) -> datetime:
        """A moment inside the window, the same for the same seed and window: "Select a uniform random time
        within the suggested window" (§4.2), but one that a restart does not change."""
        digest = hashlib.sha256(f"{seed}/{self.start.isoformat()}/{self.end.isoformat()}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        return (self.start + (self.end - self.start) * share).replace(microsecond=0)


def certificate_id(certificate: CertificateFacts) -> str:
    """The identifier of a certificate (§4.1); empty where it names no key of its issuer."""
    parsed = certificate.parsed
    try:
        authority = parsed.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except (x509.ExtensionNotFound, ValueError):
        return ""
    if authority.key_identifier is None:
        return ""
    serial = parsed.serial_number
    # As DER writes an INTEGER: one more byte where the first bit is set.
    encoded = serial.to_bytes(serial.bit_length() // 8 + 1, "big")
    return f"{b64url(authority.key_identifier)}.{b64url(encoded)}"


def fetch_renewal_info(directory: Directory, identifier: str) -> Flow[RenewalInfo]:
    """What the CA suggests for that certificate. Nobody signs in for this (§4.1)."""
    if not directory.renewal_info:
        raise NotAcme(f"the server at {directory.url} offers no renewal information")
    url = f"{directory.renewal_info.rstrip('/')}/{identifier}"
    response = checked((yield Request(Action.RENEWAL_INFO, "GET", url)))
    found = reading.read_object(response, "renewal information")
    window = found.get("suggestedWindow")
    window = window if isinstance(window, dict) else {}
    start, end = reading.moment(window, "start"), reading.moment(window, "end")
    if start is None or end is None or end <= start:
        # "Clients … MUST … treat a server response with end ≤ start" as if there were none (§4.3.3).
        raise NotAcme(f"{url} answered with a window that has no beginning or no end after it")
    return RenewalInfo(start, end, reading.text(found, "explanationURL"), response.retry_after)
