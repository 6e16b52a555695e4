"""Renewal information: when the CA wants a certificate renewed (RFC 9773)."""

from __future__ import annotations

from datetime import datetime

import msgspec

from certwright.acme.protocol import reading
from certwright.acme.protocol.directory import Directory
from certwright.acme.protocol.errors import NotAcme, checked
from certwright.acme.protocol.messages import Action, Flow, Request
from certwright.kit.outgoing import place_of


class RenewalInfo(msgspec.Struct, frozen=True):
    """The renewal window that the CA suggests. `retry_after`: the earliest moment for the next request."""

    start: datetime
    end: datetime
    explanation_url: str = ""
    retry_after: datetime | None = None


def fetch_renewal_info(directory: Directory, identifier: str) -> Flow[RenewalInfo]:
    """Fetch the renewal information of the certificate with that identifier (`pki.ari.certificate_id`).
    The request is unauthenticated (§4.1)."""
    if not directory.renewal_info:
        raise NotAcme(f"the server at {directory.url} offers no renewal information")
    url = f"{directory.renewal_info.rstrip('/')}/{identifier}"
    response = checked((yield Request(Action.RENEWAL_INFO, "GET", url)))
    content = reading.read_object(response, "renewal information")
    window = content.get("suggestedWindow")
    window = window if isinstance(window, dict) else {}
    start, end = reading.moment(window, "start"), reading.moment(window, "end")
    if start is None or end is None or end <= start:
        # "Clients … MUST … treat a server response with end ≤ start" as if there were none (§4.3.3).
        raise NotAcme(f"{place_of(url)} answered with a window that has no beginning or no end after it")
    return RenewalInfo(start, end, reading.text(content, "explanationURL"), response.retry_after)
